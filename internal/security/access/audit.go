package access

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// A FewLines is a log of so many lines a minute, for what strangers can do as often as they
// like. The next line says how many were left out before it. It is safe for concurrent use.
type FewLines struct {
	log     zerolog.Logger
	burst   zerolog.BurstSampler
	leftOut atomic.Uint64
}

// NewFewLines returns a log of at most so many lines a minute.
func NewFewLines(log zerolog.Logger, most uint32) *FewLines {
	return &FewLines{log: log, burst: zerolog.BurstSampler{Burst: most, Period: time.Minute}}
}

// Info begins a line; nil, to which nothing is written, if it is left out.
func (f *FewLines) Info() *zerolog.Event { return f.line(zerolog.InfoLevel) }

// Warn is Info for a warning.
func (f *FewLines) Warn() *zerolog.Event { return f.line(zerolog.WarnLevel) }

func (f *FewLines) line(level zerolog.Level) *zerolog.Event {
	if !f.burst.Sample(level) {
		f.leftOut.Add(1)
		return nil
	}
	line := f.log.WithLevel(level) //nolint:zerologlint // the caller sends it
	if n := f.leftOut.Swap(0); n > 0 {
		line.Uint64("left_out", n)
	}
	return line
}
