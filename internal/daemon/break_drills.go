//go:build drills

package daemon

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/internal/safeguard"
)

// bindBreak adds --break, which takes a safeguard away.
func bindBreak(flags *pflag.FlagSet) {
	flags.Func("break", fmt.Sprintf("take a safeguard away, for fault drills only: one of %v", safeguard.All()), func(name string) error {
		return safeguard.TakeAway(safeguard.Name(name))
	})
}
