package judge

import (
	"math"
	"time"

	"github.com/understudy-store/understudy/client"
)

// forever is later than anything.
const forever = time.Duration(math.MaxInt64)

// Rules say what may happen to objects other than by clients' calls.
type Rules struct {
	NoEviction bool `json:"no_eviction"` // else all that is not pinned may vanish at any time
	// Unnumbered says that calls have no request ids, as over Mooncake's protocol:
	// a client may replace a reservation of its own whose answer was lost.
	Unnumbered bool   `json:"unnumbered,omitempty"`
	Quota      uint64 `json:"quota,omitempty"` // of Tenant, in bytes; 0 for none
	Losses     []Loss `json:"losses,omitempty"`
	// Moved has the endpoints to which objects were last moved; empty if that move had no
	// answer.
	Moved map[client.ObjectID]string `json:"moved,omitempty"`
}

// The timeouts of abandoned puts, as in the C++ master and by default here.
const (
	discardTimeout = 30 * time.Second  // after this another put may replace a reservation
	releaseTimeout = 600 * time.Second // after this a reservation may vanish
)

// A Loss is a time in which the cluster may lose objects. Those that were put before its end
// may vanish from its beginning on.
type Loss struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
	Host string        `json:"host,omitempty"` // only objects there; empty for all
}

// clockSlack returns by how much two clocks may differ over a time d: each may be off by
// 1/1000, and times are rounded to milliseconds.
func clockSlack(d time.Duration) time.Duration { return d/500 + 2*time.Millisecond }

// vanishFrom returns the time from which on a readable object may be gone; forever if it may
// not.
func (u *Rules) vanishFrom(p *putInfo) time.Duration {
	if p.metered || !u.NoEviction && !p.pinned {
		return 0
	}
	return u.lostFrom(p)
}

// discardFrom returns the time from which on another put may replace a reservation.
func (u *Rules) discardFrom(p *putInfo) time.Duration {
	return min(p.start+discardTimeout-clockSlack(discardTimeout), u.lostFrom(p))
}

// releaseFrom returns the time from which on a reservation may be gone.
func (u *Rules) releaseFrom(p *putInfo) time.Duration {
	return min(p.start+releaseTimeout-clockSlack(releaseTimeout), u.lostFrom(p))
}

// mayBeReplaced reports whether a client may have replaced a reservation by another of its own.
func (u *Rules) mayBeReplaced(p *putInfo, by int) bool {
	return u.Unnumbered && p.client == by && p.end == forever
}

// lostFrom returns the time from which on a loss may have taken an object; forever if none may.
func (u *Rules) lostFrom(p *putInfo) time.Duration {
	from := forever
	for _, loss := range u.Losses {
		if p.start <= loss.To && (loss.Host == "" || loss.Host == p.host || p.host == "") {
			from = min(from, loss.From)
		}
	}
	return from
}

// A putInfo is what is known of one object.
type putInfo struct {
	start  time.Duration // when its reservation was asked for
	end    time.Duration // when its client had the answer; forever if that was lost
	ended  time.Duration // when its PutEnd was acknowledged; forever if it was not
	host   string        // empty if it is not known
	pinned bool
	// metered objects may be evicted for their tenant's quota.
	metered bool
	client  int // whose put it is
}
