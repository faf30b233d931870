//go:build drills

package sim

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/safeguard"
)

var broken = flag.String("sim.break", "", "the safeguard to run without")

// prepare takes away the safeguard that the flag names.
func prepare() {
	if *broken == "" {
		return
	}
	if err := safeguard.TakeAway(safeguard.Name(*broken)); err != nil {
		panic(err)
	}
}

// A run without a safeguard must break the promise that the safeguard keeps: a
// judge that finds nothing then proves nothing. Safeguards of eviction have no
// part here, as nothing is evicted.
func TestControls(t *testing.T) {
	for _, name := range []safeguard.Name{
		safeguard.FencingCompare, safeguard.SendBasedDeadline, safeguard.JournaledReservations, safeguard.Quarantine,
		safeguard.CommitBeforeAck, safeguard.IDCheck, safeguard.HeadContinuity,
	} {
		t.Run(string(name), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for from := 1; ctx.Err() == nil; from += 4 {
				out, err := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSeeds$", "-sim.break="+string(name),
					fmt.Sprint("-sim.from=", from), "-sim.runs=4").CombinedOutput()
				if err != nil && strings.Contains(string(out), "promise") {
					first := string(out[strings.Index(string(out), "promise"):])
					t.Logf("found within seeds %d to %d: %s", from, from+3, strings.SplitN(first, "\n", 2)[0])
					return
				}
			}
			t.Error("no seed finds anything within a minute")
		})
	}
}
