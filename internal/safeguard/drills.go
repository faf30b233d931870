//go:build drills

package safeguard

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// off is the safeguard that this process has taken away, if any. A global is
// right here: it belongs to the build, and nothing is to be wired for it.
var off atomic.Pointer[Name]

// Off reports whether a safeguard was taken away.
func Off(n Name) bool {
	taken := off.Load()
	return taken != nil && *taken == n
}

// TakeAway takes a safeguard away from this process, for good.
func TakeAway(n Name) error {
	if !slices.Contains(All(), n) {
		return fmt.Errorf("there is no safeguard %q; there are %v", n, All())
	}
	off.Store(&n)
	return nil
}
