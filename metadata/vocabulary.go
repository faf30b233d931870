// Package metadata is the state machine of an object store's master: which
// object owns which bytes of which segment, until when readers may rely on it,
// and what may be evicted.
//
// A Store changes only by applying commits, one after the other, with the time
// as part of the commit. The primary decides changes (Prepare...), has them
// committed elsewhere and applies them; a follower applies the same commits.
// At the same sequence every Store has the same Digest.
//
// It is the pure core: it starts no goroutine, does no I/O, writes no logs and
// reads no clock. No pointer to its internals leaves the package.
package metadata

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// ShardCount is the number of shards, as in the C++ master.
const ShardCount = 1024

// Limits of what the state may hold; beyond them a change is refused before it
// is prepared.
const (
	MaxKeyBytes    = 64 << 10  // bytes of a key
	MaxTenantBytes = 256       // bytes of a tenant's name
	MaxNameBytes   = 1024      // bytes of a segment's name, endpoint, protocol or host id
	MaxReplicas    = 64        // memory replicas of one object; as many on SSDs
	MaxPathBytes   = 16 << 10  // bytes of a disk replica's path; no file system has longer ones
	MaxChangeBytes = 128 << 10 // bytes of one encoded change (design section 4)
)

// DefaultTenant owns every object while multi-tenancy is off.
const DefaultTenant = "default"

// Time is cluster time in milliseconds. It runs only while there is a primary
// and has no relation to any wall clock.
type Time int64

// Add returns the time d later, rounded down to whole milliseconds.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

// Sub returns how long after u it is.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Millisecond }

// NewClock returns the cluster clock of one term, for its primary: it shows
// start now, the time of the last commit, and runs on at the rate of elapsed,
// which returns the time since some fixed moment.
func NewClock(elapsed func() time.Duration, start Time) func() Time {
	began := elapsed()
	return func() Time { return start.Add(elapsed() - began) }
}

// Seq numbers commits, from 1, without gaps, over all terms.
type Seq uint64

// Term numbers the times during which one node is primary, from 1. It must fit
// 20 bits.
type Term uint32

func (t Term) validate() error {
	if t == 0 {
		return errors.New("term 0: terms begin at 1")
	}
	return nil
}

// MaxTerm is the last term an ObjectID can carry.
const MaxTerm = 1<<(64-counterBits) - 1

// ObjectID names one put of one key for ever. It is the version of the key:
// deletions and renewals name the id they mean, so that a late one never hits
// a successor. Ids grow in the order in which they are given.
type ObjectID uint64

const counterBits = 44

// MaxCounter is the highest counter of an object id.
const MaxCounter = 1<<counterBits - 1

// NewObjectID returns the id with a term and a counter of at most 44 bits.
func NewObjectID(term Term, counter uint64) ObjectID {
	return ObjectID(uint64(term)<<counterBits | counter&(MaxCounter))
}

// Term returns the term in which the id was given.
func (id ObjectID) Term() Term { return Term(id >> counterBits) }

func (id ObjectID) String() string { return strconv.FormatUint(uint64(id), 10) }

// MarshalText makes JSON show ids as strings: readers of JSON lose digits of
// large numbers.
func (id ObjectID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// A Ref finds an object without its key: the shard it is in, and its id.
type Ref struct {
	Shard uint16
	ID    ObjectID
}

// A Digest is a sum over everything in the state. Equal states have equal
// digests; different states have, for all practical purposes, different ones.
type Digest uint64

func (d Digest) String() string { return fmt.Sprintf("%016x", uint64(d)) }

// ReplicaKind says where a replica's bytes are.
type ReplicaKind uint8

// The kinds of replicas.
const (
	Memory    ReplicaKind = 1 // in a mounted segment
	Disk      ReplicaKind = 2 // in a file under the shared root_fs_dir
	LocalDisk ReplicaKind = 3 // on a client's own SSD
)

func (k ReplicaKind) String() string { return nameOf(k, "MEMORY", "DISK", "LOCAL_DISK") }

// nameOf returns the name of a value; the first one is that of 1.
func nameOf[T ~uint8](v T, names ...string) string {
	if v < 1 || int(v) > len(names) {
		return fmt.Sprintf("%T(%d)", v, uint8(v))
	}
	return names[v-1]
}

// Selector chooses replicas of an object by kind.
type Selector uint8

// The selectors. SelectAll is the C++ master's ALL: memory replicas, and those of tiers
// that this master does not have. It leaves out Disk and LocalDisk.
const (
	SelectMemory Selector = iota + 1
	SelectDisk
	SelectLocalDisk
	SelectAll
)

func (s Selector) String() string { return nameOf(s, "MEMORY", "DISK", "LOCAL_DISK", "ALL") }

func (s Selector) selects(k ReplicaKind) bool {
	switch s {
	case SelectMemory, SelectAll:
		return k == Memory
	case SelectDisk:
		return k == Disk
	case SelectLocalDisk:
		return k == LocalDisk
	}
	return false
}

// ReplicaStatus says whether a replica can be read.
type ReplicaStatus uint8

// The states of a replica. Removed replicas are not kept.
const (
	Processing ReplicaStatus = 1 // reserved; its writer is at work
	Complete   ReplicaStatus = 2 // readable
)

func (s ReplicaStatus) String() string { return nameOf(s, "PROCESSING", "COMPLETE") }

// A Descriptor tells a client where a replica's bytes are. It is a copy.
type Descriptor struct {
	Kind     ReplicaKind
	Status   ReplicaStatus
	Segment  string           // the segment's name
	Endpoint string           // where the owner of the segment or SSD is reached
	Protocol string           // transfer protocol of the segment
	Address  uint64           // of the first byte, in the owner's memory
	Size     uint64           // bytes of the object
	Path     string           // of the file, for Disk
	Client   segment.ClientID // the owner of the SSD, for LocalDisk
}

// An Object is a copy of what the state says of one object.
type Object struct {
	Tenant    string
	Key       string
	ID        ObjectID
	Client    segment.ClientID // the writer
	Size      uint64           // bytes
	Replicas  []Descriptor
	Checksum  *uint64 // as given at PutEnd, nil for none
	DataType  uint8   // as given at PutStart
	Group     string  // as given at PutStart
	HardPin   bool
	SoftPin   bool // pinned softly now
	PutStart  Time
	LeaseEnds Time // of it or its group: journaled, or granted since if later
}

// Params are the times and rules in force during a term. They stand in the
// term's first entry, so that nodes with other settings compute the same.
type Params struct {
	LeaseTTL       time.Duration // what a read grants; whole milliseconds
	DiscardTimeout time.Duration // after it another put may replace a reservation
	ReleaseTimeout time.Duration // after it an abandoned reservation's memory is reused
	LeaseOnPutEnd  bool          // expiry policy: a finished put starts with a full lease
}

// HoldTime returns how long the master itself honours a lease: the TTL that
// the reader was told, one part in 500 for clocks that run at different rates
// (each may be off by 1/1000), and the rounding of cluster time.
func (p Params) HoldTime() time.Duration {
	return (p.LeaseTTL + p.LeaseTTL/500).Truncate(time.Millisecond) + 2*time.Millisecond
}

// maxParam keeps sums of a time and a parameter far from overflow.
const maxParam = 100 * 365 * 24 * time.Hour

// Validate returns an error that names the parameter that is invalid.
func (p Params) Validate() error {
	for what, d := range map[string]time.Duration{"lease TTL": p.LeaseTTL, "discard timeout": p.DiscardTimeout, "release timeout": p.ReleaseTimeout} {
		if d%time.Millisecond != 0 {
			return fmt.Errorf("%s %v is not whole milliseconds, which the journal has", what, d)
		}
	}
	switch {
	case p.LeaseTTL < time.Millisecond:
		return fmt.Errorf("lease TTL %v is below 1 ms", p.LeaseTTL)
	case p.DiscardTimeout < time.Millisecond:
		return fmt.Errorf("discard timeout %v is below 1 ms", p.DiscardTimeout)
	case p.ReleaseTimeout < p.DiscardTimeout:
		return fmt.Errorf("release timeout %v is below the discard timeout %v", p.ReleaseTimeout, p.DiscardTimeout)
	case p.LeaseTTL > maxParam || p.ReleaseTimeout > maxParam:
		return fmt.Errorf("lease TTL %v or release timeout %v is above %v", p.LeaseTTL, p.ReleaseTimeout, maxParam)
	}
	return nil
}

// Stream is one of the three kinds of records a commit is made of.
type Stream uint8

// The streams, in the order in which every node applies them inside a commit.
const (
	LeaseRenewals Stream = iota
	ObjectEvents
	DeleteEvents
	StreamCount
)

func (s Stream) String() string {
	return [StreamCount]string{"lease_renewals", "object_events", "delete_events"}[s]
}

// A Change is one event: the unit that is journaled, applied and answered.
type Change interface {
	// Stream says which record of a commit the change belongs to.
	Stream() Stream
	// Code encodes or decodes the fields, in this order. The encoding has at most
	// MaxChangeBytes.
	Code(c *binenc.Coder)
	// Apply makes the change. It returns the answer for the caller who asked
	// for it: nil, or the kind of error that the state at this sequence gives.
	// Such an answer changes nothing, on every node.
	Apply(tx *Tx) error
	// Abort takes back what the primary prepared for a change that will not be
	// committed by this node. It is called at most once, and not after Apply.
	Abort(s *Store)
}

// objectEvent is what the changes in ObjectEvents have in common.
type objectEvent struct{}

func (objectEvent) Stream() Stream { return ObjectEvents }

// Abort has nothing to take back.
func (objectEvent) Abort(*Store) {}

// objectChange is what the changes of a single object have in common. Until its commit,
// readers of the object and other changes of its key wait.
type objectChange struct{ pending *Pending }

func (objectChange) Stream() Stream { return ObjectEvents }

// Abort ends the waiting.
func (c objectChange) Abort(*Store) { c.pending.resolve() }

// A Commit is a run of changes that became durable together.
type Commit struct {
	Seq     Seq
	Term    Term
	Time    Time     // 0 if not known, as it may be for a commit without changes
	Changes []Change // in the order in which they were queued
}
