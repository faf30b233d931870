package journal

import (
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A Pace is how fast a primary beats (docs/design.md, section 8, Beats): the failover
// time D, after which followers depose a primary whose head does not move, the serve
// window W, which is 3/5 of it, and a beat every W/4.
//
// When several commits within a minute are slow, both are doubled, up to the session
// TTL: frequent failovers are worse than slow ones. Safe for concurrent use.
type Pace struct {
	base, most time.Duration // D, as set and at most
	log        *slog.Logger

	mu     sync.Mutex
	on     bool          // heads carry W and D
	least  time.Duration // W is at least that of an earlier term
	factor time.Duration // by which D is raised
	slow   []slowCommit  // of the last minute
	calm   time.Duration // by the clock: when the last slow commit ended
	raised int
}

type slowCommit struct{ at, took time.Duration }

// NewPace returns a pace for a failover time, 0 for none, which slow commits may
// raise. It is off.
func NewPace(failover, most time.Duration, log *slog.Logger) *Pace {
	return &Pace{base: failover, most: max(failover, most), factor: 1, log: log}
}

// Turn says whether heads carry the pace: only while every node reads such heads.
func (p *Pace) Turn(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on = on && p.base > 0
}

// AtLeast keeps the window from being shorter than that of an earlier term, whose
// primary may still answer, also while heads carry no pace; 0 ends that.
func (p *Pace) AtLeast(window time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.least = window
}

// Resume begins, at a time by the clock, with the failover time that slow commits
// raised in an earlier term. It falls again after a time without a slow commit.
func (p *Pace) Resume(now, failover time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.base > 0 && p.base*p.factor < min(failover, p.most) {
		p.factor *= 2
	}
	p.calm = now
}

// Slowed reports whether slow commits have raised the pace.
func (p *Pace) Slowed() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on && p.factor > 1
}

// Windows returns W and D as the next head carries them, 0 for none.
func (p *Pace) Windows() (window, failover time.Duration) {
	if p == nil {
		return 0, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.windowsLocked()
}

func (p *Pace) windowsLocked() (window, failover time.Duration) {
	if p.on {
		failover = min(p.base*p.factor, p.most)
		window = windowOf(failover)
	}
	if p.least > window {
		window, failover = p.least, max(failover, p.least*5/3)
	}
	return window, failover
}

// windowOf returns the serve window for a failover time.
func windowOf(failover time.Duration) time.Duration { return failover * 3 / 5 }

// Every returns how long the writer waits for changes before it commits none.
func (p *Pace) Every() time.Duration {
	if window, _ := p.Windows(); window > 0 {
		return window / 4
	}
	return Heartbeat
}

// Raised returns how often the pace was slowed down.
func (p *Pace) Raised() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raised
}

// slowCommits slow commits within slowWithin raise the window. It falls again after
// calmAfter without one.
const (
	slowCommits = 3
	slowWithin  = time.Minute
	calmAfter   = 15 * time.Minute
)

// took notes how long a commit took that ended at a time.
func (p *Pace) took(now, took time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on {
		return
	}
	if took > windowOf(p.base)/2 {
		p.calm = now
	}
	if p.factor > 1 && now-p.calm >= calmAfter {
		p.factor = 1
		_, failover := p.windowsLocked()
		p.log.Info("etcd is quick again: the failover time is back to what was set", "failover_after", failover)
	}
	window, failover := p.windowsLocked()
	if took <= window/2 || failover >= p.most {
		return
	}
	p.slow = slices.DeleteFunc(p.slow, func(c slowCommit) bool { return now-c.at > slowWithin })
	if p.slow = append(p.slow, slowCommit{now, took}); len(p.slow) < slowCommits {
		return
	}
	p.raiseLocked()
}

// raiseLocked doubles the pace until it suits the quickest of the slow commits.
func (p *Pace) raiseLocked() {
	quickest := slices.MinFunc(p.slow, func(a, b slowCommit) int { return int(a.took - b.took) }).took
	for p.base*p.factor < p.most {
		p.factor *= 2
		if windowOf(p.base*p.factor)/2 > quickest {
			break
		}
	}
	p.slow = nil
	p.raised++
	window, failover := p.windowsLocked()
	p.log.Warn("etcd is slow: the failover time was raised, so that this does not end the term",
		"commit", quickest, "window", window, "failover_after", failover)
}
