//go:build !drills

package clock

import "time"

// Wall returns the wall time, for logs and display.
func Wall() time.Time { return time.Now() }
