package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/lab/hostmem"
)

// A Load is a number of recorded clients at work. Its methods may be called at any time,
// from any goroutine, except those on hosts; Stop must be called.
type Load struct {
	config  Config
	speaks  *mooncake.Generation // see Config.generation
	clock   clock.Clock
	began   time.Duration
	ring    *keyring
	hosts   hostmem.Hosts
	owners  map[string]*owner // of the hosts' memory, by endpoint
	disks   disksOf
	workers []*worker
	limit   *rate.Limiter
	holds   chan sight // leases that are kept to their end
	asked   chan sight // objects that owners are to copy or to move
	seen    tally      // violations found while it works
	did     ownerCounts

	// How often bytes were checked under a lease that held to the end of the reading: as
	// soon as the place was known (looks), and again at the end of the lease (kept). If one
	// is 0, A or L, respectively, was not checked.
	looks, kept atomic.Int64

	// working and watch end with ctx.
	ctx      context.Context // of all calls
	cancel   context.CancelFunc
	working  context.Context // ends when no more calls must begin
	endWork  context.CancelFunc
	watch    context.Context // of probes, and of the checks of kept leases
	unwatch  context.CancelFunc
	stop     sync.Once
	running  sync.WaitGroup // workers
	watching sync.WaitGroup // goroutines that run until watch ends

	mu      sync.Mutex // guards what follows
	records []Record
	term    uint64 // the highest that a client has seen
	primary string // its address
	peers   []peer // nodes that probes ask
	closed  bool   // no more probes begin
	losses  []Loss
	moved   map[client.ObjectID]string // see Rules
	ended   time.Duration              // when the last call had returned; 0 before
}

// Start mounts the hosts' memory and starts the clients. They work until Stop, or until the
// context ends.
//
// Errors: those of mounting.
func Start(ctx context.Context, c Config) (*Load, error) {
	c.setDefaults()
	run := uuid.NewString()[:8]
	l := &Load{
		config: c, speaks: c.generation(), clock: clock.Boot(), owners: make(map[string]*owner), moved: make(map[client.ObjectID]string), holds: make(chan sight, maxHolds), asked: make(chan sight, 1),
		ring: newKeyring(run, c.Keys, !c.NoEviction), hosts: hostmem.New(run, hosts, c.Memory), limit: rate.NewLimiter(rate.Inf, 0),
	}
	if c.Rate > 0 {
		l.limit = rate.NewLimiter(rate.Limit(c.Rate), Clients)
	}
	l.began = l.clock()
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.working, l.endWork = context.WithCancel(l.ctx)
	l.watch, l.unwatch = context.WithCancel(l.ctx)
	if err := l.open(); err != nil {
		l.endWatching()
		l.close()
		return nil, err
	}
	l.watching.Go(func() { l.holdLeases(l.watch) })
	l.watching.Go(func() { l.compareStates(l.watch) })
	for _, address := range c.Probes {
		l.probe(address)
	}
	for _, w := range l.workers {
		l.running.Go(w.work)
	}
	return l, nil
}

func (l *Load) open() error {
	for endpoint, h := range l.hosts {
		if err := l.lend(l.ctx, endpoint, h.Segment, 0); err != nil {
			return fmt.Errorf("mounting the memory of %s: %w", h.Name, err)
		}
	}
	for i := range Clients {
		w, err := newWorker(l, i)
		if err != nil {
			return err
		}
		l.workers = append(l.workers, w)
	}
	return nil
}

// Stop ends the work: it waits for the calls under way, ends the open puts, and reads every
// key that was used once more. It takes as long as the cluster takes to answer; if the
// context ends, it gives up calls. The memory stays mounted until the cluster expires its
// owners.
//
// Stop fails if the cluster does not answer at the end, or if the history is full. The
// history is valid in any case.
func (l *Load) Stop(ctx context.Context) (err error) {
	l.stop.Do(func() {
		unbind := context.AfterFunc(ctx, l.cancel)
		defer unbind()
		l.endWork()
		l.running.Wait()
		l.endWatching()
		l.checkHolds()
		err = l.lookAtAll()
		if l.full() {
			err = errors.Join(err, fmt.Errorf("the history is full with %d calls; give a lower rate, less time, or a higher MaxCalls", l.config.MaxCalls))
		}
		l.mu.Lock()
		l.ended = l.Now()
		l.mu.Unlock()
		l.close()
	})
	return err
}

// tenants reports whether some clients are Tenant's.
func (l *Load) tenants() bool { return !l.config.Old && l.speaks.Fields.Tenants }

// endWatching ends the probes and the holding of leases.
func (l *Load) endWatching() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.unwatch()
	l.watching.Wait()
}

// lookAtAll reads every key that was ever used.
func (l *Load) lookAtAll() error {
	keys := map[string]chan *key{"": make(chan *key, Clients), Tenant: make(chan *key, Clients)}
	var looking errgroup.Group
	for _, w := range l.workers {
		looking.Go(func() (err error) {
			for k := range keys[w.tenant] {
				if err == nil { // after an error, only drain the channel
					err = w.get(k)
				}
			}
			return err
		})
	}
	for tenant, list := range keys {
		if tenant == "" || l.tenants() {
			for _, k := range l.ring.ever() {
				list <- k
			}
		}
		close(list)
	}
	if err := looking.Wait(); err != nil {
		return fmt.Errorf("the last look at all keys came to nothing; the cluster must serve when the load ends: %w", err)
	}
	return nil
}

func (l *Load) close() {
	l.cancel()
	for _, w := range l.workers {
		w.client.Close()
	}
	for _, o := range l.owners {
		o.kill()
	}
}

// Now returns the time on the load's clock, which is monotonic and runs also while the
// machine is suspended.
func (l *Load) Now() time.Duration { return l.clock() - l.began }

// Mark records an event in the history, for people.
func (l *Load) Mark(what string) {
	now := l.Now()
	l.add(Record{Call: Mark, Key: what, Start: now, End: now, Outcome: OK})
}

// MayLose records that from now on the cluster may lose everything, because the drill takes
// away its last complete node. The drill calls the returned function when the cluster serves
// again: objects that are put from then on must not be lost.
func (l *Load) MayLose(why string) (over func()) {
	l.Mark("all may be lost: " + why)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losses = append(l.losses, Loss{From: l.Now(), To: forever})
	i := len(l.losses) - 1
	return func() {
		l.Mark("what is put from now on must last")
		l.mu.Lock()
		defer l.mu.Unlock()
		l.losses[i].To = l.Now()
	}
}

// lostSince reports whether everything may have been lost since a time. Then nobody may write
// to memory that was reserved before.
func (l *Load) lostSince(when time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.losses, func(loss Loss) bool { return loss.Host == "" && loss.To >= when })
}

// A watcher observes a client.
type watcher struct {
	load     *Load
	term     atomic.Uint64 // the highest that the client has seen
	attempts atomic.Int64  // of the last call
}

func (w *watcher) Call(method string, attempts int, _ errs.Kind, _ time.Duration) {
	if method != "Ping" && method != "ReMountSegment" { // these run in the background
		w.attempts.Store(int64(attempts)) // atomic, since an owner mounts and unmounts while it works
	}
}

func (w *watcher) LeaderChanged(leader client.Leader) {
	for old := w.term.Load(); leader.Term > old && !w.term.CompareAndSwap(old, leader.Term); old = w.term.Load() {
	}
	w.load.leader(leader)
}

// Remounted notes that the cluster had forgotten a host.
func (w *watcher) Remounted(segments int, err error) {
	w.load.Mark(fmt.Sprintf("%d segments were mounted again: %v", segments, errs.KindOf(err)))
}

// leader records a primary that answers, in the history if no client saw it before.
func (l *Load) leader(leader client.Leader) {
	l.mu.Lock()
	first := leader.Term > l.term
	if leader.Term >= l.term {
		l.term, l.primary = leader.Term, leader.Address
	}
	l.mu.Unlock()
	if first {
		now := l.Now()
		r := Record{
			Call: Mark, Key: fmt.Sprintf("%s at %s serves in term %d", leader.NodeID, leader.Address, leader.Term),
			Start: now, End: now, Outcome: OK, Term: leader.Term,
		}
		if l.config.unnumbered() {
			r.Key, r.Term = fmt.Sprintf("%s serves in view %d", leader.Address, leader.Term), 0
		}
		l.add(r)
		if len(l.config.Probes) == 0 {
			l.probe(leader.Address)
		}
	}
}
