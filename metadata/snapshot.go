package metadata

import (
	"maps"
	"slices"

	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A snapshot is a stream of parts: the segments, then each shard, then all the rest. Each
// part stands at a sequence. Shards are encoded under their own lock, and other parts that
// may be long are copied under the store's apply lock and encoded without it. Sequences grow
// from part to part, as commits go on meanwhile. Only journaled state is copied: followers
// have no use for what the primary holds beyond it.

// SnapshotParts is how many parts a snapshot has.
const SnapshotParts = ShardCount + 2

// AppendSnapshotPart appends the encoding of a part, 0 to SnapshotParts-1, and
// returns the position it stands at. Parts must be taken in order.
func (s *Store) AppendSnapshotPart(b []byte, part int) ([]byte, Position) {
	c := binenc.Encoder(b)
	var at Position
	switch part {
	case 0:
		at = s.encodeSegments(&c)
	case SnapshotParts - 1:
		at = s.encodeRest(&c)
	default:
		at = s.encodeShard(&c, part)
	}
	return c.Encoded(), at
}

// encodeHead begins a part. Needs applyMu.
func (s *Store) encodeHead(c *binenc.Coder, part int) {
	head := partHead{s.Rules(), uint64(part), s.seq}
	head.code(c)
}

// A partHead is what every part begins with.
type partHead struct {
	rules  Rules  // in force where the part stands, and so its format
	number uint64 // of the part
	seq    Seq    // where it stands
}

// code codes the head. A head in the format of FirstRules has no version. In later
// formats SnapshotParts, which is the number of no part, and the version stand in front.
func (h *partHead) code(c *binenc.Coder) {
	if c.Decoding() {
		h.rules = FirstRules
	}
	number := h.number
	if h.rules > FirstRules {
		number = SnapshotParts
	}
	if binenc.CodeUvarintMax(c, &number, "a part", SnapshotParts); number == SnapshotParts {
		if binenc.CodeUvarint(c, &h.rules); h.rules <= FirstRules || h.rules > NewestRules {
			c.Fail("format %d; this version reads %d to %d, upgrade this node", h.rules, FirstRules, NewestRules)
		}
		number = h.number
		binenc.CodeUvarintMax(c, &number, "a part", SnapshotParts-1)
	}
	h.number = number
	binenc.CodeUvarint(c, &h.seq)
}

// encodeSegments encodes the first part. Peers choose the names in it, so it may be large:
// encodeSegments copies the segments, without their names, and encodes them without a lock, so
// that no commit waits.
func (s *Store) encodeSegments(c *binenc.Coder) Position {
	type mounted struct {
		number segment.Number
		spec   segment.Spec
		closes Time
	}
	s.applyMu.Lock()
	s.encodeHead(c, 0)
	at, rules, now, lastNumber := s.position(), s.Rules(), s.now, s.lastNumber
	segments := make([]mounted, 0, len(s.segments))
	for number, p := range s.segments {
		segments = append(segments, mounted{number, p.Spec, p.closes()})
	}
	disks, n := binenc.Encoder(nil), len(s.localDisks.byNumber)
	for number, p := range s.localDisks.byNumber {
		capacity := p.ssdCapacity.Load()
		codeLocalDisk(&disks, rules, &number, &p.Client, &p.offloading, &p.wipe, &capacity)
	}
	s.applyMu.Unlock()

	binenc.CodeVarint(c, &now)
	codeNumber(c, &lastNumber)
	count := len(segments)
	c.CodeCount(&count, 0)
	for i := range segments {
		m := &segments[i]
		codeMounted(c, rules, &m.number, &m.spec, &m.closes)
	}
	if n == 0 && rules == FirstRules {
		return at // byte-identical to the format before there were SSDs
	}
	c.CodeCount(&n, 0)
	c.CodeFixed(disks.Encoded())
	return at
}

func codeMounted(c *binenc.Coder, rules Rules, number *segment.Number, spec *segment.Spec, closes *Time) {
	codeNumber(c, number)
	codeSpec(c, spec)
	if rules >= instanceRules {
		c.CodeUint64(&spec.Instance)
	}
	if rules >= closingRules {
		binenc.CodeVarint(c, closes)
	}
}

func codeLocalDisk(c *binenc.Coder, rules Rules, number *segment.Number, client *segment.ClientID, offloading, wipe *bool, capacity *uint64) {
	codeNumber(c, number)
	c.CodeFixed(client[:])
	c.CodeBool(offloading)
	if rules >= closingRules {
		c.CodeBool(wipe)
	}
	if rules >= capacityRules {
		binenc.CodeUvarint(c, capacity)
	}
}

// encodeShard encodes a shard. Commits that change none of its objects go on meanwhile, but
// unmounts wait: what lies on their segments would be gone in the middle of the shard.
func (s *Store) encodeShard(c *binenc.Coder, part int) Position {
	sh := &s.shards[part-1]
	sh.encoded.Lock() // so that no commit waits while another snapshot has the shard's lock
	defer sh.encoded.Unlock()
	s.applyMu.Lock()
	s.encodeHead(c, part)
	at, swept := s.position(), s.sweepLeft == 0
	s.encoding.RLock()
	defer s.encoding.RUnlock()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.applyMu.Unlock()
	n := sh.byKey.Len()
	if !swept {
		n = 0
		for o := range sh.all {
			if o.exists() {
				n++
			}
		}
	}
	c.CodeCount(&n, 0)
	for o := range sh.all {
		if o.exists() {
			tenant := s.tenants.name(o.tenant)
			d := o.borrowed()
			d.code(c, &tenant)
			o.encodeReplicas(c)
		}
	}
	return at
}

// code codes an object without its replicas.
func (d *draft) code(c *binenc.Coder, tenant *string) {
	x := d.extra
	follows := c.Optional(d.flags&flagHardPin != 0, d.soft != 0, d.request != 0, x != nil, x != nil && x.hasChecksum, x != nil && x.transfer != nil)
	codeTenant(c, tenant)
	c.CodeSharedString(&d.key, MaxKeyBytes)
	binenc.CodeUvarint(c, &d.id)
	c.CodeFixed(d.client[:])
	binenc.CodeUvarint(c, &d.size)
	binenc.CodeVarint(c, &d.putStart)
	binenc.CodeVarint(c, &d.deadline)
	if follows[0] {
		d.flags |= flagHardPin
	}
	if follows[1] {
		binenc.CodeVarint(c, &d.soft)
	}
	if follows[2] {
		c.CodeUint64(&d.request)
	}
	if !follows[3] {
		return
	}
	if x == nil {
		x = new(extra)
		d.extra = x
	}
	c.CodeString(&x.diskPath, MaxPathBytes)
	c.CodeString(&x.group, MaxNameBytes)
	c.CodeByte(&x.dataType)
	if x.hasChecksum = follows[4]; x.hasChecksum {
		c.CodeUint64(&x.checksum)
	}
	if follows[5] {
		if c.Decoding() {
			x.transfer = new(transfer)
		}
		x.transfer.code(c)
	}
}

func (o object) encodeReplicas(c *binenc.Coder) {
	n := o.survey().existing
	c.CodeCount(&n, 0)
	for i := range o.replicaCount() {
		r := o.replicaAt(i)
		if !r.exists() {
			continue
		}
		var number segment.Number
		endpoint := ""
		if r.segment != nil {
			number = r.segment.Number
		}
		if r.kind == LocalDisk {
			endpoint = r.endpoint.Value()
		}
		r.code(c, &number, &endpoint)
	}
}

// code codes a replica with the number of its segment or SSD. The path of a Disk
// replica stands with the object.
func (r *replica) code(c *binenc.Coder, number *segment.Number, endpoint *string) {
	kind, status := byte(r.kind), byte(r.status)
	c.CodeByte(&kind)
	c.CodeByte(&status)
	r.kind, r.status = ReplicaKind(kind), ReplicaStatus(status)
	switch r.kind {
	case Memory:
		codePlacement(c, number, &r.rng)
	case LocalDisk:
		codeNumber(c, number)
		c.CodeString(endpoint, MaxNameBytes)
	case Disk:
	}
}

// encodeRest encodes the last part. The quarantine may have millions of ranges.
// encodeRest copies its trees, which costs nothing (they copy on write), and encodes them
// without a lock, so that no commit waits.
func (s *Store) encodeRest(c *binenc.Coder) Position {
	rest := binenc.Encoder(nil)
	s.applyMu.Lock()
	s.encodeHead(c, SnapshotParts-1)
	s.inForce.Load().code(c)
	waiting, n := s.quarantine.copy(), s.quarantine.ranges
	numbers := slices.Sorted(maps.Keys(s.segments))
	s.encodeBehindQuarantine(&rest, numbers)
	at := s.position()
	s.applyMu.Unlock()

	ranges := make([]loadedRange, 0, n)
	for _, list := range waiting {
		list.Scan(func(q quarantined) bool {
			ranges = append(ranges, loadedRange{Placement{Segment: q.segment.Number, Range: q.rng}, q.until})
			return true
		})
	}
	binenc.CodeSlice(c, &ranges, 4, func(q *loadedRange) { q.code(c) })
	c.CodeFixed(rest.Encoded())
	return at
}

// encodeBehindQuarantine encodes what follows the quarantine in the last part. Needs
// applyMu.
func (s *Store) encodeBehindQuarantine(c *binenc.Coder, numbers []segment.Number) {
	s.requests.encode(c)
	if s.Rules() > FirstRules {
		s.codeHeld(c)
	}
	if s.Rules() >= transferRules {
		s.codeTasks(c)
		s.codeDrains(c)
	}
	if s.Rules() >= quotaRules {
		s.codeQuotas(c)
	}
	digest := uint64(s.digest)
	codeNumber(c, &s.lastNumber)
	codeNumbers(c, &numbers)
	c.CodeUint64(&digest)
}

// code codes what is in force, without what is derived from it.
func (t *termState) code(c *binenc.Coder) {
	binenc.CodeUvarintMax(c, &t.term, "a term", MaxTerm)
	codeParams(c, &t.Params)
	binenc.CodeVarint(c, &t.guardUntil)
	c.CodeBool(&t.startedEmpty)
}

// A loadedRange is a quarantined range whose segment may not be mounted yet.
type loadedRange struct {
	Placement
	until Time
}

func (q *loadedRange) code(c *binenc.Coder) {
	codePlacement(c, &q.Segment, &q.Range)
	binenc.CodeVarint(c, &q.until)
}
