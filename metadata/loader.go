package metadata

import (
	"errors"
	"fmt"
	"slices"
	"unique"

	"github.com/understudy-store/understudy/internal/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A Loader builds a store from a snapshot and the commits that followed its
// beginning. Parts come first, all of them and in order; then commits from the
// one behind Start up to End bring the parts to one sequence, and Finish
// checks the result. Until then the store answers nobody.
type Loader struct {
	s      *Store
	next   int // part expected next
	start  Seq
	end    Seq
	digest Digest           // of the state at end
	number segment.Number   // last number given at end
	alive  []segment.Number // mounted at end

	// Quarantine at end; its segments may be mounted by the commits up to there.
	quarantine []loadedRange
}

type loadedRange struct {
	Placement
	until Time
}

// NewLoader returns a loader of a store with the given options.
func NewLoader(opts Options) *Loader {
	s := New(opts)
	s.loading = true
	s.expected = make(map[segment.Number]*segmentState)
	s.expectedDisks = make(map[segment.Number]*segmentState)
	return &Loader{s: s}
}

// ErrIncomplete is returned for a snapshot that ended before its last part.
var ErrIncomplete = errors.New("the snapshot is incomplete")

// Add takes the next part.
func (l *Loader) Add(part []byte) error {
	r := binenc.NewReader(part)
	number := r.UvarintMax("a part", SnapshotParts-1)
	seq := Seq(r.Uvarint())
	if r.Err() == nil && number != uint64(l.next) {
		return fmt.Errorf("snapshot part %d where part %d was expected", number, l.next)
	}
	if r.Err() == nil && seq < l.end {
		return fmt.Errorf("snapshot part %d stands at %d, before the part in front of it at %d", number, seq, l.end)
	}
	l.end = seq
	switch l.next {
	case 0:
		l.start = seq
		l.s.seq = seq
		l.readSegments(r)
	case SnapshotParts - 1:
		l.readRest(r)
	default:
		l.readShard(r, uint16(l.next-1))
		l.s.shards[l.next-1].loadedThrough = seq
	}
	if err := r.Close(); err != nil {
		return fmt.Errorf("snapshot part %d: %w", l.next, err)
	}
	l.next++
	return nil
}

// Start returns the sequence behind which the commits must begin.
func (l *Loader) Start() Seq { return l.start }

// End returns the sequence through which commits are needed.
func (l *Loader) End() Seq { return l.end }

// Apply applies the next commit behind Start.
func (l *Loader) Apply(c *Commit) error {
	if l.next != SnapshotParts {
		return ErrIncomplete
	}
	_, err := l.s.Apply(c, nil)
	return err
}

// Finish returns the store, once the commits have reached End. It fails if
// ranges overlap or the digest is not the one the snapshot ended with.
func (l *Loader) Finish() (*Store, error) {
	s := l.s
	if l.next != SnapshotParts || s.seq != l.end {
		return nil, fmt.Errorf("%w: %d of %d parts, commits up to %d of %d", ErrIncomplete, l.next, SnapshotParts, s.seq, l.end)
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if err := l.buildAllocators(); err != nil {
		return nil, err
	}
	if s.lastNumber != l.number || len(s.segments) != len(l.alive) {
		return nil, fmt.Errorf("the snapshot ends with %d segments, its commits leave %d", len(l.alive), len(s.segments))
	}
	if s.digest != l.digest {
		return nil, fmt.Errorf("the snapshot's digest at %d is %v, what was loaded has %v", s.seq, l.digest, s.digest)
	}
	s.loading = false
	s.lastTime.Store(int64(s.now))
	s.digests.add(s.seq, s.digest)
	s.quarantine.moveHorizon(s.now + s.inForce.Load().hold)
	return s, nil
}

func (l *Loader) readSegments(r *binenc.Reader) {
	s := l.s
	s.now = readTime(r)
	s.lastNumber = readNumber(r)
	for range r.Count(32) {
		number, spec := readNumber(r), readSpec(r)
		if err := spec.Validate(); r.Err() != nil || err != nil {
			r.Fail("segment %d: %v", number, err)
			return
		}
		if number == 0 || number > s.lastNumber || s.segments[number] != nil {
			r.Fail("segment number %d", number)
			return
		}
		s.mount(spec, number)
	}
	if r.Len() > 0 {
		l.readLocalDisks(r)
	}
}

// readLocalDisks reads the SSDs, of which a snapshot that lists them has one at
// least.
func (l *Loader) readLocalDisks(r *binenc.Reader) {
	s := l.s
	n := r.Count(18)
	if n == 0 {
		r.Fail("an empty list of SSDs")
	}
	for range n {
		number := readNumber(r)
		var client segment.ClientID
		copy(client[:], r.Fixed(len(client)))
		offloading := r.Bool()
		if number == 0 || number > s.lastNumber || s.segments[number] != nil || s.localDisks.byNumber[number] != nil ||
			s.localDisks.byClient[client] != nil {
			r.Fail("SSD number %d of client %v", number, client)
		}
		if r.Err() != nil {
			return
		}
		s.mountLocalDisk(client, number, offloading)
	}
}

// minObjectBytes is what the least object takes: a client's id, a replica of two
// bytes, and one byte for everything else.
const minObjectBytes = 26

func (l *Loader) readShard(r *binenc.Reader, number uint16) {
	s := l.s
	sh := &s.shards[number]
	tx := &Tx{s: s, seq: l.end, now: s.now}
	for range r.Count(minObjectBytes) {
		o := l.readObject(r, number)
		if r.Err() != nil {
			return
		}
		if sh.byID[o.id] != nil || s.lookup(sh, s.tenants.name(o.tenant), o.key) != nil {
			r.Fail("object %v stands twice", o.id)
			return
		}
		tx.insert(sh, o)
	}
}

func (l *Loader) readObject(r *binenc.Reader, shardNumber uint16) *object {
	s := l.s
	parts := r.Byte()
	if parts&^objectKnown != 0 {
		r.Fail("unknown parts %#x", parts)
	}
	tenant := readTenant(r)
	o := &object{key: r.String(MaxKeyBytes), id: ObjectID(r.Uvarint()), shard: shardNumber}
	if shardOf(tenant, o.key) != shardNumber {
		r.Fail("object %v is in the wrong shard", o.id)
	}
	copy(o.client[:], r.Fixed(len(o.client)))
	o.size = r.Uvarint()
	o.putStart = readTime(r)
	o.deadline = readTime(r)
	o.live = o.deadline
	if parts&objectHardPin != 0 {
		o.flags |= flagHardPin
	}
	if parts&objectSoftPin != 0 {
		o.soft = readTime(r)
	}
	if parts&objectRequest != 0 {
		o.request = r.Uint64()
	}
	if parts&objectExtra != 0 {
		o.extra = &extra{diskPath: r.String(maxPathBytes), group: r.String(MaxNameBytes), dataType: r.Byte()}
		if parts&objectChecksum != 0 {
			o.extra.checksum, o.extra.hasChecksum = r.Uint64(), true
		}
	}
	replicas := l.readReplicas(r)
	if r.Err() != nil {
		return nil
	}
	o.tenant = s.tenants.intern(tenant)
	o.setReplicas(replicas)
	return o
}

func (l *Loader) readReplicas(r *binenc.Reader) []replica {
	n := r.Count(2)
	if n == 0 || n > 2*MaxReplicas+1 {
		r.Fail("an object with %d replicas", n)
		return nil
	}
	replicas := make([]replica, n)
	for i := range replicas {
		p := &replicas[i]
		p.kind, p.status = ReplicaKind(r.Byte()), ReplicaStatus(r.Byte())
		if p.kind < Memory || p.kind > LocalDisk || p.status < Processing || p.status > Complete {
			r.Fail("a replica of kind %d and status %d", p.kind, p.status)
		}
		switch p.kind {
		case Memory:
			var number segment.Number
			number, p.rng = readPlacement(r)
			p.segment = l.mounted(r, number, l.s.segments, l.s.expected)
		case LocalDisk:
			number := readNumber(r)
			p.segment = l.mounted(r, number, l.s.localDisks.byNumber, l.s.expectedDisks)
			p.endpoint = unique.Make(r.String(MaxNameBytes))
			if p.status != Complete || slices.ContainsFunc(replicas[:i], func(o replica) bool { return o.segment == p.segment }) {
				r.Fail("a replica on SSD %d that is not complete, or the second one there", number)
			}
		case Disk: // its path stands with the object
		}
	}
	return replicas
}

// mounted returns a segment or SSD that a shard refers to. One that was mounted
// only after the segments were copied is a placeholder until its mount is
// applied.
func (l *Loader) mounted(r *binenc.Reader, number segment.Number, known, expected map[segment.Number]*segmentState) *segmentState {
	if p := known[number]; p != nil {
		return p
	}
	if p := expected[number]; p != nil {
		return p
	}
	if number <= l.s.lastNumber {
		r.Fail("segment %d is not mounted", number)
		return nil
	}
	p := &segmentState{Segment: &segment.Segment{Number: number}}
	expected[number] = p
	return p
}

func (l *Loader) readRest(r *binenc.Reader) {
	s := l.s
	term := &termState{term: readTerm(r), Params: readParams(r), guardUntil: readTime(r), startedEmpty: r.Bool()}
	if err := term.Validate(); r.Err() == nil && err != nil {
		r.Fail("%v", err)
		return
	}
	term.hold = Time(term.HoldTime().Milliseconds())
	s.inForce.Store(term)
	s.digest += term.digestTerm()
	l.quarantine = make([]loadedRange, r.Count(4))
	for i := range l.quarantine {
		q := &l.quarantine[i]
		q.Segment, q.Range = readPlacement(r)
		q.until = readTime(r)
	}
	n := r.Count(8)
	if n > MaxRequests {
		r.Fail("%d requests", n)
		return
	}
	for range n {
		request := r.Uint64()
		s.requests.add(request)
		s.digest += requestTerm(request)
	}
	l.number = readNumber(r)
	l.alive = readNumbers(r)
	l.digest = Digest(r.Uint64())
	s.loadedThrough = l.end
}

// buildAllocators makes every range busy that an object, a reservation or the
// quarantine holds. Two that overlap are a fault.
func (l *Loader) buildAllocators() error {
	s := l.s
	if n := len(s.expected) + len(s.expectedDisks); n > 0 {
		return fmt.Errorf("%d segments are referred to that were never mounted", n)
	}
	for i := range s.shards {
		for o := range s.shards[i].byKey.all() {
			for j := range o.replicaCount() {
				r := o.replicaAt(j)
				if r.kind != Memory || !r.exists() {
					continue
				}
				if err := r.segment.Reserve(r.rng); err != nil {
					return fmt.Errorf("object %v: %w", o.id, err)
				}
			}
		}
	}
	for _, loaded := range l.quarantine {
		q := quarantined{segment: s.segments[loaded.Segment], rng: loaded.Range, until: loaded.until}
		if q.segment == nil {
			return fmt.Errorf("segment %d has memory in quarantine but is not mounted", loaded.Segment)
		}
		if err := q.segment.Reserve(q.rng); err != nil {
			return fmt.Errorf("quarantine: %w", err)
		}
		s.quarantine.add(q)
		s.addTerm(q.segment, q.digestTerm())
	}
	return nil
}
