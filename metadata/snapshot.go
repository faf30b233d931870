package metadata

import (
	"slices"

	"github.com/understudy-store/understudy/internal/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A snapshot is a stream of parts: the segments, then each shard, then all the
// rest. Each part is copied under the store's apply lock with the sequence it
// stands at, which grows from part to part, as commits go on meanwhile. Only
// journaled state goes out: what the primary holds beyond it is no follower's
// business.

// SnapshotParts is how many parts a snapshot has.
const SnapshotParts = ShardCount + 2

// AppendSnapshotPart appends the encoding of a part, 0 to SnapshotParts-1, and
// returns the position it stands at. Parts must be taken in order.
func (s *Store) AppendSnapshotPart(b []byte, part int) ([]byte, Position) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	b = binenc.AppendUvarint(b, uint64(part))
	b = binenc.AppendUvarint(b, uint64(s.seq))
	switch part {
	case 0:
		b = s.appendSegments(b)
	case SnapshotParts - 1:
		b = s.appendRest(b)
	default:
		b = s.appendShard(b, &s.shards[part-1])
	}
	return b, s.position()
}

func (s *Store) appendSegments(b []byte) []byte {
	b = binenc.AppendVarint(b, int64(s.now))
	b = binenc.AppendUvarint(b, uint64(s.lastNumber))
	b = binenc.AppendUvarint(b, uint64(len(s.segments)))
	for number, p := range s.segments {
		b = binenc.AppendUvarint(b, uint64(number))
		b = appendSpec(b, p.Spec)
	}
	return s.appendLocalDisks(b)
}

// appendLocalDisks appends the SSDs; nothing at all if there are none, so that
// a state without any is what it was before there could be one.
func (s *Store) appendLocalDisks(b []byte) []byte {
	if len(s.localDisks.byNumber) == 0 {
		return b
	}
	b = binenc.AppendUvarint(b, uint64(len(s.localDisks.byNumber)))
	for number, p := range s.localDisks.byNumber {
		b = binenc.AppendUvarint(b, uint64(number))
		b = append(b, p.Client[:]...)
		b = binenc.AppendBool(b, p.offloading)
	}
	return b
}

func (s *Store) appendShard(b []byte, sh *shard) []byte {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := 0
	for o := range sh.byKey.all() {
		if o.exists() {
			n++
		}
	}
	b = binenc.AppendUvarint(b, uint64(n))
	for o := range sh.byKey.all() {
		if o.exists() {
			b = s.appendObject(b, o)
		}
	}
	return b
}

// Bits that say which optional parts of an object follow.
const (
	objectHardPin = 1 << iota
	objectSoftPin
	objectRequest
	objectExtra
	objectChecksum
	objectKnown = 1<<iota - 1
)

func (s *Store) appendObject(b []byte, o *object) []byte {
	parts := optional(o.has(flagHardPin), objectHardPin) | optional(o.soft != 0, objectSoftPin) |
		optional(o.request != 0, objectRequest) | optional(o.extra != nil, objectExtra)
	if o.extra != nil && o.extra.hasChecksum {
		parts |= objectChecksum
	}
	b = append(b, parts)
	b = appendTenant(b, s.tenants.name(o.tenant))
	b = binenc.AppendString(b, o.key)
	b = binenc.AppendUvarint(b, uint64(o.id))
	b = append(b, o.client[:]...)
	b = binenc.AppendUvarint(b, o.size)
	b = binenc.AppendVarint(b, int64(o.putStart))
	b = binenc.AppendVarint(b, int64(o.deadline))
	if o.soft != 0 {
		b = binenc.AppendVarint(b, int64(o.soft))
	}
	if o.request != 0 {
		b = binenc.AppendUint64(b, o.request)
	}
	if x := o.extra; x != nil {
		b = binenc.AppendString(b, x.diskPath)
		b = binenc.AppendString(b, x.group)
		b = append(b, x.dataType)
		if x.hasChecksum {
			b = binenc.AppendUint64(b, x.checksum)
		}
	}
	return appendReplicas(b, o)
}

func appendReplicas(b []byte, o *object) []byte {
	b = binenc.AppendUvarint(b, uint64(o.survey().existing))
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		if !r.exists() {
			continue
		}
		b = append(b, byte(r.kind), byte(r.status))
		switch r.kind {
		case Memory:
			b = appendPlacement(b, r.segment.Number, r.rng)
		case LocalDisk:
			b = binenc.AppendUvarint(b, uint64(r.segment.Number))
			b = binenc.AppendString(b, r.endpoint.Value())
		case Disk: // its path stands with the object
		}
	}
	return b
}

func (s *Store) appendRest(b []byte) []byte {
	term := s.inForce.Load()
	b = binenc.AppendUvarint(b, uint64(term.term))
	b = appendParams(b, term.Params)
	b = binenc.AppendVarint(b, int64(term.guardUntil))
	b = binenc.AppendBool(b, term.startedEmpty)
	b = binenc.AppendUvarint(b, uint64(s.quarantine.live()))
	s.quarantine.ranges.Scan(func(q quarantined) bool {
		if !q.segment.Gone() {
			b = appendPlacement(b, q.segment.Number, q.rng)
			b = binenc.AppendVarint(b, int64(q.until))
		}
		return true
	})
	requests := s.requests.all()
	b = binenc.AppendUvarint(b, uint64(len(requests)))
	for _, request := range requests {
		b = binenc.AppendUint64(b, request)
	}
	b = binenc.AppendUvarint(b, uint64(s.lastNumber))
	b = appendNumbers(b, s.numbers())
	return binenc.AppendUint64(b, uint64(s.digest))
}

// numbers returns the mounted segments' numbers in order.
func (s *Store) numbers() []segment.Number {
	list := make([]segment.Number, 0, len(s.segments))
	for number := range s.segments {
		list = append(list, number)
	}
	slices.Sort(list)
	return list
}

// live returns how many quarantined ranges are on mounted segments.
func (q *quarantine) live() int {
	n := 0
	q.ranges.Scan(func(r quarantined) bool {
		if !r.segment.Gone() {
			n++
		}
		return true
	})
	return n
}
