package eviction

import (
	"math"

	"github.com/understudy-store/understudy/metadata"
)

// A Policy says how much to evict.
type Policy interface {
	// Plan returns what one round must do. armed says that an allocation failed
	// since the round before.
	Plan(st metadata.Stats, armed bool) Plan
}

// A Plan is one round, in objects.
type Plan struct {
	// Target is how many objects without a pin to evict; 0 for no round.
	Target int
	// Least is the minimum of objects to evict, with soft-pinned ones if allowed.
	Least int
}

// Watermark evicts when memory runs out, and never because a lease ended: the
// C++ master's rule (behaviours section 3).
type Watermark struct {
	High     float64 // used/capacity above which a round begins, in (0, 1]
	Ratio    float64 // part of the objects that a round evicts, in [0, 1]
	SoftPins bool    // soft-pinned objects may be evicted when others do not suffice
}

// Plan follows the C++ master: the target is max(ratio, used - high + ratio)
// of the evictable objects, the least max(target/2, used - high) of them.
// Memory in quarantine counts as free: no eviction gives it back any sooner. Else a
// takeover of a full cache, or a journal founded anew, where all that is free may
// stay in quarantine for minutes, would evict all that the cache holds.
func (w Watermark) Plan(st metadata.Stats, armed bool) Plan {
	used := Used(st)
	if used <= w.High && (!armed || w.Ratio == 0) {
		return Plan{}
	}
	over := used - w.High
	target := max(w.Ratio, over+w.Ratio)
	least := max(target/2, over)
	n := float64(st.Evictable)
	p := Plan{Target: int(math.Ceil(target * n)), Least: int(math.Ceil(least * n))}
	if !w.SoftPins {
		p.Least = 0
	}
	return p
}

// Used returns the part of the memory that is used, from 0 to 1.
func Used(st metadata.Stats) float64 {
	if st.Capacity == 0 {
		return 0
	}
	return float64(st.Busy-min(st.Busy, st.Quarantined)) / float64(st.Capacity)
}

// Expiry evicts every object when its lease ends, whether memory is short or
// not.
type Expiry struct{}

// Plan evicts all that has expired, except objects with a live soft pin.
func (Expiry) Plan(st metadata.Stats, _ bool) Plan {
	return Plan{Target: int(st.Evictable)}
}
