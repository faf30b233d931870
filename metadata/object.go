package metadata

import (
	"unique"

	"github.com/understudy-store/understudy/internal/safeguard"
	"github.com/understudy-store/understudy/segment"
)

// A replica is where one copy of an object's bytes is.
type replica struct {
	segment  *segmentState         // for Memory; the SSD, for LocalDisk; else nil
	rng      segment.Range         // for Memory
	endpoint unique.Handle[string] // for LocalDisk: where its client is reached
	kind     ReplicaKind
	status   ReplicaStatus
}

// exists reports whether the replica is part of the state: an unmounted segment
// or SSD takes its replicas along at once, wherever they are still linked.
func (r *replica) exists() bool {
	return r.segment == nil || !r.segment.Gone() || safeguard.Off(safeguard.GoneSegments)
}

func (r *replica) readable() bool { return r.status == Complete && r.exists() }

// Flags of an object.
const (
	flagHardPin   = 1 << iota // journaled: never evicted
	flagMarked                // on its shard's list of renewed objects
	flagPending               // a prepared mutation waits for its commit
	flagVictim                // marked by the eviction pass that waits for its commit
	flagGone                  // removed from the maps
	flagLeased                // a reader got a lease from this node; for LeaseCounts
	flagAbandoned             // a reservation whose PutStart nobody was there to answer; primary only
)

// An object is one put of one key, from its reservation to its removal.
//
// Guarded by its shard's lock; journaled fields change only while a commit is
// applied (Store.applyMu), so code that holds applyMu may read them without
// the shard's lock.
type object struct {
	// What readers look at stands first, within two cache lines.
	id       ObjectID
	key      string
	tenant   tenantID
	shard    uint16
	flags    uint16
	first    replica
	extra    *extra // nil for nearly all objects
	live     Time   // not journaled: end of the lease as granted, at least deadline
	deadline Time   // journaled end of the lease; the commit of PutEnd to begin with
	size     uint64

	client   segment.ClientID
	putStart Time // of the reservation's commit
	soft     Time // soft pin: its length until the object is readable, then its end; 0 for none
	request  uint64

	// Links of the index list that the object is in; guarded by Store.applyMu.
	prev, next *object
	bucket     *bucket
}

// extra holds what few objects have.
type extra struct {
	replicas    []replica // the second and further ones
	same        *object   // the next object in the chain of a keyMap
	diskPath    string
	group       string
	dataType    uint8
	checksum    uint64
	hasChecksum bool
}

// describes reports whether there is more in it than replicas.
func (x *extra) describes() bool {
	return x.diskPath != "" || x.group != "" || x.dataType != 0 || x.hasChecksum
}

func (o *object) has(flag uint16) bool { return o.flags&flag != 0 }

// replicaCount returns how many entries replicaAt has, existing or not.
func (o *object) replicaCount() int {
	if o.extra == nil {
		return 1
	}
	return 1 + len(o.extra.replicas)
}

func (o *object) replicaAt(i int) *replica {
	if i == 0 {
		return &o.first
	}
	return &o.extra.replicas[i-1]
}

// survey counts the object's existing replicas.
type survey struct {
	existing, processing, completeMemory, complete int
}

func (o *object) survey() survey {
	var v survey
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		if !r.exists() {
			continue
		}
		v.existing++
		switch {
		case r.status == Processing:
			v.processing++
		case r.kind == Memory:
			v.completeMemory++
			v.complete++
		default:
			v.complete++
		}
	}
	return v
}

// exists reports whether the object is part of the state.
func (o *object) exists() bool {
	for i := range o.replicaCount() {
		if o.replicaAt(i).exists() {
			return true
		}
	}
	return false
}

func (o *object) readable() bool {
	for i := range o.replicaCount() {
		if o.replicaAt(i).readable() {
			return true
		}
	}
	return false
}

// setReplicas replaces the replicas; there must be at least one.
func (o *object) setReplicas(replicas []replica) {
	o.first = replicas[0]
	switch {
	case len(replicas) > 1:
		if o.extra == nil {
			o.extra = new(extra)
		}
		o.extra.replicas = replicas[1:]
	case o.extra != nil:
		o.extra.replicas = nil
	}
}

// softPinned reports whether the pin holds at a time; only readable objects
// have one.
func (o *object) softPinned(at Time) bool { return o.soft > at }
