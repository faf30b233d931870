package access

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
)

const (
	linesPeriod = time.Minute
	// fewPeerLines is how many lines a peer may have of the eighth that is kept for others.
	fewPeerLines = 6
)

// A FewLines is a log of so many lines a minute, for what strangers can do as often as they
// like. The next line says how many were left out before it. It is safe for concurrent use.
type FewLines struct {
	log  zerolog.Logger
	rule share.Rule
	now  clock.Clock

	mu      sync.Mutex
	began   time.Duration    // of this minute
	all     int64            // lines in it
	of      map[string]int64 // those of each peer
	leftOut uint64
}

// NewFewLines returns a log of at most so many lines a minute.
func NewFewLines(log zerolog.Logger, most uint32) *FewLines {
	return &FewLines{
		log: log, rule: share.NewRule("lines", "", int64(most), 0.5, fewPeerLines), now: clock.Runtime(), of: make(map[string]int64),
	}
}

// Info begins a line; nil, to which nothing is written, if it is left out.
func (f *FewLines) Info() *zerolog.Event { return f.line(zerolog.InfoLevel, "") }

// Warn is Info for a warning.
func (f *FewLines) Warn() *zerolog.Event { return f.line(zerolog.WarnLevel, "") }

// InfoOf is Info for what a peer has caused. One peer gets half of the lines, and an eighth
// is for peers with few, so that none can spend those of the others.
func (f *FewLines) InfoOf(peer string) *zerolog.Event { return f.line(zerolog.InfoLevel, peer) }

// WarnOf is InfoOf for a warning.
func (f *FewLines) WarnOf(peer string) *zerolog.Event { return f.line(zerolog.WarnLevel, peer) }

func (f *FewLines) line(level zerolog.Level, peer string) *zerolog.Event {
	leftOut, ok := f.take(peer)
	if !ok {
		return nil
	}
	line := f.log.WithLevel(level) //nolint:zerologlint // the caller sends it
	if leftOut > 0 {
		line.Uint64("left_out", leftOut)
	}
	return line
}

// take reports whether there is a line for a peer, and how many were left out before it. A
// line of no peer in particular counts for all.
func (f *FewLines) take(peer string) (leftOut uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); now-f.began >= linesPeriod {
		f.began, f.all = now, 0
		clear(f.of)
	}
	room := f.all < f.rule.Total
	if peer != "" {
		room = f.rule.Room(f.all, f.of[peer], 1)
	}
	if !room {
		f.leftOut++
		return 0, false
	}
	f.all++
	if peer != "" {
		f.of[peer]++
	}
	leftOut, f.leftOut = f.leftOut, 0
	return leftOut, true
}
