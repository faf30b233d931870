// Package service holds the use cases of the master, typed, behind any front
// end: what each call means, which errors it gives, and what it waits for.
//
// A Master serves the calls of one term. It decides against the store, has
// changes committed through the journal's queue, and answers only what is
// committed and only while the node may serve: each call is fenced before it
// begins, and each answer that was read from memory once more when it is built.
//
// The package knows no transport. A call runs on the goroutine of its caller; only what
// must be done alone, such as a mount, goes on to its end when the caller has gone.
package service

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/journal/nowait"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Limits of a call. Key and tenant limits are metadata's.
const (
	MaxBatchItems = 1 << 17 // items of a batch; commit works it off in rounds of some thousands
	MaxReMounts   = 1 << 17 // segments of a ReMountSegment, which must name all that its client has
	MaxRegexBytes = 4096    // bytes of a pattern
	MaxPreferred  = 1024    // segment names that a put prefers; each item looks at all of them
)

// Settings are the rules that a node applies to calls. What all nodes must
// agree on stands in metadata.Params instead.
type Settings struct {
	ClusterID string
	RootFSDir string // adds a disk replica to each put, unless empty
	// What clients do with the files of disk replicas: whether they delete some when
	// there are too many, and how many bytes are too many; 0 for most of the disk.
	DiskEviction bool
	DiskQuota    uint64
	SoftPinTTL   time.Duration // of a put that asks for a soft pin without saying how long
	MaxSoftPin   time.Duration // the longest soft pin a put may ask for
	Version      string        // of this program
	// LocalFirst has a put of one replica try the segments of its writer's host first,
	// after those that it prefers.
	LocalFirst bool
	// Offload has objects copied to the SSDs of clients that offer one; at most
	// OffloadQueue wait for one client. With OffloadOnEvict they are queued when eviction
	// would take them (see SpareForOffload), and not at the end of their put.
	Offload        bool
	OffloadQueue   int
	OffloadOnEvict bool
	// Tenants turns tenants and their quotas on. A tenant that uses more than
	// TenantWatermark of its quota (0 for no such bound) loses objects until it uses
	// TenantRatio less; it loses softly pinned ones only with EvictSoftPinned.
	Tenants         Tenants
	TenantWatermark float64
	TenantRatio     float64
	EvictSoftPinned bool
	// InitialQuotas are set by the first primary that finds no quota at all.
	InitialQuotas []metadata.TenantQuota
	Promotion     Promotion // of objects on SSDs, with Offload only
	Replication   Replication
	Scans         *Scans // of this node; nil for no bound
	Shares        Shares
}

// A Master serves the calls of one term. It is safe for concurrent use. What is
// exported is set before NewMaster and stays as it is.
type Master struct {
	Settings
	Term   metadata.Term
	Store  *metadata.Store
	Leases *leasesync.Leases
	Queue  *journal.Queue
	Now    func() metadata.Time // the cluster clock
	// Fence returns nil while this node may serve. It may wait for that, until the
	// context ends at the latest; else it returns NotLeader.
	Fence    func(ctx context.Context) error
	Answers  func() bool // this node may serve now
	Liveness *Liveness
	Counters *Counters
	Hot      *HotKeys // what is read most, on this node ever; nil for nothing
	// AllocationFailed is called when a put of size bytes found no room in the store,
	// which stood at asOf then, so that an eviction pass makes some. The size is
	// math.MaxUint64 if there was no room for the key.
	AllocationFailed func(size uint64, asOf metadata.Time)
	// RemovedMany is called when RemoveByRegex or RemoveAll has ended and removed something,
	// or may have; may be nil. It must return soon.
	RemovedMany func(r RemoveRequest, what, pattern string, result deleteevents.Result, err error)
	// Displaced is called when a mount of a client has taken memory away from another one, or
	// from the same client of another peer, or may have; may be nil. It must return soon.
	Displaced func(by Caller, client segment.ClientID, from metadata.Lender)
	// Expired is called with the names of a client's segments when it has expired; may be
	// nil. It must return soon.
	Expired func(ctx context.Context, names []string)

	tasks     *share.Budget // its place is held while a task is created or changed, until that is applied
	drains    *drains
	segments  *share.Budget // held while a segment or an SSD is mounted or unmounted, until that is applied
	quotas    *share.Budget // held while a quota is set, until that is applied
	evictions *eviction.TenantLoop
	offloads  *offloads
	// promotions is nil if nothing is promoted.
	promotions *promotions
	hot        *hotObjects // nil if reads of objects are not counted
}

// Codec decodes what a master journals: the changes of every story.
func Codec() journal.Codec {
	return journal.Codec{
		metadata.LeaseRenewals: leasesync.Decode,
		metadata.ObjectEvents: func(b []byte) (metadata.Change, error) {
			return metadata.DecodeObjectEvent(b, eviction.NewCutoff)
		},
		metadata.DeleteEvents: deleteevents.Decode,
	}
}

// NewMaster returns a master that is ready to serve.
func NewMaster(m Master) *Master {
	limit := 0
	if m.Offload {
		limit = m.OffloadQueue
	}
	m.tasks, m.segments, m.offloads = places(1), places(1), newOffloads(limit, m.OffloadOnEvict, m.Store)
	m.quotas = places(1)
	m.evictions = eviction.NewTenantLoop(&eviction.TenantLoop{
		Store: m.Store, Journal: quotaEvictions{&m, places(1)}, Now: m.Now,
		Watermark: m.TenantWatermark, Ratio: m.TenantRatio, SoftPins: m.EvictSoftPinned,
	})
	if m.Offload && m.Promotion.On {
		m.promotions = newPromotions(m.Promotion, m.Store, m.Counters)
	}
	m.hot = newHotObjects(m.Replication)
	m.drains = &drains{jobs: make(map[metadata.TaskID]*drainProgress), looks: drainLooks}
	return &m
}

// An outcome is what became of one item of a call.
type outcome struct {
	change metadata.Change // committed and applied, whatever it answered; nil if there was nothing to change
	err    error
}

// overQuota reports whether the item broke the quota of its tenant.
func (o outcome) overQuota() bool { return errs.KindOf(o.err) == errs.TenantQuotaExceeded }

// prepare decides the change of item i at a time of the call. It may have nothing
// to change, return a channel to wait on for another change of the key, or fail.
type prepare func(i int, now metadata.Time) (metadata.Change, <-chan struct{}, error)

// roundBytes bounds what a call submits at once.
const roundBytes = journal.MaxSubmissionBytes / 2

// commit makes the changes of n items, each of about so many bytes in the
// journal, and waits until they are committed and applied.
//
// It works in rounds: it prepares what can be prepared, submits that, and only
// then waits for what other callers hold up. So it never holds up others while
// it waits, and a batch that names a key twice finishes the first put before
// it decides the second.
func (m *Master) commit(ctx context.Context, n, bytes int, prepare prepare) []outcome {
	outcomes, todo := make([]outcome, n), make([]int, n)
	for i := range todo {
		todo[i] = i
	}
	var err error
	for len(todo) > 0 && err == nil {
		size := min(len(todo), max(1, roundBytes/bytes))
		blocked, wait, failed := m.round(ctx, todo[:size], size*bytes, prepare, outcomes)
		if err = failed; err == nil && len(blocked) == size { // nothing can be done before that
			err = await(ctx, wait)
		}
		todo = append(blocked, todo[size:]...)
	}
	for _, i := range todo {
		outcomes[i].err = err
	}
	return outcomes
}

// round prepares and submits some items. It returns the items that must wait, with the
// channel that the first of them waits for, and those that do not fit into this round
// because upserts inherited too many bytes. With an error it returns all items, untouched.
// When the context ends, the items that are not prepared yet fail: a term that ends waits
// for the ticket, and nobody waits for their outcome.
func (m *Master) round(ctx context.Context, items []int, bytes int, prepare prepare, outcomes []outcome) (blocked []int, wait <-chan struct{}, err error) {
	ticket, err := m.Queue.Admit(ctx, bytes)
	if err != nil {
		return slices.Clone(items), nil, err
	}
	defer ticket.Release()
	now := m.Now() // for all: reading a clock costs more than a lookup
	changes, prepared, inherited := make([]metadata.Change, 0, len(items)), make([]int, 0, len(items)), 0
	for k, i := range items {
		if inherited > roundBytes-maxInherited {
			blocked = append(blocked, items[k:]...)
			break
		}
		if ctx.Err() != nil {
			outcomes[i].err = late(ctx.Err())
			continue
		}
		change, busy, err := prepare(i, now)
		switch {
		case busy != nil:
			blocked, wait = append(blocked, i), cmp.Or(wait, busy)
		case err != nil || change == nil:
			outcomes[i].err = m.fenced(ctx, err)
		default:
			changes, prepared = append(changes, change), append(prepared, i)
			inherited += inheritedBytes(change)
		}
	}
	if len(changes) == 0 {
		return blocked, wait, nil
	}
	answers, err := ticket.Submit(ctx, changes...)
	for k, i := range prepared {
		outcomes[i] = m.outcomeOf(changes, answers, k, err)
	}
	return blocked, wait, nil
}

// outcomeOf returns what became of one of the changes that were submitted together.
func (m *Master) outcomeOf(changes []metadata.Change, answers []error, k int, err error) outcome {
	if err != nil {
		return outcome{err: err}
	}
	if answers[k] == nil {
		m.Counters.committed(changes[k])
	}
	return outcome{changes[k], answers[k]}
}

// maxInherited is what inheritedBytes returns at most, about.
const maxInherited = metadata.MaxNameBytes + 16*metadata.MaxReplicas

// inheritedBytes returns how many bytes a change takes in the journal for what it inherits
// from the object that it replaces, which its caller did not know: an upsert keeps the
// group, and an upsert in place also the replicas.
func inheritedBytes(change metadata.Change) int {
	if e, ok := change.(*metadata.PutStart); ok {
		return len(e.Group) + 16*len(e.Placements)
	}
	return 0
}

// An event is what a Prepare method of the store returns.
type event[E any] interface {
	*E
	metadata.Change
}

// decided is what a Prepare method of the store returned, for prepare: it keeps a
// nil pointer from becoming a change.
func decided[E any, P event[E]](e P, wait <-chan struct{}, err error) (metadata.Change, <-chan struct{}, error) {
	if e == nil {
		return nil, wait, err
	}
	return e, nil, nil
}

// commitOne makes one change that waits for no other; none for nil.
func commitOne[E any, P event[E]](ctx context.Context, m *Master, bytes int, prepare func() (P, error)) error {
	return m.commit(ctx, 1, bytes, func(int, metadata.Time) (metadata.Change, <-chan struct{}, error) {
		change, err := prepare()
		return decided(change, nil, err)
	})[0].err
}

// batch fences, checks and counts a call for n items, each with an error of its
// own.
func (m *Master) batch(ctx context.Context, counted Op, op string, n int, do func() []error) ([]error, error) {
	if err := m.begin(ctx, op, n); err != nil {
		return nil, m.Counters.done(counted, err)
	}
	failed := do()
	return failed, m.Counters.doneBatch(counted, failed, nil)
}

func errorsOf(outcomes []outcome) []error {
	failed := make([]error, len(outcomes))
	for i := range outcomes {
		failed[i] = outcomes[i].err
	}
	return failed
}

func late(err error) error {
	return &errs.Error{
		Kind: errs.Unavailable, Op: "prepare", Err: err,
		Detail: "the deadline passed before the change was prepared; nothing was changed, try again",
	}
}

// fenced returns an outcome that was read from memory, or the fence's error: a
// call may have waited, and this node's time may be over.
func (m *Master) fenced(ctx context.Context, outcome error) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	return outcome
}

// CommitsAtOnce reports whether a change of one object waits for nothing but other
// changes of it.
func (m *Master) CommitsAtOnce() bool { return !bool(m.Tenants) && m.Queue.Direct() }

// await waits for another mutation of a key.
func await(ctx context.Context, outcome <-chan struct{}) error {
	if nowait.Asked(ctx) {
		return nowait.Err
	}
	select {
	case <-outcome:
		return nil
	case <-ctx.Done():
		return &errs.Error{
			Kind: errs.Unavailable, Op: "await", Err: ctx.Err(),
			Detail: "another change of the key is being written; nothing was changed, try again",
		}
	}
}

func checkBatch(op string, n int) error {
	if n == 0 {
		return errs.New(errs.InvalidParams, op, "the batch is empty; give at least one item")
	}
	if n > MaxBatchItems {
		return errs.New(errs.InvalidParams, op, "the batch has %d items, at most %d are possible; split it", n, MaxBatchItems)
	}
	return nil
}

func checkKey(op, tenant, key string) error {
	switch {
	case len(key) > metadata.MaxKeyBytes:
		return errs.New(errs.InvalidKey, op, "the key has %d bytes, at most %d are possible; hash long keys", len(key), metadata.MaxKeyBytes)
	case len(tenant) > metadata.MaxTenantBytes:
		return errs.New(errs.InvalidParams, op, "the tenant's name has %d bytes, at most %d are possible", len(tenant), metadata.MaxTenantBytes)
	}
	return nil
}

// A Gate is where front ends find the Master of the term in which this node
// serves, if it does.
type Gate struct {
	master atomic.Pointer[Master]
	hint   atomic.Pointer[Hint]

	mu      sync.Mutex    // guards changed
	changed chan struct{} // closed with the next change
}

// A Hint says who serves instead of this node, as far as it knows.
type Hint struct {
	Term   uint64
	NodeID string
	RPC    string // address; empty if nobody is known to serve
}

// NotLeaderError is the answer of a node that does not serve.
type NotLeaderError struct{ Hint Hint }

func (e *NotLeaderError) Error() string {
	if e.Hint.RPC == "" {
		return "this node does not serve, and it knows of none that does; ask again"
	}
	return "this node does not serve; ask " + e.Hint.RPC
}

func (e *NotLeaderError) Unwrap() error { return errs.NotLeader }

// NewGate returns a gate of a node that does not serve.
func NewGate() *Gate {
	g := &Gate{changed: make(chan struct{})}
	g.hint.Store(new(Hint))
	return g
}

// Open lets calls through to a master.
func (g *Gate) Open(m *Master) {
	g.master.Store(m)
	g.announce()
}

// Close turns calls away, with a hint.
func (g *Gate) Close(h Hint) {
	g.hint.Store(&h)
	g.master.Store(nil)
	g.announce()
}

// SetHint changes the hint for callers that are turned away.
func (g *Gate) SetHint(h Hint) {
	g.hint.Store(&h)
	g.announce()
}

// Changed returns a channel that is closed when the master or the hint may have
// changed since.
func (g *Gate) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

func (g *Gate) announce() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.changed)
	g.changed = make(chan struct{})
}

// Hint returns who serves instead of this node, as far as it knows.
func (g *Gate) Hint() Hint { return *g.hint.Load() }

// Master returns the master, or a *NotLeaderError. It does not check the
// fence; every call does.
func (g *Gate) Master() (*Master, error) {
	m := g.master.Load()
	if m == nil {
		return nil, &NotLeaderError{g.Hint()}
	}
	return m, nil
}

// Serves reports whether this node serves.
func (g *Gate) Serves() bool {
	m := g.master.Load()
	return m != nil && m.Answers()
}

// ClusterTime returns the time of leases as a node with this state knows it: on a
// standby that of the newest commit.
func (g *Gate) ClusterTime(store *metadata.Store) metadata.Time {
	if m, err := g.Master(); err == nil {
		return m.Now()
	}
	return store.Position().Time
}
