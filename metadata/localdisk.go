package metadata

import (
	"slices"
	"unique"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A client's SSD is a mount without memory: it has a number, as a segment has, and takes
// its LOCAL_DISK replicas along when it is unmounted. Which file holds an object is the
// client's own business.
//
// Which objects wait to be copied is no part of the state: the primary keeps that outside
// of the store.

// localDisks are the mounted SSDs. Guarded by Store.applyMu.
type localDisks struct {
	byClient map[segment.ClientID]*segmentState
	byNumber map[segment.Number]*segmentState
	capacity uint64 // bytes of all whose capacity is known
}

// mountLocalDisk makes a client's SSD known, with nothing on it.
func (s *Store) mountLocalDisk(client segment.ClientID, number segment.Number, offloading, wipe bool, capacity uint64) {
	p := s.expectedDisks[number]
	if p == nil {
		p = new(segmentState)
	}
	delete(s.expectedDisks, number)
	p.Segment = &segment.Segment{Spec: segment.Spec{Client: client}, Number: number}
	p.offloading, p.wipe = offloading, wipe
	p.ssdCapacity.Store(capacity)
	s.localDisks.capacity += capacity
	s.localDisks.byClient[client], s.localDisks.byNumber[number] = p, p
	s.ssds.Store(client, p)
	s.addTerm(p, p.localDiskTerm())
}

func (s *Store) setOffloading(p *segmentState, offloading bool, capacity uint64) {
	s.addTerm(p, -p.localDiskTerm())
	p.offloading = offloading
	s.localDisks.capacity += capacity - p.ssdCapacity.Swap(capacity)
	s.addTerm(p, p.localDiskTerm())
}

// MountLocalDisk makes a client's SSD known. One that is mounted stays, with
// the new flag.
type MountLocalDisk struct {
	objectEvent

	Client     segment.ClientID
	Offloading bool // the client takes objects to copy
}

// Apply mounts the SSD under the next number.
func (e *MountLocalDisk) Apply(tx *Tx) error {
	s := tx.s
	if p := s.localDisks.byClient[e.Client]; p != nil {
		s.setOffloading(p, e.Offloading, p.ssdCapacity.Load())
		return nil
	}
	s.lastNumber++
	s.mountLocalDisk(e.Client, s.lastNumber, e.Offloading, false, 0)
	return nil
}

// Code encodes or decodes the fields.
func (e *MountLocalDisk) Code(c *binenc.Coder) {
	c.Tag(typeMountLocalDisk)
	c.CodeFixed(e.Client[:])
	c.CodeBool(&e.Offloading)
}

// SetOffloading says whether the owner of an SSD takes objects to copy, and for how
// many bytes it has room.
type SetOffloading struct {
	objectEvent

	Number     segment.Number
	Offloading bool
	Capacity   uint64 // bytes; 0 if not known, and before capacityRules
}

// Apply sets both. It answers SegmentNotFound if the SSD is gone.
func (e *SetOffloading) Apply(tx *Tx) error {
	p := tx.s.localDisks.byNumber[e.Number]
	if p == nil {
		return errs.SegmentNotFound
	}
	tx.s.setOffloading(p, e.Offloading, e.Capacity)
	return nil
}

// Code encodes or decodes the fields.
func (e *SetOffloading) Code(c *binenc.Coder) {
	c.Tag(typeSetOffloading)
	codeNumber(c, &e.Number)
	c.CodeBool(&e.Offloading)
	if c.Decoding() && c.Len() == 0 || !c.Decoding() && e.Capacity == 0 {
		return // the encoding before capacityRules
	}
	if binenc.CodeUvarint(c, &e.Capacity); e.Capacity == 0 {
		c.Fail("a capacity of 0 bytes")
	}
}

// UnmountLocalDisk takes a client's SSD away, with every replica on it, as
// Tx.Unmount does for a segment.
type UnmountLocalDisk struct {
	objectEvent

	Number segment.Number
}

// Apply unmounts the SSD. It answers SegmentNotFound if it is gone.
func (e *UnmountLocalDisk) Apply(tx *Tx) error {
	s := tx.s
	p := s.localDisks.byNumber[e.Number]
	if p == nil {
		return errs.SegmentNotFound
	}
	s.unmountLocalDisk(p)
	return nil
}

func (s *Store) unmountLocalDisk(p *segmentState) {
	delete(s.localDisks.byNumber, p.Number)
	delete(s.localDisks.byClient, p.Client)
	s.ssds.Delete(p.Client)
	s.localDisks.capacity -= p.ssdCapacity.Load()
	s.dropShare(p)
}

// Code encodes or decodes the fields.
func (e *UnmountLocalDisk) Code(c *binenc.Coder) {
	c.Tag(typeUnmountDisk)
	codeNumber(c, &e.Number)
}

// AddLocalDisk adds a complete replica on a client's SSD to an object, or moves
// the one that is there to another endpoint.
type AddLocalDisk struct {
	objectChange
	Ref
	Number   segment.Number // of the SSD's mount
	Endpoint string         // where the client is reached
}

// Apply adds the replica. It answers SegmentNotFound if the SSD is gone,
// ObjectNotFound if the object is gone, ReplicaNotReady if it has nothing
// complete that could have been copied, and InvalidParams if it has
// MaxReplicas such replicas.
func (e *AddLocalDisk) Apply(tx *Tx) (answer error) {
	err := tx.onObject(e.Ref, e.pending, func(_ *shard, o object) {
		p := tx.s.localDisks.byNumber[e.Number]
		if p == nil {
			answer = errs.SegmentNotFound
			return
		}
		if answer = o.takesCopyOn(p.Number, p.Client, tx.s.inForce.Load().rules > FirstRules); answer != nil {
			return
		}
		tx.s.subtractTerms(o)
		if r := o.replicaOn(e.Number); r != nil {
			o.reach(e.Number, e.Endpoint)
		} else {
			r := replica{segment: p, kind: LocalDisk, status: Complete, endpoint: unique.Make(e.Endpoint)}
			o.addReplica(r)
			tx.s.count(o, &r, 1)
		}
		tx.s.addTerms(o)
		tx.s.setGoes(o, false)
	})
	if err != nil {
		return err
	}
	return answer
}

// Code encodes or decodes the fields.
func (e *AddLocalDisk) Code(c *binenc.Coder) {
	c.Tag(typeAddLocalDisk)
	codeRef(c, &e.Ref)
	codeNumber(c, &e.Number)
	c.CodeString(&e.Endpoint, MaxNameBytes)
}

// replicaOn returns the object's replica on an SSD, nil if it has none there.
func (o object) replicaOn(number segment.Number) *replica {
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.kind == LocalDisk && r.segment.Number == number && r.exists() {
			return &r
		}
	}
	return nil
}

// takesCopyOn returns why an object cannot have a replica on an SSD, or nil. The
// copy must have been made from a replica that is still there, in the memory of
// the SSD's owner: what was evicted may have been overwritten before it was
// copied. FirstRules did not ask for that.
func (o object) takesCopyOn(number segment.Number, owner segment.ClientID, fromMemory bool) error {
	copies, source := 0, !fromMemory
	for i := range o.replicaCount() {
		switch r := o.replicaAt(i); {
		case r.kind == LocalDisk && r.exists():
			copies++
			source = source || r.segment.Number == number // it has the copy
		case r.kind == Memory && r.readable() && r.segment.Client == owner:
			source = true
		}
	}
	switch {
	case o.survey().complete == 0:
		return errs.ReplicaNotReady
	case copies >= MaxReplicas && o.replicaOn(number) == nil:
		return errs.New(errs.InvalidParams, "NotifyOffloadSuccess", "the object has copies on %d SSDs, and can have no more", copies)
	case !source:
		return errs.ReplicaNotReady
	}
	return nil
}

// PrepareMountLocalDisk decides the mounting of a client's SSD: nothing if it is already
// mounted with this flag. Mounts must be decided one at a time, each after the one before
// was applied; so must PrepareSetOffloading and PrepareSetCapacity.
func (s *Store) PrepareMountLocalDisk(client segment.ClientID, offloading bool) *MountLocalDisk {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if p := s.localDisks.byClient[client]; p != nil && p.offloading == offloading {
		return nil
	}
	return &MountLocalDisk{Client: client, Offloading: offloading}
}

// PrepareSetOffloading decides a change of an SSD's flag: nothing if it is so
// already. It fails with SegmentNotFound if the client has no SSD mounted.
func (s *Store) PrepareSetOffloading(client segment.ClientID, offloading bool) (*SetOffloading, error) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	p := s.localDisks.byClient[client]
	switch {
	case p == nil:
		return nil, errs.SegmentNotFound
	case p.offloading == offloading:
		return nil, nil
	}
	return &SetOffloading{Number: p.Number, Offloading: offloading, Capacity: p.ssdCapacity.Load()}, nil
}

// PrepareSetCapacity decides a change of an SSD's capacity, in bytes: nothing if it is
// so already, or a node of the cluster does not know capacities. It fails with
// SegmentNotFound if the client has no SSD mounted.
func (s *Store) PrepareSetCapacity(client segment.ClientID, bytes uint64) (*SetOffloading, error) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	p := s.localDisks.byClient[client]
	switch {
	case p == nil:
		return nil, errs.SegmentNotFound
	case p.ssdCapacity.Load() == bytes || s.Rules() < capacityRules:
		return nil, nil
	}
	return &SetOffloading{Number: p.Number, Offloading: p.offloading, Capacity: bytes}, nil
}

// freeOnSSD returns the free part of a client's SSD, from 0 to 1; 1 if it has none, or
// its capacity is not known.
func (s *Store) freeOnSSD(client segment.ClientID) float64 {
	p, ok := s.ssds.Load(client)
	if !ok {
		return 1
	}
	ssd := p.(*segmentState)
	capacity := ssd.ssdCapacity.Load()
	if capacity == 0 {
		return 1
	}
	return max(0, 1-float64(ssd.ssdUsed.Load())/float64(capacity))
}

// A LocalDiskInfo is what the state says of a client's SSD.
type LocalDiskInfo struct {
	Client     segment.ClientID
	Number     segment.Number
	Offloading bool   // the client takes objects to copy
	Wipe       bool   // the client is to delete all files on it
	Capacity   uint64 // bytes; 0 if not known
	Used       uint64 // bytes of the objects on it
}

// FindLocalDisk returns a client's SSD, false if it has none mounted.
func (s *Store) FindLocalDisk(client segment.ClientID) (LocalDiskInfo, bool) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	p := s.localDisks.byClient[client]
	if p == nil {
		return LocalDiskInfo{}, false
	}
	return p.localDiskInfo(), true
}

// LocalDisks returns the mounted SSDs in the order in which they were mounted.
func (s *Store) LocalDisks() []LocalDiskInfo {
	list := s.localDisksInAnyOrder()
	slices.SortFunc(list, func(a, b LocalDiskInfo) int { return int(a.Number) - int(b.Number) })
	return list
}

func (s *Store) localDisksInAnyOrder() []LocalDiskInfo {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	list := make([]LocalDiskInfo, 0, len(s.localDisks.byNumber))
	for _, p := range s.localDisks.byNumber {
		list = append(list, p.localDiskInfo())
	}
	return list
}

// hasLocalDisks reports whether any SSD is mounted.
func (s *Store) hasLocalDisks() bool {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return len(s.localDisks.byNumber) > 0
}

func (p *segmentState) localDiskInfo() LocalDiskInfo {
	return LocalDiskInfo{Client: p.Client, Number: p.Number, Offloading: p.offloading, Wipe: p.wipe, Capacity: p.ssdCapacity.Load(), Used: uint64(max(0, p.ssdUsed.Load()))}
}
