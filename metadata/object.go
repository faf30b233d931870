package metadata

import (
	"time"
	"unique"

	"github.com/understudy-store/understudy/metadata/slab"
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
	return r.segment == nil || !r.segment.Gone()
}

func (r *replica) readable() bool { return r.status == Complete && r.exists() }

// Flags of an object.
const (
	flagHardPin   = 1 << iota // journaled: never evicted
	flagMarked                // on its shard's list of renewed objects
	flagPending               // a prepared mutation waits for its commit
	flagVictim                // marked by the eviction pass that waits for its commit
	flagLeased                // a reader got a lease from this node; for LeaseCounts
	flagAbandoned             // a reservation whose PutStart answer reached nobody; primary only
	flagGoes                  // evictable, with replicas in memory only: its key goes with them
)

// An object is one put of one key, from its reservation to its removal. The Go value is a
// handle: it must not outlive the lock under which it was found, as the record may be
// another object's afterwards. What lasts is the object's id. The zero value is no
// object.
//
// Guarded by its shard's lock; journaled fields change only while a commit is applied
// (Store.applyMu), so code that holds applyMu may read them without the shard's lock.
type object struct {
	*record
	s   *Store
	ref slab.Ref // of the record
}

// none reports whether this is no object.
func (o object) none() bool { return o.record == nil }

// extra holds what few objects have. It is on Go's heap.
type extra struct {
	replicas    []replica             // the second and further ones
	endpoint    unique.Handle[string] // of the first replica, if that is LocalDisk
	diskPath    string
	group       string
	memberOf    *group // the group of that name, while the shard has the object
	at          int    // in the group's members
	dataType    uint8
	checksum    uint64
	hasChecksum bool
	transfer    *transfer // a copy or a move that is under way, nil for none
}

// describes reports whether the extra has a disk path, a group, a data type or a
// checksum.
func (x *extra) describes() bool {
	return x.diskPath != "" || x.group != "" || x.dataType != 0 || x.hasChecksum
}

// stamp moves the journaled end of the lease to a time, unless it is later already.
// It is also the object's age for eviction.
func (o object) stamp(at Time) {
	o.deadline = max(o.deadline, at)
	o.setLive(max(o.live, o.deadline))
}

func (o object) has(flag uint16) bool { return o.flags&flag != 0 }

// replicaCount returns how many entries replicaAt has, existing or not.
func (o object) replicaCount() int {
	if x := o.extra(); x != nil {
		return 1 + len(x.replicas)
	}
	return 1
}

// replicaAt returns a copy of a replica.
func (o object) replicaAt(i int) replica {
	if i > 0 {
		return o.extra().replicas[i-1]
	}
	r := replica{segment: o.s.located.value(o.segment), rng: o.rng, kind: ReplicaKind(o.is >> 4), status: ReplicaStatus(o.is & 0xF)}
	if r.kind == LocalDisk {
		r.endpoint = o.extra().endpoint
	}
	return r
}

// complete makes a replica readable.
func (o object) complete(i int) {
	if i > 0 {
		o.extra().replicas[i-1].status = Complete
		return
	}
	o.is = o.is&^0xF | uint8(Complete)
}

// reach sets the endpoint of the replica on an SSD.
func (o object) reach(number segment.Number, endpoint string) {
	for i := range o.replicaCount() {
		switch r := o.replicaAt(i); {
		case r.kind != LocalDisk || r.segment.Number != number || !r.exists():
		case i > 0:
			o.extra().replicas[i-1].endpoint = unique.Make(endpoint)
			return
		default:
			o.extra().endpoint = unique.Make(endpoint)
			return
		}
	}
}

func (o object) addReplica(r replica) {
	x := o.needExtra()
	x.replicas = append(x.replicas, r)
}

// survey counts the object's existing replicas.
type survey struct {
	existing, processing, completeMemory, complete int
}

func (o object) survey() survey {
	var v survey
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		if !r.exists() {
			continue
		}
		v.existing++
		switch {
		case r.status == Processing, r.status == arriving:
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
func (o object) exists() bool {
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.exists() {
			return true
		}
	}
	return false
}

func (o object) readable() bool {
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.readable() {
			return true
		}
	}
	return false
}

// setReplicas replaces the replicas; there must be at least one.
func (o object) setReplicas(replicas []replica) {
	first := &replicas[0]
	before := o.segment
	o.segment, o.rng, o.is = o.s.located.take(first.segment), first.rng, uint8(first.kind)<<4|uint8(first.status)
	o.s.located.drop(before)
	x := o.extra()
	if x == nil && (len(replicas) > 1 || first.kind == LocalDisk) {
		x = o.needExtra()
	}
	if x != nil {
		x.endpoint = first.endpoint
		x.replicas = append([]replica(nil), replicas[1:]...) // a copy, so that callers may use theirs again
	}
}

// softPinned reports whether the pin holds at a time; only readable objects
// have one.
func (o object) softPinned(at Time) bool { return o.soft() > at }

// softPinLeft returns how long the pin still holds at a time, or its whole length if it
// has not begun.
func (o object) softPinLeft(at Time) time.Duration {
	if o.deadline == 0 {
		return o.soft().Sub(0)
	}
	return max(0, o.soft().Sub(at))
}

// group returns the name of the object's group, empty for none.
func (o object) group() string {
	if x := o.extra(); x != nil {
		return x.group
	}
	return ""
}
