package metadata

import (
	"time"

	"github.com/understudy-store/understudy/metadata/binenc"
)

// TermStart is the first entry of a term: the times and rules in force.
type TermStart struct {
	objectEvent

	Term   Term
	Params Params
	// Guard is how long, from this entry on, freed memory stays in quarantine, because
	// the previous primary may have granted leases that it could not journal: that
	// primary's HoldTime, or 0 after a clean handover.
	Guard time.Duration
	// Empty says that the state of earlier terms is lost. A follower that still has
	// state must load a snapshot.
	Empty bool
}

// Apply puts the times in force.
func (e *TermStart) Apply(tx *Tx) error {
	if tx.globalHas() {
		return nil
	}
	if e.Term != tx.term || e.Term == 0 {
		tx.Fail("a commit of term %d starts term %d", tx.term, e.Term)
		return nil
	}
	if e.Empty && tx.s.counts.objects.Load()+int64(len(tx.s.segments)+len(tx.s.localDisks.byNumber)) > 0 {
		tx.Fail("term %d starts empty, but this node still holds state", e.Term)
		return nil
	}
	before := tx.s.inForce.Load()
	next := &termState{
		Params:       e.Params,
		term:         e.Term,
		guardUntil:   max(before.guardUntil, tx.now.Add(e.Guard)),
		rules:        before.rules,
		startedEmpty: e.Empty || before.startedEmpty && tx.now < before.guardUntil,
		hold:         Time(e.Params.HoldTime().Milliseconds()),
	}
	tx.s.setTerm(next)
	tx.s.quarantine.moveHorizon(tx.now + next.hold)
	return nil
}

func (s *Store) setTerm(next *termState) {
	if before := s.inForce.Load(); before.term != 0 {
		s.digest -= before.digestTerm()
	}
	s.digest += next.digestTerm()
	s.inForce.Store(next)
}

// Code encodes or decodes the fields.
func (e *TermStart) Code(c *binenc.Coder) {
	c.Tag(typeTermStart)
	binenc.CodeUvarintMax(c, &e.Term, "a term", MaxTerm)
	codeParams(c, &e.Params)
	codeMillis(c, &e.Guard)
	c.CodeBool(&e.Empty)
	c.Check(e.Params.Validate())
	c.Check(e.Term.validate())
}

// termState is what the term's first entry put in force.
type termState struct {
	Params
	term         Term
	rules        Rules
	guardUntil   Time // what is freed before this time stays in quarantine until then
	startedEmpty bool // after a loss of all complete nodes: old leases are unknown
	hold         Time // Params.HoldTime in cluster milliseconds
}

// Fork follows the start of a term in a journal that was founded anew without the last
// primary of the old one (docs/failover.md, "etcd has lost the journal"). That primary
// may have given out memory that is free in this state, or in quarantine: readers may
// hold leases there, and writers reservations.
type Fork struct {
	objectEvent

	// Hold is how long from now on all free memory stays in quarantine, and all that is
	// in quarantine already.
	Hold time.Duration
}

// Apply puts all free memory into quarantine, and extends the quarantine of what would
// leave earlier: the lost primary may have given that out again. It may have freed it
// after the fork, or before, where this node frees it only with the next commits. Memory
// that is mounted later goes into quarantine as well, as long as the term's guard lasts.
func (e *Fork) Apply(tx *Tx) error {
	if tx.globalHas() {
		return nil
	}
	next := *tx.s.inForce.Load()
	next.startedEmpty = true
	tx.s.setTerm(&next)
	until := tx.now.Add(e.Hold)
	if next.rules >= sliceRules {
		tx.keepQuarantine(until)
	}
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

// Code encodes or decodes the fields.
func (e *Fork) Code(c *binenc.Coder) {
	c.Tag(typeFork)
	codeMillis(c, &e.Hold)
}
