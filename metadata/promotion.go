package metadata

import (
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/segment"
)

// A Promotion asks for a copy of an object from the SSD of a client to memory.
type Promotion struct {
	Tenant    string
	Key       string
	ID        ObjectID         // the object that the client was told to promote
	Client    segment.ClientID // the owner of the SSD
	Size      uint64           // bytes
	Preferred []string         // names of segments
	Metered   bool             // as in a Transfer
}

// PreparePromotion decides the start of a promotion. That is a transfer: nobody reads the
// range that it reserves before its client has said that the bytes are there.
//
// Errors: SegmentNotFound if the client has no SSD mounted; ObjectNotFound, also when the
// key was put again since; ReplicaNotReady for an object that is in memory, or about to
// be; ReplicaNotFound for one without a copy on the SSD; InvalidParams for another size,
// and for an object with MaxReplicas; NoAvailableHandle without room; those of the
// tenant's quota, as a *NoRoomError too; Unavailable while a node of the cluster does not
// know promotions.
func (s *Store) PreparePromotion(p *Promotion) (*StartTransfer, <-chan struct{}, error) {
	const op = "PromotionAllocStart"
	if s.Rules() < promotionRules {
		return nil, nil, errs.New(errs.Unavailable, op, "nodes of an older version do not know promotions; upgrade them")
	}
	disk, ok := s.FindLocalDisk(p.Client)
	if !ok {
		return nil, nil, errs.New(errs.SegmentNotFound, op, "client %v has no SSD mounted; mount it again", p.Client)
	}
	sh := &s.shards[shardOf(p.Tenant, p.Key)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o, wait := s.settled(sh, p.Tenant, p.Key)
	if wait != nil {
		return nil, wait, nil
	}
	if err := o.promotable(p, disk.Number); err != nil {
		return nil, nil, err
	}
	e := &StartTransfer{Ref: o.name(), Client: p.Client, Promotion: true, Source: disk.Number, from: o.descriptor(o.replicaOn(disk.Number)), size: o.size}
	if p.Metered {
		var err error
		if e.charge, err = s.admit(p.Tenant, o.size, 1, 0); err != nil {
			return nil, nil, o.noRoom(op, 1, err)
		}
	}
	var buf [1]segment.Allocation
	placed := s.pool.Allocate(buf[:0], segment.Request{Size: o.size, Replicas: 1, Preferred: p.Preferred})
	if len(placed) == 0 {
		e.charge.release()
		return nil, nil, o.noRoom(op, 1, errs.NoAvailableHandle)
	}
	at := placed[0]
	e.Targets = []Placement{{Segment: at.Segment.Number, Range: at.Range, held: at.Segment}}
	e.objectChange = sh.hold(o)
	return e, nil, nil
}

// promotable returns why an object cannot be promoted from an SSD, or nil.
func (o object) promotable(p *Promotion, number segment.Number) error {
	if o.none() || o.id != p.ID {
		return errs.ObjectNotFound
	}
	switch v := o.survey(); {
	case v.processing > 0, v.completeMemory > 0, o.transfer() != nil:
		return errs.ReplicaNotReady
	case o.replicaOn(number) == nil:
		return errs.ReplicaNotFound
	case p.Size != o.size:
		return errs.New(errs.InvalidParams, "PromotionAllocStart", "the object has %d bytes, not %d", o.size, p.Size)
	case o.replicaCount() >= MaxReplicas:
		return errs.New(errs.InvalidParams, "PromotionAllocStart", "the object has %d replicas, and can have no more", o.replicaCount())
	}
	return nil
}
