// Package clock is the only place that reads clocks for decisions. Durations
// and deadlines are measured on CLOCK_BOOTTIME, which goes on while a machine
// is paused or asleep, so that a node that was stopped notices. Wall time is
// for logs and for what others display, and for the dates in certificates. It
// never enters the state, and no promise depends on it.
package clock

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock returns the time since some fixed moment of this machine. It never
// goes back.
type Clock func() time.Duration

// Boot returns the clock of this machine, which counts from its start.
func Boot() Clock {
	return func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			panic("clock: CLOCK_BOOTTIME cannot be read: " + err.Error()) // Linux has it since 2.6.39
		}
		return time.Duration(ts.Nano())
	}
}

// Runtime returns a clock on the Go runtime's time. In a testing/synctest
// bubble it is virtual.
func Runtime() Clock {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Wall returns the wall time, for logs and display.
func Wall() time.Time { return time.Now() }

// Deadline returns the end of a wait of d that begins now, in the form that
// connections take. They measure it by the runtime's monotonic clock.
func Deadline(d time.Duration) time.Time { return time.Now().Add(d) }

// Sleep waits for a time. It returns the error of the context if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Every calls f once in each d, for the first time after one d, until f fails or the
// context ends. It returns the error of either.
func Every(ctx context.Context, d time.Duration, f func() error) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := f(); err != nil {
			return err
		}
	}
}
