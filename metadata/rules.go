package metadata

import (
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// Rules is the version of the rules by which changes apply, and of the format of
// a snapshot. It is part of the state, so all nodes apply a commit alike. A
// primary raises it, with UseRules, when every node of the cluster knows the
// newer version; a node that does not know it refuses the record.
type Rules uint8

// The versions. An apply rule or a snapshot that changes gets the next one.
const (
	FirstRules Rules = 1
	// The second rules: lists in snapshots are always there; a soft pin begins
	// once; removals are remembered by age; a copy on an SSD needs its source in
	// memory; claims outlive the mount of their memory.

	// instanceRules: a mount carries the instance of its owner.
	instanceRules Rules = 3

	// closingRules: segments that are closed, SSDs that are to be wiped, and partial
	// clears that name a lease.
	closingRules Rules = 4

	// transferRules: copies and moves of objects between segments. longKeyRules: keys
	// of more than maxOldKeyBytes. upsertRules: puts that replace readable objects.
	transferRules Rules = 5
	longKeyRules  Rules = 5
	upsertRules   Rules = 5

	// quotaRules: quotas of tenants. displacedRules: the request ids of puts that
	// another put has replaced are remembered. promotionRules: copies of objects from a
	// client's SSD to memory. capacityRules: the capacity of clients' SSDs.
	quotaRules     Rules = 6
	displacedRules Rules = 6
	promotionRules Rules = 6
	capacityRules  Rules = 6

	// sliceRules: a bounded number of ranges leaves quarantine with one commit
	// (quarantine.pace), and a Fork holds what is there as well.
	sliceRules Rules = 7

	// keepingRules: a put whose memory has gone meanwhile replaces nothing. recordRules:
	// memory leaves quarantine with commits that have a record.
	keepingRules Rules = 8
	recordRules  Rules = 8

	// smallSliceRules: fewer ranges leave quarantine with one commit, unless they are late.
	smallSliceRules Rules = 9

	NewestRules = smallSliceRules
)

// maxOldKeyBytes is the longest key that nodes before longKeyRules read.
const maxOldKeyBytes = 4096

// checkKey refuses a key that not every node of the cluster can read.
func (s *Store) checkKey(key string) error {
	if len(key) > maxOldKeyBytes && s.Rules() < longKeyRules {
		return errs.New(errs.InvalidKey, "PutStart",
			"the key has %d bytes; at most %d are possible until all nodes are upgraded", len(key), maxOldKeyBytes)
	}
	return nil
}

// Rules returns the version in force.
func (s *Store) Rules() Rules { return s.inForce.Load().rules }

// since returns the version of the rules from which on a change may be applied: a snapshot
// by older ones has no place for what it leaves in the state.
func since(change Change) Rules {
	switch e := change.(type) {
	case *Mount:
		if e.Spec.Instance != 0 {
			return instanceRules
		}
	case *CloseSegment, *WipeDisks:
		return closingRules
	case *StartTransfer:
		if e.Promotion {
			return promotionRules
		}
		return transferRules
	case *EndTransfer, *AddTask, *SetTasks, *SaveDrain:
		return transferRules
	case *SetOffloading:
		if e.Capacity != 0 {
			return capacityRules
		}
	case *SetQuota:
		return quotaRules
	}
	return FirstRules
}

// allows reports whether a change may be applied by the rules in force; else the commit
// cannot belong to this state. While a snapshot is loaded the rules are not known.
func (tx *Tx) allows(change Change) bool {
	needs := since(change)
	if needs <= FirstRules || tx.s.loading || needs <= tx.s.Rules() {
		return true
	}
	tx.Fail("%T needs rules of version %d, and those of %d are in force", change, needs, tx.s.Rules())
	return false
}

// UseRules raises the version of the rules.
type UseRules struct {
	objectEvent

	Version Rules
}

// Apply puts the rules in force, from the next change on. Rules that are in
// force already stay.
func (e *UseRules) Apply(tx *Tx) error {
	if tx.globalHas() {
		return nil
	}
	before := tx.s.inForce.Load()
	switch {
	case e.Version > NewestRules:
		tx.Fail("rules of version %d; this node knows up to %d, upgrade it", e.Version, NewestRules)
		return errs.InvalidVersion
	case before.term == 0:
		tx.Fail("rules before the first term")
		return errs.InvalidVersion
	case e.Version <= before.rules:
		return nil
	}
	next := *before
	next.rules = e.Version
	tx.s.setTerm(&next)
	tx.s.digest += tx.s.requests.keepByAge(tx.now)
	return nil
}

// Code encodes or decodes the fields.
func (e *UseRules) Code(c *binenc.Coder) {
	c.Tag(typeUseRules)
	binenc.CodeUvarint(c, &e.Version)
}
