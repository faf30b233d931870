package eviction

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

const (
	// leastSlice bounds the objects of one cutoff: selecting them, or applying it, keeps
	// others from the state for about a millisecond. While commits are slow, a cutoff
	// takes more, up to mostSlice, see sliceAfter.
	leastSlice = 512
	mostSlice  = 2048
	// perSecond bounds evictions. A fleet may need up to 130,000 a second.
	perSecond = 200_000
	// reapEvery is the interval between two searches for abandoned puts.
	reapEvery = time.Second
	// reapSlice bounds the puts that are discarded at once.
	reapSlice = 1024
)

// A Loop evicts, and discards abandoned puts, on a primary.
type Loop struct {
	Store   *metadata.Store
	Journal leasesync.Journal
	Policy  Policy
	Every   time.Duration // interval between rounds; 10 ms in the C++ master
	Now     func() metadata.Time

	// Spare gets the objects that the next pass would evict, and may make the store spare
	// some of them; nil for none.
	Spare func([]metadata.Ref)

	Counters *Counters
	Log      zerolog.Logger

	armed   atomic.Bool
	limiter *rate.Limiter
}

// Counters count evictions, on this node as a primary, ever.
type Counters struct {
	Attempted  atomic.Int64 // rounds
	Successful atomic.Int64 // rounds that evicted something
	Cutoffs    atomic.Int64
	Objects    atomic.Int64 // evicted
	Bytes      atomic.Int64 // of memory they held
	NearMisses atomic.Int64 // renewals journaled for a cutoff
	Discarded  atomic.Int64 // abandoned puts
	// Idle is how long ago, in milliseconds, the lease of the youngest object under the
	// newest cutoff had ended: the shortest time that an evicted object was idle.
	Idle atomic.Int64
}

// NewLoop returns a loop that is ready to run.
func NewLoop(l *Loop) *Loop {
	l.limiter = rate.NewLimiter(perSecond, 2*mostSlice)
	return l
}

// AllocationFailed asks for a round, because a put of size bytes found no room. asOf is
// the store's Time before the attempt. If the put found no room for its key, size is
// math.MaxUint64: no memory that comes free is enough then. Such a put evicts nothing if
// most objects have a copy on a disk, because their keys would stay: repeated puts would
// empty the memory, and still find no room.
//
// During the guard, most often the first lease TTL of a term, it does nothing while
// memory about to leave quarantine would hold the object. Evicted memory would wait in
// quarantine too, and repeated puts would empty the cache. The commit that frees the
// memory comes up to a beat after the guard's end. Until then AllocationFailed still does
// nothing, because a round would evict the first objects put afterwards. The same holds
// while more ranges may leave quarantine than one commit frees.
func (l *Loop) AllocationFailed(size uint64, asOf metadata.Time) {
	guard := l.Store.GuardUntil()
	switch {
	case l.armed.Load():
	case size == math.MaxUint64 && !keysGo(l.Store.Stats()):
	case l.Store.Releasing() && l.Store.Stats().LeavingSoon >= size:
		// The next commits free it.
	case asOf < guard && (l.leaving(guard) >= size || l.Store.Time() >= guard):
		// There is room now, or will be.
	default:
		l.armed.Store(true)
	}
}

// keysGo reports whether at least half of the objects that may be evicted go with their
// keys.
func keysGo(st metadata.Stats) bool { return 2*st.KeysEvictable >= st.Evictable }

// leaving returns the bytes that leave quarantine about when the guard ends. A guard
// that lasts longer than leases are held waits for writers (Params.ReleaseTimeout): all
// that is in quarantine counts then.
func (l *Loop) leaving(guard metadata.Time) uint64 {
	st, now := l.Store.Stats(), l.Store.Time()
	if _, hold := l.Store.Lease(); guard-now > hold {
		return st.Quarantined
	}
	return st.LeavingSoon
}

// Run works until the context ends.
func (l *Loop) Run(ctx context.Context) error {
	tick, reap := time.NewTicker(l.Every), time.NewTicker(reapEvery)
	defer tick.Stop()
	defer reap.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			_, err = l.Round(ctx)
		case <-reap.C:
			err = l.reap(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, errs.NotLeader) {
			l.Log.Warn().Err(err).Msg("eviction failed and will be tried again")
			if err := clock.Sleep(ctx, reapEvery); err != nil {
				return err
			}
		}
	}
}

// Round evicts what the policy plans now, and returns how many objects. It first
// evicts objects without a soft pin, oldest first. If those are fewer than
// Plan.Least, it evicts soft-pinned objects too. A request by AllocationFailed is
// done when an object was evicted, or none can be.
func (l *Loop) Round(ctx context.Context) (int, error) {
	st := l.Store.Stats()
	plan := l.Policy.Plan(st, l.armed.Load())
	if plan.Target == 0 {
		if st.Evictable == 0 {
			l.armed.Store(false)
		}
		return 0, nil
	}
	l.Counters.Attempted.Add(1)
	n, err := l.evict(ctx, plan.Target, Bounds{})
	if err == nil && n < plan.Least {
		var more int
		more, err = l.evict(ctx, plan.Least-n, Bounds{IncludePinned: true})
		n += more
	}
	if n > 0 {
		l.Counters.Successful.Add(1)
	}
	if n > 0 || st.Evictable == 0 {
		l.armed.Store(false)
	}
	return n, err
}

// evict evicts up to n objects, a slice at a time.
func (l *Loop) evict(ctx context.Context, n int, b Bounds) (int, error) {
	evicted := 0
	for slice := leastSlice; evicted < n; {
		begun := l.Now()
		b.Objects = min(slice, n-evicted)
		if l.Spare != nil {
			l.Spare(next(l.Store, b))
		}
		pass := Select(l.Store, b)
		if pass == nil {
			return evicted, nil
		}
		if err := l.commit(ctx, pass); err != nil {
			return evicted, err
		}
		runtime.Gosched() // calls go first, where a commit makes nobody wait
		evicted, slice = evicted+pass.Victims, sliceAfter(l.Now()-begun)
		if pass.Victims == 0 && !pass.More {
			return evicted, nil // near misses only: they are safe now
		}
		if err := l.wait(ctx, max(pass.Victims, 1)); err != nil {
			return evicted, err
		}
	}
	return evicted, nil
}

// sliceAfter returns how many objects the next cutoff may take, after a pass that took so
// long, its commits included: as many as keep up perSecond, within the bounds.
func sliceAfter(took metadata.Time) int {
	return int(min(max(leastSlice, int64(took)*perSecond/1000), mostSlice))
}

// wait waits until n more objects may have been evicted. With groups they may be more
// than a slice, and more than the limiter lets through at once.
func (l *Loop) wait(ctx context.Context, n int) error {
	for ; n > 0; n -= mostSlice {
		if err := l.limiter.WaitN(ctx, min(n, mostSlice)); err != nil {
			return err
		}
	}
	return nil
}

// commit journals the near misses, and only then the cutoff [model].
func (l *Loop) commit(ctx context.Context, pass *Pass) error {
	for _, c := range leasesync.Pack(pass.NearMisses) {
		if _, err := l.Journal.Submit(ctx, c); err != nil {
			pass.Cutoff.Abort(l.Store)
			return err
		}
	}
	l.Counters.NearMisses.Add(int64(len(pass.NearMisses)))
	if pass.Victims == 0 {
		pass.Cutoff.Abort(l.Store)
		return nil
	}
	if _, err := l.Journal.Submit(ctx, pass.Cutoff); err != nil {
		return err
	}
	l.Counters.Cutoffs.Add(1)
	l.Counters.Idle.Store(max(0, int64(l.Now()-pass.Cutoff.Deadline)))
	l.Counters.Objects.Add(int64(pass.Victims))
	l.Counters.Bytes.Add(int64(pass.Bytes))
	return nil
}

// reap discards puts, and ends copies and moves, that were abandoned for longer
// than the release timeout.
func (l *Loop) reap(ctx context.Context) error {
	for {
		discards, ended := l.Store.PrepareDiscards(l.Now(), reapSlice), l.Store.PrepareTransferTimeouts(l.Now(), reapSlice)
		if len(discards)+len(ended) == 0 {
			return nil
		}
		changes := make([]metadata.Change, 0, len(discards)+len(ended))
		for _, e := range discards {
			changes = append(changes, e)
		}
		for _, e := range ended {
			changes = append(changes, e)
		}
		if _, err := l.Journal.Submit(ctx, changes...); err != nil {
			return err
		}
		l.Counters.Discarded.Add(int64(len(discards)))
	}
}
