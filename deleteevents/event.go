package deleteevents

import (
	"errors"
	"fmt"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A Type says which call deleted.
type Type uint8

// The types. Their numbers are stored in the journal and never change.
const (
	Remove         Type = 1
	RemoveByRegex  Type = 2
	RemoveAll      Type = 3
	PutRevoke      Type = 4 // a revocation of the last replicas of an object
	UnmountSegment Type = 5 // by the owner, or because the owner expired
	EvictTenant    Type = 6 // for a tenant's quota; not before there are quotas
)

func (t Type) String() string {
	names := [...]string{Remove: "REMOVE", RemoveByRegex: "REMOVE_BY_REGEX", RemoveAll: "REMOVE_ALL", PutRevoke: "PUT_REVOKE", UnmountSegment: "UNMOUNT_SEGMENT", EvictTenant: "EVICT_TENANT"}
	if t < Remove || int(t) >= len(names) {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return names[t]
}

// MaxRemovals bounds the objects of one event. Other changes and some calls wait while it is
// applied, about 3 µs an object. It fits metadata.MaxChangeBytes with the longest possible
// numbers, as did the 2,000 of earlier versions.
const MaxRemovals = 500

// MaxPatternBytes bounds the pattern that an event records for people.
const MaxPatternBytes = 1024

// An Event is one deletion: one change in the journal, final when committed.
type Event struct {
	Type     Type
	Pattern  string              // of RemoveByRegex, cut to MaxPatternBytes; for people only
	Removals []*metadata.Removal // exact objects; empty for UnmountSegment
	Segments []segment.Number    // of UnmountSegment
	Claims   []metadata.Claim    // of UnmountSegment: what readers have leases on
	Removed  int                 // how many of them existed; set by Apply, so not in the journal
}

// Stream returns DeleteEvents.
func (e *Event) Stream() metadata.Stream { return metadata.DeleteEvents }

// Apply deletes. If a single object or segment is already gone, the answer is
// ObjectNotFound or SegmentNotFound. Of several, Removed does not count those that
// are gone. An unknown type fails the whole commit.
func (e *Event) Apply(tx *metadata.Tx) error {
	switch e.Type {
	case Remove, RemoveByRegex, RemoveAll, PutRevoke:
		return remove(e.Removals, tx.Remove, &e.Removed)
	case EvictTenant:
		return remove(e.Removals, tx.RemoveForRoom, &e.Removed)
	case UnmountSegment:
		tx.Claim(e.Segments, e.Claims)
		return remove(e.Segments, tx.Unmount, &e.Removed)
	}
	tx.Fail("delete event of %v: %v", e.Type, ErrUnknownType)
	return errs.InvalidVersion
}

// remove removes the elements of a list and counts those that existed. If the list has
// one element, it returns the answer for that.
func remove[T any](list []T, one func(T) error, removed *int) (answer error) {
	for _, it := range list {
		if err := one(it); err == nil {
			*removed++
		} else if len(list) == 1 {
			answer = err
		}
	}
	return answer
}

// Abort wakes those who wait for the removals.
func (e *Event) Abort(*metadata.Store) {
	for _, r := range e.Removals {
		r.Abort()
	}
}

// Code encodes or decodes the fields. Ids are coded as differences.
func (e *Event) Code(c *binenc.Coder) {
	kind, pattern, n := byte(e.Type), e.Pattern[:min(len(e.Pattern), MaxPatternBytes)], len(e.Removals)
	c.CodeByte(&kind)
	c.CodeString(&pattern, MaxPatternBytes)
	if c.CodeCount(&n, 4); c.Decoding() {
		e.Type, e.Pattern = Type(kind), pattern
		block := make([]metadata.Removal, n)
		for i := range block {
			e.Removals = append(e.Removals, &block[i])
		}
	}
	var last metadata.ObjectID
	for _, r := range e.Removals {
		codeRemoval(c, r, &last)
	}
	binenc.CodeSlice(c, &e.Segments, 1, func(n *segment.Number) { binenc.CodeUvarintMax(c, n, "a segment", 1<<32-1) })
	metadata.CodeClaims(c, &e.Claims)
}

// codeRemoval codes a removal that follows another one, whose id is last.
func codeRemoval(c *binenc.Coder, r *metadata.Removal, last *metadata.ObjectID) {
	binenc.CodeUvarintMax(c, &r.Shard, "a shard", metadata.ShardCount-1)
	step := int64(r.ID - *last)
	binenc.CodeVarint(c, &step)
	*last += metadata.ObjectID(step)
	r.ID = *last
	binenc.CodeVarint(c, &r.LeaseUntil)
	there := r.Request != 0
	if c.CodeBool(&there); there {
		c.CodeUint64(&r.Request)
	}
}

// ErrUnknownType is the error for a record whose type this version does not know.
var ErrUnknownType = errors.New("unknown type of delete event; upgrade this node")

// Decode decodes one event, which must fill b.
func Decode(b []byte) (metadata.Change, error) {
	if len(b) > 0 && (Type(b[0]) < Remove || Type(b[0]) > EvictTenant) {
		return nil, fmt.Errorf("%w: %d", ErrUnknownType, b[0])
	}
	e := new(Event)
	if err := metadata.Decode(b, e); err != nil {
		return nil, fmt.Errorf("delete event: %w", err)
	}
	return e, nil
}

// A Request asks for the removal of one object.
type Request struct {
	Tenant string
	Key    string
	Force  bool   // override a lease, and nothing else
	ID     uint64 // of the request, 0 for none
}

// Prepare decides the removal of one object on the primary. It returns nothing
// at all if the same request was applied before. While another change of the key
// waits for its commit, it returns a channel that is closed with the outcome:
// the caller waits and asks again.
//
// Errors, in the order of the C++ master's checks: ObjectNotFound,
// ObjectHasLease unless forced, ReplicaNotReady while a replica is in progress;
// before them Unavailable while too many numbered removals are remembered.
func Prepare(store *metadata.Store, r Request, now metadata.Time) (*Event, <-chan struct{}, error) {
	e, wait := store.LockSettled(r.Tenant, r.Key)
	defer e.Unlock()
	applied, full := store.Applied(r.ID)
	switch {
	case applied || full != nil:
		return nil, nil, full
	case wait != nil:
		return nil, wait, nil
	case !e.Exists():
		return nil, nil, errs.ObjectNotFound
	}
	if err := e.Removable(r.Force, now); err != nil {
		return nil, nil, err
	}
	removal := e.BeginRemoval(now)
	removal.Request = r.ID
	return Of(Remove, removal), nil, nil
}

// Of returns the event of one removal that is prepared.
func Of(t Type, r *metadata.Removal) *Event {
	e := &struct { // one allocation in place of two
		Event
		one [1]*metadata.Removal
	}{Event: Event{Type: t}, one: [1]*metadata.Removal{r}}
	e.Removals = e.one[:]
	return &e.Event
}
