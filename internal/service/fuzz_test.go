package service_test

import (
	"context"
	"errors"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// Patterns that are refused, each with what the error must name.
var refusedPatterns = map[string]string{
	`a(?=b)`:               "(?=",
	`a(?!b)`:               "(?!",
	`(?<=a)b`:              "(?<",
	`(?<!a)b`:              "(?<",
	`(a)\1`:                `\\1`,
	`(?P=n)`:               "(?P=",
	`(?>a)`:                "(?>",
	`a++`:                  "++",
	`[`:                    "[",
	`a{1001}`:              "{1001}",
	`\cA`:                  `\\c`,
	`(?:(a{999}){999}){9}`: "{999}",
	"\xff":                 "UTF-8",

	// Small to write, large to run.
	"(?:" + strings.Repeat("a?", 400) + "){1000}b": "steps",
	strings.Repeat(".{0,1000}", 450):               "steps",
	strings.Repeat("(?:a|b|c){1000}", 200):         "steps",
}

func TestPatternsThatAreRefused(t *testing.T) {
	f := newFixture(t)
	for pattern, names := range refusedPatterns {
		_, err := f.RemoveByRegex(t.Context(), service.RemoveRequest{Tenant: "default"}, pattern)
		if errs.KindOf(err) != errs.InvalidParams || !strings.Contains(err.Error(), names) {
			t.Errorf("%.60q: %v, want INVALID_PARAMS that names %s", pattern, err, names)
		}
		if err != nil && len(err.Error()) > 2048 {
			t.Errorf("%.60q: an error of %d bytes, want at most 2048", pattern, len(err.Error()))
		}
	}
	// The largest that are accepted, and a pattern without repetitions that is as
	// long as can be.
	for _, pattern := range []string{"a{1000}", "(?:ab?){900}", strings.Repeat("a|", service.MaxRegexBytes/2), strings.Repeat("a?", service.MaxRegexBytes/2)} {
		if _, err := f.RemoveByRegex(t.Context(), service.RemoveRequest{Tenant: "default"}, pattern); err != nil {
			t.Errorf("got %.60q is refused: %v, want no error", pattern, err)
		}
	}
}

// No page token that a caller makes up comes back whole.
func TestErrorsDoNotEchoAllThatWasSent(t *testing.T) {
	f := newFixture(t)
	_, _, err := f.Keys(t.Context(), "default", "", false, service.Page{Token: strings.Repeat("x", 1<<20)})
	if errs.KindOf(err) != errs.InvalidParams || len(err.Error()) > 2048 {
		t.Errorf("a token of 1 MiB: %v in %d bytes, want InvalidParams in at most 2048", errs.KindOf(err), len(err.Error()))
	}
}

// FuzzRegex gives any pattern to a search over some keys, a long one among them:
// it is refused by what RE2 refuses, or finds what it finds in bounded time and
// memory.
func FuzzRegex(f *testing.F) {
	for pattern := range refusedPatterns {
		f.Add(pattern)
	}
	for _, pattern := range []string{"", "^a.*$", "(?i)key[0-9]+", `\pL{3}`, "(?:ab?){900}", strings.Repeat("a?", 2000) + "b", "(a|aa)+$", `\bx\B`} {
		f.Add(pattern)
	}
	fixture := newFixture(f)
	long := strings.Repeat("a", 1024)
	fixture.p.Put(nil, long, "key1", "a/b/ü", "x\ny")
	f.Fuzz(func(t *testing.T, pattern string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begun := time.Now()
		keys, _, err := (*service.Scans)(nil).Keys(context.Background(), fixture.p.Store, metadata.DefaultTenant, pattern, false, service.Page{})
		took := time.Since(begun)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("a pattern of %d bytes takes %d bytes, want at most 64 MiB", len(pattern), n)
		}
		if took > 5*time.Second {
			t.Errorf("a pattern of %d bytes takes %v for %d bytes of keys, want at most 5 s", len(pattern), took, len(long)+14)
		}
		if err == nil {
			if len(keys) > 4 || pattern == "" && len(keys) != 4 {
				t.Errorf("%q is found in %d keys, want at most 4, and all for no pattern", pattern, len(keys))
			}
			return
		}
		if errs.KindOf(err) != errs.InvalidParams || len(err.Error()) > 2048 {
			t.Fatalf("%q: %v in %d bytes, want InvalidParams in at most 2048", pattern, errs.KindOf(err), len(err.Error()))
		}
		_, cause := syntax.Parse(pattern, syntax.Perl)
		var fault *syntax.Error
		if len(pattern) <= service.MaxRegexBytes && errors.As(cause, &fault) && !strings.Contains(err.Error(), string(fault.Code)) {
			t.Errorf("%q: got error %v, want it to say %s", pattern, err, fault.Code)
		}
	})
}
