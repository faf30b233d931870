package metadata

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/ordered"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// A claim keeps a range of memory from reuse after its segment was unmounted, because a
// reader with a lease or a late writer may still be at work there. Where a later mount
// overlaps claims, its memory starts in quarantine. Claims are part of the state.

// Bounds of claims. Beyond them one range covers several neighbours and the gaps between
// them. A mount at an endpoint that has the most is refused until some of them have
// ended. How many endpoints have claims is counted by peer (Use).
const (
	maxEventClaims    = 2048    // of one event
	maxEndpointClaims = 1 << 14 // of one endpoint
)

// claimGrain rounds the ends of claims up, in milliseconds, so that many end
// together.
const claimGrain = 1000

// A Claim is a range of a segment about to be unmounted that readers or writers may still
// use.
type Claim struct {
	Segment segment.Number
	Range   segment.Range
	Until   Time
}

// CodeClaims codes the claims at the end of an event. No claims take no bytes: the
// encoding is that of the time before claims.
func CodeClaims(c *binenc.Coder, claims *[]Claim) {
	if c.Decoding() && c.Len() == 0 || !c.Decoding() && len(*claims) == 0 {
		return
	}
	if codeClaims(c, claims); len(*claims) == 0 {
		c.Fail("an empty list of claims")
	}
}

func codeClaims(c *binenc.Coder, claims *[]Claim) {
	binenc.CodeSlice(c, claims, 4, func(claim *Claim) {
		codePlacement(c, &claim.Segment, &claim.Range)
		binenc.CodeVarint(c, &claim.Until)
	})
}

// A heldRange is a range of addresses behind an endpoint that is not given out before a
// time.
type heldRange struct {
	from, to uint64
	until    Time
}

// claims are those of the state. Guarded by Store.applyMu.
type claims struct {
	at     map[string]*endpointClaims
	ends   ordered.Set[claimsEnd] // one for each endpoint
	serial uint64                 // of the last endpointClaims
	last   Time                   // no claim ends after it
	looked int                    // at reservations and transfers, ever
}

func newClaims() claims {
	return claims{at: make(map[string]*endpointClaims), ends: ordered.NewSet(claimsEnd.before)}
}

// endpointClaims are the claims of one endpoint. They do not change: others take their
// place.
type endpointClaims struct {
	endpoint string
	peer     string      // whose memory it was, as far as this node knows; no part of the state
	list     []heldRange // disjoint, in order
	term     Digest
	end      claimsEnd
}

// A claimsEnd is when the first claim of an endpoint ends.
type claimsEnd struct {
	at     Time
	serial uint64 // tells those of one time apart; no part of the state
	of     *endpointClaims
}

func (e claimsEnd) before(o claimsEnd) bool {
	return e.at < o.at || e.at == o.at && e.serial < o.serial
}

// of returns the claims of an endpoint, nil for none.
func (c *claims) of(endpoint string) []heldRange {
	if found := c.at[endpoint]; found != nil {
		return found.list
	}
	return nil
}

func claimsTerm(endpoint string, list []heldRange) (sum Digest) {
	h := mix(seedClaim, xxh3.HashString(endpoint))
	for _, r := range list {
		sum += finish(mix(mix(mix(h, r.from), r.to), uint64(r.until)))
	}
	return sum
}

func (s *Store) setClaims(endpoint, peer string, list []heldRange) {
	if before := s.claims.at[endpoint]; before != nil {
		s.claims.ends.Delete(before.end)
		s.digest -= before.term
		s.peers.lent(before.peer, Use{Claimed: -1})
	}
	if len(list) == 0 {
		delete(s.claims.at, endpoint)
		return
	}
	s.claims.serial++
	c := &endpointClaims{endpoint: endpoint, peer: peer, list: list, term: claimsTerm(endpoint, list)}
	c.end = claimsEnd{never, s.claims.serial, c}
	for _, r := range list {
		c.end.at, s.claims.last = min(c.end.at, r.until), max(s.claims.last, r.until)
	}
	s.claims.at[endpoint] = c
	s.claims.ends.Set(c.end)
	s.digest += c.term
	s.peers.lent(peer, Use{Claimed: 1})
}

// endClaims ends the claims that hold until now or earlier. It looks at no endpoint where
// none ends.
func (s *Store) endClaims(now Time) {
	for {
		next, any := s.claims.ends.Min()
		if !any || next.at > now {
			return
		}
		left := slices.DeleteFunc(slices.Clone(next.of.list), func(r heldRange) bool { return r.until <= now })
		s.setClaims(next.of.endpoint, next.of.peer, left)
	}
}

const never Time = 1<<63 - 1

// ClaimsHeldFor returns for how long, from the last commit on, readers or writers may be at
// work in memory that was unmounted: until the last claim of all ends, and while leases that
// an earlier primary granted may be unknown (GuardUntil).
func (s *Store) ClaimsHeldFor() time.Duration {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return time.Duration(max(s.now, s.GuardUntil(), s.claims.last)-s.now) * time.Millisecond
}

// Claim keeps what is claimed of segments that are about to go: what readers
// have leases on, as the event lists it; the ranges of open reservations and transfers,
// as their writers may be late; the ranges in quarantine; and under a term's guard the
// whole segments.
func (tx *Tx) Claim(numbers []segment.Number, leases []Claim) {
	s, term := tx.s, tx.s.inForce.Load()
	if tx.globalHas() || term.rules == FirstRules {
		return
	}
	leaving := make(map[*segmentState]bool, len(numbers))
	held, peers := make(map[string][]heldRange), make(map[string]string) // by endpoint
	hold := func(p *segmentState, r segment.Range, until Time) {
		if leaving[p] && until > tx.now && uint64(r.Offset)+uint64(r.Length) <= uint64(p.Whole().Length) {
			from := p.Address(r)
			until = (until + claimGrain - 1) / claimGrain * claimGrain
			held[p.Endpoint] = append(held[p.Endpoint], heldRange{from, from + p.Bytes(r.Length), until})
		}
	}
	for _, number := range numbers {
		if p := s.segments[number]; p != nil {
			leaving[p], peers[p.Endpoint] = true, cmp.Or(peers[p.Endpoint], p.peer)
			held[p.Endpoint] = slices.Grow(held[p.Endpoint], p.countWaiting()+1)
			hold(p, p.Whole(), term.guardUntil)
			p.eachWaiting(func(q quarantined) { hold(p, q.rng, q.until) })
		}
	}
	if len(leaving) == 0 { // as with most mounts
		return
	}
	for _, c := range leases {
		hold(s.segments[c.Segment], c.Range, c.Until)
	}
	tx.findWriters(numbers)
	for _, number := range numbers {
		for _, c := range tx.writers[number] {
			hold(s.segments[number], c.Range, c.Until)
		}
	}
	for endpoint, list := range held { // in any order: endpoints have nothing in common
		if len(list) == 0 {
			continue
		}
		peer := peers[endpoint]
		if before := s.claims.at[endpoint]; before != nil {
			peer, list = cmp.Or(before.peer, peer), append(list, before.list...)
		}
		s.setClaims(endpoint, peer, cover(flatten(list), maxEndpointClaims))
	}
}

// findWriters notes the ranges where writers may be at work on segments about to be
// unmounted: those of open reservations and transfers. Mounts that follow one another
// change none of these, so the first of them looks for all. The result is for these
// mounts alone: they unmount the segments.
func (tx *Tx) findWriters(numbers []segment.Number) {
	if !slices.ContainsFunc(numbers, func(n segment.Number) bool { _, known := tx.writers[n]; return !known }) {
		return
	}
	tx.writers = make(map[segment.Number][]Claim, len(numbers))
	for _, number := range numbers {
		tx.writers[number] = nil
	}
	for _, change := range tx.following {
		e, ok := change.(*Mount)
		if !ok {
			break
		}
		for _, number := range e.Replaces {
			tx.writers[number] = nil
		}
	}
	release := tx.s.inForce.Load().ReleaseTimeout
	find := func(o object) {
		tx.s.claims.looked++
		for i := range o.replicaCount() {
			r := o.replicaAt(i)
			if r.kind != Memory || r.status == Complete {
				continue
			}
			if list, ok := tx.writers[r.segment.Number]; ok {
				tx.writers[r.segment.Number] = append(list, Claim{r.segment.Number, r.rng, o.writtenUntil(&r, release)})
			}
		}
	}
	tx.s.indexes[inReservations].each(find)
	tx.s.indexes[inTransfers].each(find)
}

// honourClaims puts the claimed ranges of a new segment into quarantine, and all of its
// memory until whole.
func (tx *Tx) honourClaims(p *segmentState, whole Time) {
	list := []heldRange{{p.Base, p.Base + p.Size, whole}}
	list = append(list, tx.s.claims.of(p.Endpoint)...)
	unit, capacity := p.Bytes(1), p.Whole().Length
	var ranges []quarantined
	end := uint32(0)
	for _, r := range flatten(list) {
		if r.to <= p.Base || r.from >= p.Base+p.Size || r.until <= tx.now {
			continue
		}
		from := uint32((max(r.from, p.Base) - p.Base) / unit)
		to := min(capacity, uint32((min(r.to, p.Base+p.Size)-p.Base+unit-1)/unit))
		if from < end { // they share a unit
			ranges[len(ranges)-1].until = max(ranges[len(ranges)-1].until, r.until)
			from = end
		}
		if from < to {
			ranges = append(ranges, quarantined{until: r.until, segment: p, rng: segment.Range{Offset: from, Length: to - from}})
			end = to
		}
	}
	for _, q := range ranges {
		if err := p.Reserve(q.rng); err != nil {
			tx.Fail("%v", err)
			return
		}
		tx.release(p, q.rng, q.until)
	}
}

// flatten returns disjoint ranges, in order, which hold each address until the latest
// time that a range of the list does. Neighbours that end at one time are joined. It
// sorts the list.
func flatten(list []heldRange) (flat []heldRange) {
	list = slices.DeleteFunc(list, func(r heldRange) bool { return r.from >= r.to })
	slices.SortFunc(list, func(a, b heldRange) int { return cmp.Compare(a.from, b.from) })
	flat = make([]heldRange, 0, len(list))
	for len(list) > 0 {
		n, to := 1, list[0].to // the first n overlap one another, and no others
		for ; n < len(list) && list[n].from < to; n++ {
			to = max(to, list[n].to)
		}
		if n == 1 { // as nearly always: what lies in quarantine is disjoint
			flat = join(flat, list[0])
		} else {
			flat = sweep(flat, list[:n])
		}
		list = list[n:]
	}
	return flat
}

// join appends a range to a flat list.
func join(flat []heldRange, r heldRange) []heldRange {
	if last := len(flat) - 1; last >= 0 && flat[last].to == r.from && flat[last].until == r.until {
		flat[last].to = r.to
		return flat
	}
	return append(flat, r)
}

// sweep appends ranges that overlap to a flat list.
func sweep(flat, list []heldRange) []heldRange {
	type edge struct {
		at    uint64
		until Time
		opens bool
	}
	edges := make([]edge, 0, 2*len(list))
	for _, r := range list {
		edges = append(edges, edge{r.from, r.until, true}, edge{r.to, r.until, false})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	open := ordered.NewMap[Time, int]()
	for i := 0; i < len(edges); {
		at := edges[i].at
		for ; i < len(edges) && edges[i].at == at; i++ {
			n, _ := open.Get(edges[i].until)
			if edges[i].opens {
				n++
			} else {
				n--
			}
			if n == 0 {
				open.Delete(edges[i].until)
			} else {
				open.Set(edges[i].until, n)
			}
		}
		if until, _, there := open.Max(); there {
			flat = join(flat, heldRange{at, edges[i].at, until})
		}
	}
	return flat
}

// cover returns at most so many ranges that cover those of a flat list: it closes the
// smallest gaps.
func cover(flat []heldRange, most int) []heldRange {
	if len(flat) <= most {
		return flat
	}
	gaps := make([]uint64, 0, len(flat)-1)
	for i := range flat[1:] {
		gaps = append(gaps, flat[i+1].from-flat[i].to)
	}
	slices.Sort(gaps)
	widest := gaps[len(flat)-most-1] // the widest gap to close; of those as wide, the first few
	smaller, _ := slices.BinarySearch(gaps, widest)
	wide := len(flat) - most - smaller
	covered := flat[:1:1]
	for _, r := range flat[1:] {
		last := &covered[len(covered)-1]
		gap := r.from - last.to
		if gap > widest || gap == widest && wide == 0 {
			covered = append(covered, r)
			continue
		}
		if gap == widest {
			wide--
		}
		last.to, last.until = r.to, max(last.until, r.until)
	}
	return covered
}

// codeHeld codes the claims of the state, in the last part of a snapshot.
func (s *Store) codeHeld(c *binenc.Coder) {
	endpoints := slices.Sorted(maps.Keys(s.claims.at))
	binenc.CodeSlice(c, &endpoints, 2, func(endpoint *string) {
		list := s.claims.of(*endpoint)
		c.CodeString(endpoint, MaxNameBytes)
		binenc.CodeSlice(c, &list, 3, func(r *heldRange) {
			length := r.to - r.from
			binenc.CodeUvarint(c, &r.from)
			binenc.CodeUvarint(c, &length)
			binenc.CodeVarint(c, &r.until)
			if r.to = r.from + length; r.to <= r.from {
				c.Fail("a claim of %d bytes at %#x", length, r.from)
			}
		})
		if !c.Decoding() {
			return
		}
		if len(list) == 0 || len(list) > maxEndpointClaims || s.claims.of(*endpoint) != nil ||
			!slices.IsSortedFunc(list, func(a, b heldRange) int { return cmp.Compare(a.from, b.to) }) {
			c.Fail("%d claims at %.64q, which are out of order, or stand twice", len(list), *endpoint)
		}
		if c.Err() == nil {
			s.setClaims(*endpoint, "", list)
		}
	})
}

// admitsMount returns why no segment can be mounted at an endpoint now, or nil.
func (c *claims) admitsMount(endpoint string) error {
	n := len(c.of(endpoint))
	if n < maxEndpointClaims {
		return nil
	}
	return errs.New(errs.Unavailable, "MountSegment",
		"readers and writers of %d ranges at %.64q may still be at work, which is the most that is remembered; mount it again later", n, endpoint)
}

// HasClaims reports whether readers or writers may still be at work in memory that was
// unmounted at an endpoint.
func (s *Store) HasClaims(endpoint string) bool {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return len(s.claims.of(endpoint)) > 0
}
