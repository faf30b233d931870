//go:build drills

package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/safeguard"
)

// bindBreak adds --break, which takes a safeguard away, and flags that make the
// wall clock wrong.
func bindBreak(flags *pflag.FlagSet) {
	flags.Func("break", fmt.Sprintf("take a safeguard away, for fault drills only: one of %v", safeguard.All()), func(name string) error {
		return safeguard.TakeAway(safeguard.Name(name))
	})
	for name, set := range map[string]func(time.Duration){"shift-wall": clock.ShiftWall, "step-wall": clock.StepWall} {
		flags.Func(name, "make the wall clock wrong by this, at once or some seconds later; for fault drills only", func(text string) error {
			d, err := time.ParseDuration(text)
			if err == nil {
				set(d)
			}
			return err
		})
	}
}
