package metadata

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unique"

	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A Loader builds a store from a snapshot and the commits that followed its
// beginning. Parts come first, all of them and in order; then commits from the
// one behind Start up to End bring the parts to one sequence, and Finish
// checks the result. Until then the store answers nobody.
type Loader struct {
	s      *Store
	next   int // part expected next
	rules  Rules
	start  Seq
	end    Seq
	digest Digest           // of the state at end
	number segment.Number   // last segment number assigned at end
	alive  []segment.Number // mounted at end

	// Quarantine at end; its segments may be mounted by the commits up to there.
	quarantine []loadedRange
}

// NewLoader returns a loader of a store with the given options.
func NewLoader(opts Options) *Loader {
	s := New(opts)
	s.loading, s.shardsLoaded = true, 1
	s.expected = make(map[segment.Number]*segmentState)
	s.expectedDisks = make(map[segment.Number]*segmentState)
	return &Loader{s: s}
}

// ErrIncomplete is returned for a snapshot that ended before its last part.
var ErrIncomplete = errors.New("the snapshot is incomplete")

// Add takes the next part.
func (l *Loader) Add(part []byte) error {
	r := binenc.Decoder(part)
	var head partHead
	if head.code(&r); r.Err() != nil {
		return fmt.Errorf("snapshot part %d: %w", l.next, r.Err())
	}
	if l.next == 0 {
		l.rules = head.rules
	}
	number, seq := head.number, head.seq
	switch {
	case number != uint64(l.next):
		return fmt.Errorf("snapshot part %d where part %d was expected", number, l.next)
	case seq < l.end:
		return fmt.Errorf("snapshot part %d stands at %d, before the part in front of it at %d", number, seq, l.end)
	case head.rules != l.rules:
		return fmt.Errorf("snapshot part %d stands under rules %d, the first part under rules %d: they were raised meanwhile, load another snapshot",
			number, head.rules, l.rules)
	}
	l.end = seq
	switch l.next {
	case 0:
		l.start = seq
		l.s.seq = seq
		l.readSegments(&r)
	case SnapshotParts - 1:
		if l.readRest(&r); r.Err() == nil {
			l.s.fileLoaded()
		}
	default:
		l.s.shardsLoaded = l.next
		l.readShard(&r, uint16(l.next-1))
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
	for more := true; more; {
		more = s.quarantine.moveHorizon(s.now + s.inForce.Load().hold)
	}
	s.releasing.Store(s.quarantine.due(s.now))
	return s, nil
}

func (l *Loader) readSegments(c *binenc.Coder) {
	s := l.s
	binenc.CodeVarint(c, &s.now)
	codeNumber(c, &s.lastNumber)
	type mounted struct {
		number segment.Number
		spec   segment.Spec
		closes Time
	}
	list := make([]mounted, c.Count(32))
	for i := range list {
		m := &list[i]
		codeMounted(c, l.rules, &m.number, &m.spec, &m.closes)
		if m.number == 0 || m.number > s.lastNumber {
			c.Fail("segment number %d", m.number)
		}
		if c.Err() != nil {
			return
		}
	}
	slices.SortFunc(list, func(a, b mounted) int { return cmp.Compare(a.number, b.number) }) // a snapshot has them in any order
	for _, m := range list {
		if s.segments[m.number] != nil {
			c.Fail("segment number %d", m.number)
			return
		}
		p := s.mount(m.spec, m.number, "")
		if s.pool.Add(p.Segment); m.closes != 0 {
			s.closeSegment(p, m.closes)
		}
	}
	if l.rules > FirstRules || c.Len() > 0 {
		l.readLocalDisks(c)
	}
}

// readLocalDisks reads the SSDs. A snapshot of FirstRules has no list of them rather than
// an empty one.
func (l *Loader) readLocalDisks(c *binenc.Coder) {
	s := l.s
	n := c.Count(18)
	if n == 0 && l.rules == FirstRules {
		c.Fail("an empty list of SSDs")
	}
	for range n {
		var number segment.Number
		var client segment.ClientID
		var offloading, wipe bool
		var capacity uint64
		codeLocalDisk(c, l.rules, &number, &client, &offloading, &wipe, &capacity)
		if number == 0 || number > s.lastNumber || s.segments[number] != nil || s.localDisks.byNumber[number] != nil ||
			s.localDisks.byClient[client] != nil {
			c.Fail("SSD number %d of client %v", number, client)
		}
		if c.Err() != nil {
			return
		}
		s.mountLocalDisk(client, number, offloading, wipe, capacity)
	}
}

// minObjectBytes is the size of the smallest encoded object: a client's id, a replica of
// two bytes, and one byte for everything else.
const minObjectBytes = 26

func (l *Loader) readShard(c *binenc.Coder, number uint16) {
	s := l.s
	sh := &s.shards[number]
	tx := &Tx{s: s, seq: l.end, now: s.now}
	objects := c.Count(minObjectBytes)
	sh.byKey.Reserve(objects)
	sh.byID.Reserve(objects)
	d := new(loadedDraft)
	for range objects {
		if l.readObject(c, number, d); c.Err() != nil {
			return
		}
		hash := s.hash.of(d.tenant, d.key)
		if !sh.withID(d.id).none() || !sh.withKey(hash, d.tenant, d.key).none() {
			c.Fail("object %v stands twice", d.id)
			return
		}
		if tx.enter(sh, hash, &d.draft); tx.fault != nil {
			c.Check(tx.fault)
			return
		}
	}
}

// A loadedDraft is an object as it stands in a snapshot.
type loadedDraft struct {
	draft
	one [1]replica // what replicas refers to if there is only one
}

// readObject reads the next object into a draft, which is valid until the next one is read.
func (l *Loader) readObject(c *binenc.Coder, shardNumber uint16, d *loadedDraft) {
	tenant := ""
	d.draft = draft{shard: shardNumber}
	d.code(c, &tenant)
	if shardOf(tenant, d.key) != shardNumber {
		c.Fail("object %v is in the wrong shard", d.id)
	}
	d.replicas = l.readReplicas(c, d.extra != nil && d.extra.transfer != nil, &d.one)
	if c.Err() == nil {
		d.tenant = l.s.tenants.intern(tenant)
	}
}

// readReplicas reads the replicas of an object, into one if there is only one.
func (l *Loader) readReplicas(c *binenc.Coder, transfer bool, one *[1]replica) []replica {
	n := c.Count(2)
	if n == 0 || n > 2*MaxReplicas+1 {
		c.Fail("an object with %d replicas", n)
		return nil
	}
	replicas := one[:]
	if one[0] = (replica{}); n > 1 {
		replicas = make([]replica, n)
	}
	for i := range replicas {
		var number segment.Number
		r, endpoint := &replicas[i], ""
		r.code(c, &number, &endpoint)
		if r.kind < Memory || r.kind > LocalDisk || r.status < Processing || r.status > arriving ||
			r.status == arriving && (r.kind != Memory || !transfer) {
			c.Fail("a replica of kind %d and status %d", r.kind, r.status)
		}
		switch r.kind {
		case Memory:
			r.segment = l.mounted(c, number, l.s.segments, l.s.expected)
		case LocalDisk:
			r.segment, r.endpoint = l.mounted(c, number, l.s.localDisks.byNumber, l.s.expectedDisks), unique.Make(endpoint)
			if r.status != Complete || slices.ContainsFunc(replicas[:i], func(o replica) bool { return o.segment == r.segment }) {
				c.Fail("a replica on SSD %d that is not complete, or the second one there", number)
			}
		case Disk:
		}
	}
	return replicas
}

// mounted returns a segment or SSD that a shard refers to. One that was mounted
// only after the segments were copied is a placeholder until its mount is
// applied.
func (l *Loader) mounted(c *binenc.Coder, number segment.Number, known, expected map[segment.Number]*segmentState) *segmentState {
	if p := known[number]; p != nil {
		return p
	}
	if p := expected[number]; p != nil {
		return p
	}
	if number <= l.s.lastNumber {
		c.Fail("segment %d is not mounted", number)
		return nil
	}
	p := &segmentState{Segment: &segment.Segment{Number: number}}
	expected[number] = p
	return p
}

func (l *Loader) readRest(c *binenc.Coder) {
	s, term := l.s, new(termState)
	term.code(c)
	c.Check(term.term.validate())
	if c.Check(term.Validate()); c.Err() != nil {
		return
	}
	term.rules = l.rules
	term.hold = Time(term.HoldTime().Milliseconds())
	s.inForce.Store(term)
	s.digest += term.digestTerm()
	binenc.CodeSlice(c, &l.quarantine, 4, func(q *loadedRange) { q.code(c) })
	s.digest += s.requests.decode(c, l.rules > FirstRules)
	if l.rules > FirstRules {
		s.codeHeld(c)
	}
	if l.rules >= transferRules {
		s.codeTasks(c)
		s.codeDrains(c)
	}
	if l.rules >= quotaRules {
		s.codeQuotas(c)
	}
	digest := uint64(0)
	codeNumber(c, &l.number)
	codeNumbers(c, &l.alive)
	c.CodeUint64(&digest)
	l.digest, s.loadedThrough = Digest(digest), l.end
}

// buildAllocators makes every range busy that an object, a reservation or the
// quarantine holds. Two that overlap are a fault.
func (l *Loader) buildAllocators() error {
	s := l.s
	if n := len(s.expected) + len(s.expectedDisks); n > 0 {
		return fmt.Errorf("%d segments are referred to that were never mounted", n)
	}
	s.findLoaded()
	for _, p := range s.segments {
		if err := p.reserveLoaded(); err != nil {
			return err
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

// findLoaded gives each segment the ranges of its replicas.
func (s *Store) findLoaded() {
	for _, p := range s.segments {
		if name, used := s.located.names[p]; used { // by first replicas, which are nearly all
			p.loaded = make([]uint64, 0, s.located.uses[name])
		}
	}
	for i := range s.shards {
		for o := range s.shards[i].all {
			for j := range o.replicaCount() {
				if r := o.replicaAt(j); r.kind == Memory && r.exists() {
					r.segment.loaded = append(r.segment.loaded, uint64(r.rng.Offset)<<32|uint64(r.rng.Length))
				}
			}
		}
	}
}

// reserveLoaded makes the ranges of a segment's replicas busy.
func (p *segmentState) reserveLoaded() error {
	ranges := p.loaded
	p.loaded = nil
	sortSpread(ranges)
	for _, r := range ranges {
		if err := p.Reserve(segment.Range{Offset: uint32(r >> 32), Length: uint32(r)}); err != nil {
			return fmt.Errorf("replicas: %w", err)
		}
	}
	return nil
}
