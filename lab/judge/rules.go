package judge

import (
	"math"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/metadata"
)

// forever is later than anything.
const forever = time.Duration(math.MaxInt64)

// Rules say what may happen to objects beside what clients do.
type Rules struct {
	NoEviction bool `json:"no_eviction"` // else all that is not pinned may vanish at any time
	// Unnumbered says that calls have no request ids, as over Mooncake's protocol:
	// a client may replace a reservation of its own of which it was not told, or
	// which is of an earlier term.
	Unnumbered     bool          `json:"unnumbered,omitempty"`
	DiscardTimeout time.Duration `json:"discard_timeout_ns"` // after it another put may replace a reservation; 0 for 30 s
	ReleaseTimeout time.Duration `json:"release_timeout_ns"` // after it a reservation may vanish; 0 for 600 s
	Losses         []Loss        `json:"losses,omitempty"`
}

// The timeouts of abandoned puts, as in the C++ master (behaviours.md, 1.2).
const (
	defaultDiscard = 30 * time.Second
	defaultRelease = 600 * time.Second
)

func (u *Rules) setDefaults() {
	setDefault(&u.DiscardTimeout, defaultDiscard)
	setDefault(&u.ReleaseTimeout, defaultRelease)
}

// A Loss is a time in which a drill lets objects be lost: those put before its
// end may vanish from its beginning on.
type Loss struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
	Host string        `json:"host,omitempty"` // only objects there; empty for all
}

// clockSlack is by how much clocks may differ in rate: each by 1/1000, and the
// rounding to milliseconds.
func clockSlack(d time.Duration) time.Duration { return d/500 + 2*time.Millisecond }

// mayVanish reports whether a readable object may be gone at some time.
func (u *Rules) mayVanish(p *putInfo, when time.Duration) bool {
	return !u.NoEviction && !p.pinned || u.lost(p, when)
}

// mayBeDiscarded reports whether another put may have replaced a reservation by
// some time.
func (u *Rules) mayBeDiscarded(p *putInfo, when time.Duration) bool {
	return when-p.start >= u.DiscardTimeout-clockSlack(u.DiscardTimeout) || u.lost(p, when)
}

// mayBeReplaced reports whether the client that made a reservation may have put
// another one in its place, whose id is given, or 0 if there was no room for it.
func (u *Rules) mayBeReplaced(id client.ObjectID, p *putInfo, by int, with client.ObjectID) bool {
	if !u.Unnumbered || p.client != by {
		return false
	}
	return p.end == forever || with == 0 || metadata.ObjectID(id).Term() < metadata.ObjectID(with).Term()
}

// mayBeReleased reports whether a reservation may be gone at some time.
func (u *Rules) mayBeReleased(p *putInfo, when time.Duration) bool {
	return when-p.start >= u.ReleaseTimeout-clockSlack(u.ReleaseTimeout) || u.lost(p, when)
}

// lost reports whether a drill lets an object be lost.
func (u *Rules) lost(p *putInfo, when time.Duration) bool {
	for _, loss := range u.Losses {
		if p.start <= loss.To && when >= loss.From && (loss.Host == "" || loss.Host == p.host || p.host == "") {
			return true
		}
	}
	return false
}

// A putInfo is what is known of one object.
type putInfo struct {
	start  time.Duration // when its reservation was asked for
	end    time.Duration // when the writer had it; forever if it never learned
	host   string        // empty if it is not known
	pinned bool
	client int // that made it
}
