package mutant_test

import (
	"context"
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/lab/mutant"
)

var controls = flag.String("mutant.controls", "", "the mutants that tests must find, separated by ',', or all; none by default, as each is a build")

// controlLimit is how long the tests of a control may take.
const controlLimit = time.Minute

// Tests must fail without the safeguard that they are for.
func TestControls(t *testing.T) {
	if *controls == "" {
		t.Skip("choose mutants with -mutant.controls")
	}
	builder, err := mutant.NewBuilder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = builder.Close() })
	for _, c := range testControls() {
		if *controls != "all" && !slices.Contains(strings.Split(*controls, ","), c.Break) {
			continue
		}
		t.Run(c.Break, func(t *testing.T) {
			exe, err := builder.Tests(t.Context(), "./"+c.Package, c.Break)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), controlLimit)
			defer cancel()
			began := time.Now()
			cmd := exec.CommandContext(ctx, exe, "-test.run="+c.Tests, "-test.failfast", "-rapid.nofailfile")
			if c.Package != "metadata" {
				cmd.Args = cmd.Args[:3]
			}
			cmd.Dir = filepath.Join(root, c.Package)
			out, err := cmd.CombinedOutput()
			_, text, failed := strings.Cut(string(out), "--- FAIL: ")
			if err == nil || !failed {
				t.Fatalf("no test fails within %v (%v), want one\n%s", controlLimit, err, out)
			}
			lines := strings.SplitN(text, "\n", 4)
			t.Logf("found in %v: %s", time.Since(began).Round(100*time.Millisecond), strings.Join(lines[:min(3, len(lines))], "; "))
		})
	}
}
