package sim

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/lab/mutant"
)

var controls = flag.String("sim.controls", "", "the mutants that seeds must find, separated by ',', or all; none by default, as each is a build")

// controlLimit is how long the seeds of a control may take.
const controlLimit = time.Minute

// A run without a safeguard must break the promise that the safeguard keeps: a
// judge that finds nothing then proves nothing.
func TestControls(t *testing.T) {
	if *controls == "" {
		t.Skip("choose mutants with -sim.controls")
	}
	names := strings.Split(*controls, ",")
	if *controls == "all" {
		names = Controls()
	}
	builder, err := mutant.NewBuilder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = builder.Close() })
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			exe, err := builder.Tests(t.Context(), "./lab/sim", name)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), controlLimit)
			defer cancel()
			began := time.Now()
			out, err := exec.CommandContext(ctx, exe, "-test.run=^TestBeats$").CombinedOutput()
			if _, text, found := strings.Cut(string(out), "promise "); err != nil && found {
				first, _, _ := strings.Cut(text, "\n")
				t.Logf("found in %v, by a story of beats: %s", time.Since(began).Round(100*time.Millisecond), first)
				return
			}
			for from := 1; ctx.Err() == nil; from += 4 {
				out, err := exec.CommandContext(ctx, exe, "-test.run=^TestSeeds$", fmt.Sprint("-sim.from=", from), "-sim.runs=4").CombinedOutput()
				if _, text, found := strings.Cut(string(out), "promise "); err != nil && found {
					first, _, _ := strings.Cut(text, "\n")
					t.Logf("found in %v, within seeds %d to %d: %s", time.Since(began).Round(100*time.Millisecond), from, from+3, first)
					return
				}
			}
			t.Errorf("no seed finds anything within %v, want a broken promise", controlLimit)
		})
	}
}
