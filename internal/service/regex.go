package service

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/understudy-store/understudy/errs"
)

// maxRegexSteps bounds a pattern with its counted repetitions written out. A pattern
// without them stays far below: a byte of a pattern is about one step. A
// search takes up to steps times bytes of the key, before its goroutine can stop:
// without the bound 800 bytes of pattern took 7 s for a key of 400.
const maxRegexSteps = 2 * MaxRegexBytes

// compile returns a function that reports whether a pattern is found in a key;
// an empty pattern is found in every key. The dialect is Go's RE2, where the
// C++ master's is ECMAScript: what RE2 does not have, such as look-ahead and
// back-references, is refused by name. So is what is too large when its counted
// repetitions are written out.
func compile(op, pattern string) (func(key string) bool, error) {
	if len(pattern) > MaxRegexBytes {
		return nil, errs.New(errs.InvalidParams, op, "the pattern has %d bytes, at most %d are possible", len(pattern), MaxRegexBytes)
	}
	if pattern == "" {
		return nil, nil
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	var fault *syntax.Error
	switch {
	case errors.As(err, &fault):
		return nil, errs.New(errs.InvalidParams, op,
			"the pattern %.128q is refused at %.128q: %v (patterns are Go's RE2; it has no look-around and no back-references)",
			pattern, fault.Expr, fault.Code)
	case err != nil:
		return nil, errs.Wrap(errs.InvalidParams, op, err)
	}
	if n := steps(tree); n > maxRegexSteps {
		return nil, errs.New(errs.InvalidParams, op,
			"the pattern %.128q has %d steps when its counted repetitions are written out, at most %d are possible; repeat less with {n}",
			pattern, n, maxRegexSteps)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, errs.Wrap(errs.InvalidParams, op, err)
	}
	return re.MatchString, nil
}

// steps returns about how many instructions a pattern compiles to. Parsing has
// bounded depth and repetitions, so the sum cannot overflow.
func steps(re *syntax.Regexp) int {
	n := 1
	switch re.Op { //nolint:exhaustive // the others take one step and what is in them
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpConcat:
		n = 0
	case syntax.OpAlternate:
		n = len(re.Sub)
	}
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}
