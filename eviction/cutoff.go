package eviction

import (
	"math"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// A Cutoff is one eviction pass, as it is journaled: every node evicts on its
// own what falls under it. The cutoff must lie below the time of the last
// commit applied when the pass began [model]: then nothing that completes
// later can fall under it.
type Cutoff struct {
	// Objects whose journaled (deadline, id) is at most this are evicted.
	Deadline metadata.Time
	ID       metadata.ObjectID
	// Soft pins that end at or before PinTime do not count.
	PinTime metadata.Time
	// IncludePinned evicts softly pinned objects as well.
	IncludePinned bool

	victims *metadata.Victims // on the node that decided it
}

// Stream returns ObjectEvents.
func (c *Cutoff) Stream() metadata.Stream { return metadata.ObjectEvents }

// Apply evicts what falls under the cutoff. That is read from journaled state
// only, so it is the same on every node.
func (c *Cutoff) Apply(tx *metadata.Tx) error {
	evictable, evicted := tx.Evictable(), 0
	// Little is filed anew here: the pass has done that on the primary, and Store.Tidy on others.
	evictable.EndPins(c.PinTime, math.MaxInt)
	evict := func(o metadata.Candidate) {
		if c.covers(o) && tx.Evict(o) {
			evicted++
		}
	}
	evictable.Walk(false, c.rank(), math.MaxInt, evict, never)
	if c.IncludePinned {
		evictable.Walk(true, c.rank(), math.MaxInt, evict, never)
	}
	tx.CountCutoff(evicted)
	c.victims.Release()
	return nil
}

func never(metadata.Rank) bool { return false }

// rank is the place of the last object that falls under the cutoff.
func (c *Cutoff) rank() metadata.Rank { return metadata.Rank{At: c.Deadline, ID: c.ID} }

func (c *Cutoff) covers(o metadata.Candidate) bool {
	if o.SoftPinned(c.PinTime) && !c.IncludePinned {
		return false
	}
	return o.Rank().Compare(c.rank()) <= 0
}

// Abort ends the waiting for the victims.
func (c *Cutoff) Abort(*metadata.Store) { c.victims.Release() }

// NewCutoff returns a cutoff to decode into.
func NewCutoff() metadata.Change { return new(Cutoff) }

// Code encodes or decodes the fields.
func (c *Cutoff) Code(coder *binenc.Coder) {
	coder.Tag(metadata.TypeCutoff)
	binenc.CodeVarint(coder, &c.Deadline)
	binenc.CodeUvarint(coder, &c.ID)
	binenc.CodeVarint(coder, &c.PinTime)
	coder.CodeBool(&c.IncludePinned)
}
