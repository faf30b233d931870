package leasesync

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// A Journal commits changes.
type Journal interface {
	Submit(ctx context.Context, changes ...metadata.Change) ([]error, error)
}

// Leases are the leases of readers on a primary, during one term. A read extends
// a lease in memory and marks the object; Run has the marked leases journaled.
type Leases struct {
	Store    *metadata.Store
	Journal  Journal
	Interval time.Duration // between scans, at least 50 ms
	// CriticalWindow is how close the journaled end of a lease must be for a
	// renewal to be critical; 0 makes none critical for that reason.
	CriticalWindow time.Duration
	// CriticalExpired makes a renewal critical also when the journaled end has
	// passed: under the expiry policy, and where a takeover cleans up.
	CriticalExpired bool
	// CriticalDelay is how long a critical renewal waits for others to join it.
	CriticalDelay time.Duration
	Counters      *Counters
	Log           zerolog.Logger

	wake  chan struct{} // signals that a critical renewal waits
	found int           // renewals that the last scan found; for Scan alone
}

// Counters count renewals, on this node, ever.
type Counters struct {
	Scans         atomic.Int64
	CriticalScans atomic.Int64 // scans that a critical renewal asked for
	Critical      atomic.Int64 // critical renewals
	Committed     atomic.Int64 // renewals in commits
	Failed        atomic.Int64 // scans that could not commit all
	Applied       atomic.Int64 // renewals that this node applied as a follower
	Synced        atomic.Int64 // full syncs of this node as a follower
	Differed      atomic.Int64 // renewals that a full sync found missing
}

// New returns leases that are ready to be granted.
func New(l Leases) *Leases {
	l.wake = make(chan struct{}, 1)
	return &l
}

// GetReplicaList returns the readable replicas of an object and extends its
// lease in memory. It marks the object for the next scan, and writes nothing.
//
// While a mutation of the object waits for its commit, it returns a channel that
// is closed with the outcome: the caller waits and asks again. Errors:
// ObjectNotFound, ReplicaNotReady.
func (l *Leases) GetReplicaList(tenant, key string, now metadata.Time) (metadata.ReplicaList, <-chan struct{}, error) {
	return l.get(l.Store.Lock(tenant, key), now)
}

// BatchGetReplicaList is GetReplicaList for the i-th of several lookups.
func (l *Leases) BatchGetReplicaList(lookups *metadata.Lookups, i int, now metadata.Time) (metadata.ReplicaList, <-chan struct{}, error) {
	return l.get(lookups.Lock(i), now)
}

// get unlocks the entry.
func (l *Leases) get(e metadata.Entry, now metadata.Time) (metadata.ReplicaList, <-chan struct{}, error) {
	defer e.Unlock()
	if !e.Exists() {
		return metadata.ReplicaList{}, nil, errs.ObjectNotFound
	}
	if outcome := e.Outcome(); outcome != nil {
		return metadata.ReplicaList{}, outcome, nil
	}
	if !e.Readable() {
		return metadata.ReplicaList{}, nil, errs.ReplicaNotReady
	}
	return e.ReplicaList(l.renew(e, now)), nil, nil
}

// Exists reports whether an object has a readable replica. If so it extends the
// lease, unless a mutation of the object waits for its commit.
func (l *Leases) Exists(tenant, key string, now metadata.Time) bool {
	return l.exists(l.Store.Lock(tenant, key), now)
}

// BatchExists is Exists for the i-th of several lookups.
func (l *Leases) BatchExists(lookups *metadata.Lookups, i int, now metadata.Time) bool {
	return l.exists(lookups.Lock(i), now)
}

// exists unlocks the entry.
func (l *Leases) exists(e metadata.Entry, now metadata.Time) bool {
	defer e.Unlock()
	if !e.Readable() {
		return false
	}
	if !e.Busy() && e.Outcome() == nil { // an unmount under way has an outcome, too
		l.renew(e, now)
	}
	return true
}

// renew extends an object's lease and marks it for the next scan. It returns the
// TTL for the reader.
func (l *Leases) renew(e metadata.Entry, now metadata.Time) time.Duration {
	ttl, hold := l.Store.Lease()
	if !e.Grant(now+hold, now) {
		return ttl
	}
	e.Mark()
	if l.critical(e.JournaledEnd(), now) {
		l.Counters.Critical.Add(1)
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return ttl
}

// critical reports whether a renewal cannot wait for the next scan: after a
// failover before that scan, the lease that a reader holds would have ended, or
// its object would be cleaned up.
func (l *Leases) critical(journaled, now metadata.Time) bool {
	if journaled <= now {
		return l.CriticalExpired
	}
	return journaled.Sub(now) <= l.CriticalWindow
}

// Run scans for marked leases once per interval, and early when a renewal is
// critical, until the context ends. After a failure the marks remain for the next
// scan.
func (l *Leases) Run(ctx context.Context) error {
	tick := time.NewTicker(l.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-l.wake:
			l.Counters.CriticalScans.Add(1)
			if err := l.join(ctx); err != nil {
				return err
			}
		}
		if err := l.Scan(ctx); err != nil && ctx.Err() == nil {
			l.Counters.Failed.Add(1)
			if !errors.Is(err, errs.NotLeader) { // else the term ends anyway
				l.Log.Warn().Err(err).Msg("lease renewals could not be written; the next scan tries again")
			}
		}
	}
}

// join waits for further critical renewals, so that one scan commits them all.
func (l *Leases) join(ctx context.Context) error {
	if err := clock.Sleep(ctx, min(l.CriticalDelay, l.Interval)); err != nil {
		return err
	}
	select {
	case <-l.wake:
	default:
	}
	return nil
}

const (
	// minRound and maxRound bound the renewals that are submitted at once: small rounds
	// hold up the commits of others least, and large ones take fewer writes to etcd.
	minRound = 3 * MaxBatch
	maxRound = 24 * MaxBatch
	// scanRounds is the number of rounds of a scan that finds as much as the one before.
	scanRounds = 16
	// roundBytes bounds a round in the journal. With one batch more, of the longest
	// numbers (78 kB), it is still below what may be submitted at once.
	roundBytes = 160 << 10
)

// Scan commits all marked renewals, in rounds. It is not safe for concurrent use.
func (l *Leases) Scan(ctx context.Context) error {
	l.Counters.Scans.Add(1)
	found, size := 0, min(max(l.found/scanRounds, minRound), maxRound)
	defer func() { l.found = found }()
	return EachRound(l.Store, size, func(renewals []Renewal) error {
		found += len(renewals)
		for changes := Pack(renewals); len(changes) > 0; {
			n := fitting(changes)
			if _, err := l.Journal.Submit(ctx, changes[:n]...); err != nil {
				return err
			}
			for _, c := range changes[:n] {
				l.Counters.Committed.Add(int64(len(c.(*Batch).Renewals)))
			}
			changes = changes[n:]
			runtime.Gosched() // calls go first, where a commit makes nobody wait
		}
		return nil
	})
}

// fitting returns how many batches are submitted at once: at least one.
func fitting(batches []metadata.Change) (n int) {
	var coder binenc.Coder
	for bytes := 0; n < len(batches) && bytes < roundBytes; n++ {
		coder = binenc.Encoder(coder.Encoded()[:0])
		batches[n].Code(&coder)
		bytes += len(coder.Encoded())
	}
	return n
}

// EachRound collects the marked renewals of a store, about limit at a time, and
// passes them to commit, which must not keep them. It returns commit's first
// error.
//
// A mark is removed only when a later scan finds the renewal journaled and the
// lease not renewed again. So what is not committed is collected again.
func EachRound(store *metadata.Store, limit int, commit func([]Renewal) error) error {
	var renewals []Renewal
	collect := func(e metadata.Entry) (keep bool) {
		if e.LeaseEnd() <= e.JournaledEnd() {
			return false
		}
		renewals = append(renewals, Renewal{e.Ref(), e.LeaseEnd()})
		return true
	}
	for shard := 0; shard < metadata.ShardCount; {
		renewals = renewals[:0]
		for ; shard < metadata.ShardCount && len(renewals) < limit; shard++ {
			store.EachMarked(shard, collect)
			runtime.Gosched() // calls go first
		}
		if len(renewals) == 0 {
			continue
		}
		if err := commit(renewals); err != nil {
			return err
		}
	}
	return nil
}
