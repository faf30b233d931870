package service

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/understudy-store/understudy/errs"
)

// compile returns a function that reports whether a pattern is found in a key;
// an empty pattern is found in every key. The dialect is Go's RE2, where the
// C++ master's is ECMAScript: what RE2 does not have, such as look-ahead and
// back-references, is refused by name.
func compile(op, pattern string) (func(key string) bool, error) {
	if len(pattern) > MaxRegexBytes {
		return nil, errs.New(errs.InvalidParams, op, "the pattern has %d bytes, at most %d are possible", len(pattern), MaxRegexBytes)
	}
	if pattern == "" {
		return nil, nil
	}
	re, err := regexp.Compile(pattern)
	if err == nil {
		return re.MatchString, nil
	}
	var fault *syntax.Error
	if errors.As(err, &fault) {
		return nil, errs.New(errs.InvalidParams, op,
			"the pattern %q is refused at %q: %v (patterns are Go's RE2; it has no look-around and no back-references)",
			pattern, fault.Expr, fault.Code)
	}
	return nil, errs.Wrap(errs.InvalidParams, op, err)
}
