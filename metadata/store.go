package metadata

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/internal/ordered"
	"github.com/understudy-store/understudy/metadata/reftable"
	"github.com/understudy-store/understudy/metadata/slab"
	"github.com/understudy-store/understudy/segment"
)

// Options are the settings of a Store. They are the node's own: nothing in the
// state depends on them.
type Options struct {
	// Strategy chooses segments for new replicas.
	Strategy segment.Strategy
	// Random returns a uniform number in [0, n); nil for a shared generator.
	Random func(n int) int
	// Watcher sees which objects come and go; nil for nobody.
	Watcher Watcher

	quarantineSlice int   // for tests, alike on all nodes; 0 for the default
	recordBytes     int64 // most that records may take; 0 for slab.MaxBytes
}

// A Store holds the metadata of one cluster.
//
// Locks, in the order in which they are taken: one shard's encoded; applyMu; encoding; one
// shard's mu (several only under applyMu); then leaves (a segment's allocator, the pool, the
// object ids, the quotas, the tenants, the peers, the request log). Under a leaf no other
// lock is taken, but for the tenants' under the quotas'. Nothing slow happens under any of
// them, and no I/O.
type Store struct {
	pool     *segment.Pool
	tenants  tenants
	requests requestLog
	quotas   quotas
	shards   [ShardCount]shard
	ids      idSource
	hash     keyHash
	slab     *slab.Slab // of the records; changed under applyMu
	counts   counters
	digests  digestRing
	peers    peers

	// The part of the term that readers need, replaced as a whole.
	inForce atomic.Pointer[termState]
	// now, for readers. Ranges whose quarantine ends by then are free, except that some
	// still wait for a commit while releasing is set.
	lastTime  atomic.Int64
	releasing atomic.Bool
	// Values that records refer to by number.
	located interned[*segmentState]
	clients interned[segment.ClientID]
	// The mounted SSDs by client, for freeOnSSD; changed under applyMu.
	ssds sync.Map // of segment.ClientID to *segmentState
	// The objects that an eviction under way will take, nil for none.
	victims atomic.Pointer[Victims]

	// applyMu is held while a commit is applied, while an eviction pass selects its
	// victims, and while a snapshot takes a shard's lock. It guards all below, the shards'
	// journaled state (together with their own locks) and the objects' index links.
	applyMu       sync.Mutex
	seq           Seq
	now           Time // of the commit applied last
	digest        Digest
	segments      map[segment.Number]*segmentState // mounted ones
	memory        memory                           // bytes of the mounted segments
	mounts        mounts                           // indexes of the mounted segments
	gone          gone                             // segments unmounted last
	claims        claims                           // ranges held after their segment was unmounted
	localDisks    localDisks                       // mounted SSDs
	lastNumber    segment.Number
	tasks         tasks
	drainJobs     []*Drain // the oldest first
	cutoffs       CutoffCounts
	encoding      sync.RWMutex   // held while a shard is encoded, and while a segment goes
	unmountings   uint64         // that were prepared
	sweepAt       int            // shard that Sweep looks at next
	sweepFrom     reftable.Place // where in it
	sweepLeft     int            // shards that Sweep has yet to look at, this one included
	quarantine    quarantine
	indexes       [indexKinds]stampIndex
	buckets       buckets             // of indexes
	renewals      int64               // applied, ever
	pinEnds       ordered.Set[pinEnd] // the softly pinned objects, by the end of their pin
	groups        map[groupKey][]*group
	expected      map[segment.Number]*segmentState // while loading: referred to before they are mounted
	expectedDisks map[segment.Number]*segmentState // while loading: likewise, SSDs
	watch         watch
	loading       bool // parts stand at different sequences; allocators are not built
	shardsLoaded  int  // while loading: how many, with the one being loaded; 0 when the indexes are there, see unfiled
	loadedThrough Seq  // where the last part of the snapshot stood; see Tx.globalHas
}

// A shard holds the objects whose keys hash to it.
type shard struct {
	mu      sync.Mutex
	store   *Store
	byKey   reftable.Table       // the records of the objects
	byID    reftable.Table       // the same
	pending pendings             // prepared mutations; primary only
	marked  []ObjectID           // objects renewed since their journaled renewal; primary only
	copying map[ObjectID]copying // what clients copy to their SSDs; primary only
	leases  LeaseCounts          // without Marked
	notes   *notes               // while an unmount is prepared; primary only
	encoded sync.Mutex           // held while the shard is encoded; taken before all others

	sink uint64 // keeps the compiler from dropping the reads of readAhead

	// What few objects have, indexed by record.more. As records do, it changes under
	// applyMu and the lock.
	extras      []*extra
	spareExtras []uint32

	// loadedThrough is the sequence a snapshot's copy of the shard stood at:
	// commits up to it are in it already. 0 on a store that was not loaded.
	loadedThrough Seq
}

// A pinEnd says when an object's soft pin ends.
type pinEnd struct {
	at  Time
	id  ObjectID
	ref slab.Ref
}

func (p pinEnd) before(q pinEnd) bool {
	if p.at != q.at {
		return p.at < q.at
	}
	return p.id < q.id
}

// segmentState is a segment with what the state knows of it. A client's SSD is
// one too: it has a number and an owner, and no memory.
type segmentState struct {
	*segment.Segment
	share Digest // digest terms of all that lies on this segment; applyMu

	quarantined atomic.Uint64   // bytes in quarantine
	loaded      []uint64        // its replicas' ranges, offset and length, while Loader.buildAllocators runs
	waiting     *waitingList    // its ranges in quarantine, nil for none yet; applyMu
	freed       []segment.Range // gathered by Tx.free; applyMu
	open        bool            // takes new objects: in memory.open and quarantine.open; applyMu
	leavingSoon atomic.Uint64   // bytes that leave quarantine within the lease TTL

	peer    string                        // the peer that it counts for, empty if not known here; applyMu
	leaving atomic.Pointer[chan struct{}] // closed with the outcome of a prepared unmount; primary only

	closing    atomic.Int64 // see closes; changed under applyMu
	offloading bool         // of an SSD: its owner takes objects to copy; applyMu
	wipe       bool         // of an SSD: its owner is to delete all files on it; applyMu

	ssdCapacity atomic.Uint64 // of an SSD: bytes, 0 if not known
	ssdUsed     atomic.Int64  // of an SSD: bytes of the objects on it
}

// closes returns when the primary may unmount a segment, which takes no new objects
// before that; 0 if the segment is open.
func (p *segmentState) closes() Time { return Time(p.closing.Load()) }

// memory counts the bytes of the mounted segments.
type memory struct {
	all, open uint64        // open: of segments that take new objects
	busy      atomic.Uint64 // allocated on open segments
}

// setOpen records whether a segment takes new objects from now on.
func (s *Store) setOpen(p *segmentState, open bool) {
	if p.open == open {
		return
	}
	if p.open = open; open {
		s.memory.open += p.Capacity()
		p.CountIn(&s.memory.busy)
	} else {
		s.memory.open -= p.Capacity()
		p.CountIn(nil)
	}
	s.quarantine.countOpen(p, open)
}

// New returns an empty store, before its first commit.
func New(opts Options) *Store {
	s := &Store{
		hash:       keyHash{maphash.MakeSeed()},
		slab:       slab.New(cmp.Or(opts.recordBytes, slab.MaxBytes)),
		pool:       segment.NewPool(opts.Strategy, opts.Random),
		segments:   make(map[segment.Number]*segmentState),
		mounts:     newMounts(),
		claims:     newClaims(),
		localDisks: localDisks{byClient: make(map[segment.ClientID]*segmentState), byNumber: make(map[segment.Number]*segmentState)},
		quarantine: newQuarantine(opts.quarantineSlice),
		groups:     make(map[groupKey][]*group),
		tasks:      tasks{byID: make(map[TaskID]*Task), waiting: make(map[segment.ClientID]int)},
		watch:      watch{by: opts.Watcher},
		peers:      peers{of: make(map[string]*Use), writers: make(map[segment.ClientID]*writer)},
		pinEnds:    ordered.NewSet(pinEnd.before),
		requests:   requestLog{known: ordered.NewMap[uint64, uint64]()},
	}
	deadline := func(o object) Time { return o.deadline }
	s.newIndex(inUnpinned, deadline)
	s.newIndex(inPinned, deadline)
	s.newIndex(inReservations, func(o object) Time { return o.putStart })
	s.newIndex(inTransfers, func(o object) Time { return o.transfer().started })
	for i := range s.shards {
		s.shards[i].store = s
	}
	s.pool.FreeOnSSD = s.freeOnSSD
	s.inForce.Store(&termState{rules: FirstRules})
	return s
}

// A Position says how far a store has come, and the digest of its state there.
type Position struct {
	Seq    Seq
	Term   Term
	Time   Time
	Digest Digest
}

// Position returns where the store stands.
func (s *Store) Position() Position {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return s.position()
}

func (s *Store) position() Position {
	return Position{Seq: s.seq, Term: s.inForce.Load().term, Time: s.now, Digest: s.digest}
}

// Params returns the times in force in the current term.
func (s *Store) Params() Params { return s.inForce.Load().Params }

// Lease returns the TTL that readers get in the current term, and how long the
// store itself honours such a lease (Params.HoldTime), in cluster time.
func (s *Store) Lease() (ttl time.Duration, hold Time) {
	term := s.inForce.Load()
	return term.LeaseTTL, term.hold
}

// GuardUntil returns the time until which all freed memory stays in quarantine, because
// the previous primary may have granted leases that this one does not know. It is past
// most of the time.
func (s *Store) GuardUntil() Time { return s.inForce.Load().guardUntil }

// MountsHeldFor returns how long memory that is mounted now stays in quarantine, counted
// from the last commit, because the term started empty or from a fork; 0 if it did not.
func (s *Store) MountsHeldFor() time.Duration {
	term := s.inForce.Load()
	if !term.startedEmpty {
		return 0
	}
	return time.Duration(max(0, term.guardUntil-s.Time())) * time.Millisecond
}

// Time returns the time of the last commit. Ranges whose quarantine ends by then are
// free, or will be with the next commits (Releasing). Ranges whose quarantine ends later
// are not, whatever the clock says.
func (s *Store) Time() Time { return Time(s.lastTime.Load()) }

// Releasing reports whether ranges whose quarantine has ended still wait for a commit to
// free them: one commit frees a limited number. Until then no put gets them.
func (s *Store) Releasing() bool { return s.releasing.Load() }

// ReleasesAt reports whether a commit of that time frees ranges.
func (s *Store) ReleasesAt(t Time) bool {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	return s.quarantine.due(t)
}

// StartAt places an empty store at the end of a journal whose state is lost,
// so that the next commit is the first entry of a term that starts empty.
func (s *Store) StartAt(seq Seq, now Time) error {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if s.seq != 0 || s.counts.objects.Load() != 0 {
		return fmt.Errorf("a store at sequence %d is not empty", s.seq)
	}
	s.seq, s.now = seq, now
	s.lastTime.Store(int64(now))
	s.digests.add(seq, s.digest)
	return nil
}

// counters are figures for people and policies, kept up to date by apply and
// read without its lock.
type counters struct {
	objects   atomic.Int64 // under a key, reservations included
	softPins  atomic.Int64 // in the pinned index
	memory    atomic.Int64 // complete memory replicas
	disk      atomic.Int64 // complete disk replicas
	localDisk atomic.Int64 // replicas on clients' SSDs
	evicted   atomic.Int64 // objects evicted, ever
	diskBytes atomic.Int64 // bytes of the complete disk replicas
	discarded atomic.Int64 // reservations discarded, ever
	goes      atomic.Int64 // objects with flagGoes
	// Memory of discarded reservations: bytes in quarantine, and ranges that have left
	// it. They leave out a state that a snapshot has replaced.
	discardedBytes, discardsFreed atomic.Int64
	released                      atomic.Int64 // ranges that left quarantine, ever
}
