package sim

import (
	"slices"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// placed judges where a reader found an object: at all places where it is, and at
// none where it is not yet, or no longer.
func (j *judge) placed(c call, o *object, at []bytes) {
	for _, b := range at {
		p := o.place(b)
		switch {
		case p == nil && o.reserved != 0:
			j.findLocked("A", "%s (%v) is at %v, where nobody has put it", o.key, o.id, b)
			continue
		case p == nil:
			p = &place{bytes: b}
			o.places = append(o.places, p)
		case p.transfer && (p.endAsked == 0 || c.came < p.endAsked):
			j.findLocked("V", "%s (%v) is readable at %v before its transfer has ended", o.key, o.id, b)
		case p.left != 0 && p.left < c.sent:
			j.findLocked("X", "%s (%v), moved away from %v at %v, was read there at %v", o.key, o.id, b, p.left, c.came)
		}
		p.leased = max(p.leased, c.sent+leaseTTL)
	}
	for _, p := range o.places {
		there := p.there
		if !p.transfer {
			there = o.readable
		}
		if there != 0 && there < c.sent && !p.leaves && !slices.Contains(at, p.bytes) {
			j.findLocked("D", "%s (%v) was not found at %v, where it is since %v", o.key, o.id, p.bytes, there)
		}
	}
}

// place returns the newest place of an object at some bytes, nil for none.
func (o *object) place(at bytes) *place {
	for _, p := range slices.Backward(o.places) {
		if p.bytes == at {
			return p
		}
	}
	return nil
}

// A transfer is a copy or a move whose start was acknowledged.
type transfer struct {
	object *object
	began  time.Duration
	ends   int    // how often an end was sent
	source *place // what goes when it is complete; nil for a copy
	target *place // nil if the object was there before
}

// transferred judges the acknowledged start of a transfer, as a PutStart.
func (j *judge) transferred(c call, key string, id metadata.ObjectID, source *bytes, targets []bytes) *transfer {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence(c, false)
	t := &transfer{object: j.object(key, id), began: c.came}
	if source != nil {
		t.source = t.object.place(*source)
	}
	for _, at := range targets {
		j.taken(c, t.object, at)
		t.target = &place{bytes: at, transfer: true}
		t.object.places = append(t.object.places, t.target)
	}
	return t
}

// transferEnding notes that the end of a transfer is about to be sent.
func (j *judge) transferEnding(t *transfer, now time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t.ends++
	if t.target != nil && t.target.endAsked == 0 {
		t.target.endAsked = now
	}
	if t.source != nil {
		t.source.leaves = true
	}
}

// transferEnded judges the acknowledged end of a transfer.
func (j *judge) transferEnded(c call, t *transfer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence(c, false)
	if t.target != nil {
		t.target.there = c.came
	}
	if t.source != nil {
		t.source.left = c.came
	}
}

// transferNotEnded judges the first end of a transfer whose answer is that there is
// none: its start was acknowledged, so it must be there (D).
func (j *judge) transferNotEnded(c call, t *transfer, why error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fence(c, false)
	if t.ends == 1 && t.object.removeAsked == 0 && c.came-t.began < params.ReleaseTimeout {
		j.findLocked("D", "the transfer of %s (%v), acknowledged at %v, is gone: %v", t.object.key, t.object.id, t.began, why)
	}
}
