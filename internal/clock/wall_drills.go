//go:build drills

package clock

import (
	"sync/atomic"
	"time"
)

// How wrong this process's wall clock is, in nanoseconds: from the start, and
// besides that from stepAfter on.
var shift, step atomic.Int64

// stepAfter is when the clock steps.
const stepAfter = 3 * time.Second

var uptime = Runtime()

// Wall returns the wall time, for logs and display, as wrong as it was made.
func Wall() time.Time {
	wrong := time.Duration(shift.Load())
	if uptime() > stepAfter {
		wrong += time.Duration(step.Load())
	}
	return time.Now().Add(wrong)
}

// ShiftWall makes this process's wall clock wrong from now on.
func ShiftWall(d time.Duration) { shift.Store(int64(d)) }

// StepWall makes it step once, some seconds after the start.
func StepWall(d time.Duration) { step.Store(int64(d)) }
