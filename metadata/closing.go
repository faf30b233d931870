package metadata

import (
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// CloseSegment makes a segment take no new objects. Those that it has stay readable until
// the primary unmounts it, at Until.
type CloseSegment struct {
	objectEvent

	Number segment.Number
	Until  Time
}

// Apply closes the segment. One that is closed keeps its time, unless it is drained. It answers
// SegmentNotFound if the segment is gone.
func (e *CloseSegment) Apply(tx *Tx) error {
	p := tx.s.segments[e.Number]
	if p == nil {
		return errs.SegmentNotFound
	}
	if p.closes() == 0 || p.drains() {
		tx.s.closeSegment(p, e.Until)
	}
	return nil
}

// closeSegment closes a segment until a time, or opens it for 0.
func (s *Store) closeSegment(p *segmentState, until Time) {
	s.addTerm(p, -p.digestTerm())
	p.closing.Store(int64(until))
	s.setOpen(p, until == 0)
	s.addTerm(p, p.digestTerm())
	if s.pool.Remove(p.Segment); until == 0 {
		s.pool.Add(p.Segment)
	}
}

// Code encodes or decodes the fields.
func (e *CloseSegment) Code(c *binenc.Coder) {
	c.Tag(typeCloseSegment)
	codeNumber(c, &e.Number)
	binenc.CodeVarint(c, &e.Until)
	if e.Until <= 0 {
		c.Fail("a segment that is closed until %d", e.Until)
	}
}

// PrepareClose decides the closing of a client's segment. There is nothing to
// change if it is closed. Errors: SegmentNotFound if the client has no segment,
// InvalidParams if this one is not among them, Unavailable while a node of the
// cluster does not know closed segments.
func (s *Store) PrepareClose(client segment.ClientID, id segment.ID, until Time) (*CloseSegment, error) {
	const op = "GracefulUnmountSegment"
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	p := s.mounts.byID[id]
	switch {
	case len(s.mounts.byClient[client]) == 0:
		return nil, errs.New(errs.SegmentNotFound, op, "client %v has no segment mounted", client)
	case p == nil || p.Client != client:
		return nil, errs.New(errs.InvalidParams, op, "client %v has not mounted segment %v", client, id)
	case p.closes() != 0 && !p.drains():
		return nil, nil
	case s.Rules() < closingRules:
		return nil, errs.New(errs.Unavailable, op, "nodes of an older version do not know closed segments; upgrade them")
	}
	return &CloseSegment{Number: p.Number, Until: max(until, 1)}, nil
}

// Closed reports whether a segment is mounted and closed, and whether a drain closed it:
// then it is not unmounted.
func (s *Store) Closed(id segment.ID) (closed, drains bool) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	p := s.mounts.byID[id]
	return p != nil && p.closes() != 0, p != nil && p.drains()
}

// SegmentsToUnmount returns, in order, the numbers of closed segments whose grace period
// is over.
func (s *Store) SegmentsToUnmount(now Time) (numbers []segment.Number) {
	for p := range s.mounted().Scan {
		if until := p.closes(); until != 0 && until <= now {
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// WipeDisks asks the owners of all mounted SSDs to delete all files there, as all objects
// were removed. With a number it records that one owner is doing so: its copies are gone,
// and its SSD is mounted anew with nothing on it.
type WipeDisks struct {
	objectEvent

	Number segment.Number // 0 for all
}

// Apply changes the SSDs. It answers SegmentNotFound if the one that is named is
// gone.
func (e *WipeDisks) Apply(tx *Tx) error {
	s := tx.s
	if e.Number == 0 {
		for _, p := range s.localDisks.byNumber {
			s.addTerm(p, -p.localDiskTerm())
			p.wipe = true
			s.addTerm(p, p.localDiskTerm())
		}
		return nil
	}
	p := s.localDisks.byNumber[e.Number]
	if p == nil {
		return errs.SegmentNotFound
	}
	s.unmountLocalDisk(p)
	s.lastNumber++
	s.mountLocalDisk(p.Client, s.lastNumber, p.offloading, false, p.ssdCapacity.Load())
	return nil
}

// Code encodes or decodes the fields.
func (e *WipeDisks) Code(c *binenc.Coder) {
	c.Tag(typeWipeDisks)
	codeNumber(c, &e.Number)
}

// PrepareWipe decides that the owners of all SSDs are to delete their files, after all
// objects of a tenant were removed, or of all tenants if it is empty. It changes nothing
// if no SSD is mounted, if other tenants have objects, whose files may be there, or while
// a node of the cluster does not know such marks.
func (s *Store) PrepareWipe(tenant string) *WipeDisks {
	if s.Rules() < closingRules || !s.hasLocalDisks() || tenant != "" && s.hasOthers(tenant) {
		return nil
	}
	return new(WipeDisks)
}

// hasOthers reports whether there are objects of other tenants.
func (s *Store) hasOthers(tenant string) bool {
	for i := range s.shards {
		if s.shards[i].hasOthers(s, tenant) {
			return true
		}
	}
	return false
}

func (sh *shard) hasOthers(s *Store, tenant string) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.all {
		if o.exists() && s.tenants.name(o.tenant) != tenant {
			return true
		}
	}
	return false
}
