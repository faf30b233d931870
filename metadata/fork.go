package metadata

import (
	"time"

	"github.com/understudy-store/understudy/internal/binenc"
)

// Fork begins a term of a journal that was founded anew without the last primary of
// the one before (design section 11). That one may have given memory away that is
// free in this state: readers may hold leases there, and writers reservations.
type Fork struct {
	objectEvent

	// Hold is how long from now on all that is free stays in quarantine.
	Hold time.Duration
}

// Apply puts all free memory into quarantine. What is mounted later goes there as
// well, as long as the term's guard lasts.
func (e *Fork) Apply(tx *Tx) error {
	if tx.globalHas() {
		return nil
	}
	next := *tx.s.inForce.Load()
	next.startedEmpty = true
	tx.s.setTerm(&next)
	until := tx.now.Add(e.Hold)
	for _, p := range tx.s.segments {
		for _, r := range p.FreeRanges() {
			if err := p.Reserve(r); err != nil {
				tx.Fail("%v", err)
				return nil
			}
			tx.release(p, r, until)
		}
	}
	return nil
}

// Code goes through the fields.
func (e *Fork) Code(c *binenc.Coder) {
	c.Tag(typeFork)
	codeMillis(c, &e.Hold)
}
