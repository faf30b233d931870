package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/hostmem"
	"github.com/understudy-store/understudy/lab/trace"
)

// Config says what is played, and against which cluster.
type Config struct {
	Client   client.Config // addresses and cluster; the rest is the replay's own
	Trace    *trace.Trace
	Workers  int     // LLM servers that work at the same time
	Hosts    int     // hosts that lend memory
	Capacity float64 // memory that hosts lend, divided by the size of the trace's distinct blocks
	Block    int     // bytes of a block
	Speed    float64 // of the trace's timestamps; 0 plays as fast as possible
	Seed     uint64
	Prefix   string // of keys; two replays against one cluster need different ones
	// OnTaken is called with the number of requests taken so far, by the worker
	// that takes the next one.
	OnTaken func(n int)
}

// Request counts of one request.
type requestCount struct{ hits, blocks int32 }

// A Player plays a trace.
type Player struct {
	Config
	clock   clock.Clock
	hosts   hostmem.Hosts
	clients []*client.Client // of the hosts, then of workers that have clients of their own
	mounted []uuid.UUID      // the segments of the hosts
	meter   *meter
	judge   *judge
	holds   chan hold
	verify  chan struct{} // sent to for a new primary: look for acknowledged puts

	next    atomic.Int64 // index of the next request
	counts  []requestCount
	noRoom  atomic.Int64
	removes atomic.Int64
	began   time.Duration
	took    time.Duration
}

// New returns a player that has mounted its hosts' memory.
func New(ctx context.Context, c Config) (*Player, error) {
	p := &Player{
		Config: c, clock: clock.Boot(), holds: make(chan hold, maxHolds),
		verify: make(chan struct{}, 1), counts: make([]requestCount, len(c.Trace.Requests)),
	}
	p.meter = newMeter(p.clock, p.newTerm)
	room := int(float64(p.Trace.Stats().Distinct) * c.Capacity)
	p.judge = newJudge(room)
	bytes := uint64(room) * uint64(c.Block)
	p.hosts = hostmem.New("host", c.Hosts, max(bytes/uint64(c.Hosts), 64<<10))
	for _, h := range p.hosts {
		config := c.Client
		config.Observer = p.meter
		cl, err := client.New(config)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.clients = append(p.clients, cl)
		err = cl.MountSegment(ctx, client.Segment{
			ID: h.Segment, Name: h.Name, Base: h.Base, Size: h.Size(), Endpoint: h.Endpoint, Protocol: "tcp",
		})
		if err != nil {
			_ = p.Unmount(ctx)
			p.Close()
			return nil, fmt.Errorf("mounting the memory of %s: %w", h.Name, err)
		}
		p.mounted = append(p.mounted, h.Segment)
	}
	if err := p.addWorkers(); err != nil {
		return nil, err
	}
	return p, nil
}

// addWorkers gives each worker a client of its own if calls have no request ids. Two puts of
// one key by one client could not be told apart then.
func (p *Player) addWorkers() error {
	if t := p.Client.Transport; t == nil || t.RequestIDs() {
		return nil
	}
	for range p.Workers {
		config := p.Client
		config.Observer = p.meter
		c, err := client.New(config)
		if err != nil {
			p.Close()
			return err
		}
		p.clients = append(p.clients, c)
	}
	return nil
}

func (p *Player) clientOf(worker int) *client.Client {
	if own := p.clients[p.Hosts:]; len(own) > 0 {
		return own[worker]
	}
	return p.clients[worker%len(p.clients)]
}

// unmountTimeout bounds how long unmounting the memory of all hosts may take.
const unmountTimeout = 5 * time.Second

// Unmount unmounts the hosts' memory, even if the context has ended. Otherwise the master
// would keep the memory for its --client_ttl.
func (p *Player) Unmount(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unmountTimeout)
	defer cancel()
	var failed []error
	for i, segment := range p.mounted {
		failed = append(failed, p.clients[i].UnmountSegment(ctx, segment))
	}
	return errors.Join(failed...)
}

// Close ends the clients.
func (p *Player) Close() {
	for _, c := range p.clients {
		c.Close()
	}
}

// newTerm requests a check of the acknowledged puts, unless no request was taken yet.
func (p *Player) newTerm(uint64) {
	if p.next.Load() == 0 {
		return
	}
	select {
	case p.verify <- struct{}{}:
	default:
	}
}

// Run plays the whole trace. An error means that the replay could not go on;
// broken promises are in the result.
func (p *Player) Run(ctx context.Context) error {
	p.began = p.clock()
	work, stop := context.WithCancel(ctx)
	defer stop()
	var watchers sync.WaitGroup
	watchers.Go(func() { p.holdLeases(work) })
	watchers.Go(func() { p.verifyPuts(work) })
	g, playing := errgroup.WithContext(work)
	for w := range p.Workers {
		g.Go(func() error { return p.work(playing, w) })
	}
	err := g.Wait()
	p.took = p.clock() - p.began
	if err == nil {
		err = p.lookForPuts(ctx) // after a failover in the last moment
	}
	stop()
	watchers.Wait()
	return err
}

func (p *Player) work(ctx context.Context, number int) error {
	w := &worker{
		Player: p, client: p.clientOf(number), rng: rand.New(rand.NewPCG(p.Seed, uint64(number))),
		block: make([]byte, p.Block), scratch: make([]byte, p.Block),
	}
	for ctx.Err() == nil {
		n := int(p.next.Add(1)) - 1
		if n >= len(p.Trace.Requests) {
			return nil
		}
		if p.OnTaken != nil {
			p.OnTaken(n)
		}
		if err := w.pace(ctx, p.Trace.Requests[n]); err != nil {
			return err
		}
		if err := w.request(ctx, n, p.Trace.Requests[n]); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
	}
	return ctx.Err()
}

// A worker is an LLM server.
type worker struct {
	*Player
	client         *client.Client
	rng            *rand.Rand
	block, scratch []byte
}

func (w *worker) pace(ctx context.Context, r trace.Request) error {
	if w.Speed <= 0 {
		return nil
	}
	due := w.began + time.Duration(float64(r.At)/w.Speed)
	return clock.Sleep(ctx, due-w.clock())
}

// request looks up a request's blocks, reads those that exist and puts the others.
func (w *worker) request(ctx context.Context, n int, r trace.Request) error {
	keys := w.keys(r)
	hits, misses, err := w.read(ctx, keys)
	if err != nil {
		return err
	}
	w.counts[n] = requestCount{int32(hits), int32(len(keys))}
	if err := w.putAll(ctx, misses); err != nil {
		return err
	}
	if w.rng.IntN(removeEvery) == 0 {
		return w.remove(ctx, keys[w.rng.IntN(len(keys))])
	}
	return nil
}

// removeEvery is the number of requests for each removal. A third of the removals is forced.
const removeEvery = 50

// keys are the distinct keys of a request's blocks, in order.
func (w *worker) keys(r trace.Request) []string {
	keys := make([]string, 0, len(r.Blocks))
	for _, b := range r.Blocks {
		keys = append(keys, fmt.Sprintf("%sblock/%d", w.Prefix, b))
	}
	seen := make(map[string]struct{}, len(keys))
	return slices.DeleteFunc(keys, func(k string) bool {
		_, twice := seen[k]
		seen[k] = struct{}{}
		return twice
	})
}

func (w *worker) read(ctx context.Context, keys []string) (hits int, misses []string, err error) {
	there, err := w.client.BatchExistKey(ctx, keys)
	if err != nil {
		return 0, nil, w.tolerate(ctx, err)
	}
	var found []string
	for i, e := range there {
		if e.Exists {
			found = append(found, keys[i])
		} else {
			misses = append(misses, keys[i])
		}
	}
	if len(found) == 0 {
		return 0, misses, nil
	}
	asked := w.clock()
	objects, err := w.client.BatchGetReplicaList(ctx, found)
	if err != nil {
		return 0, misses, w.tolerate(ctx, err)
	}
	for i, o := range objects {
		switch {
		case o.Err == nil:
			hits++
			w.readBlock(found[i], o.Object, asked)
		case errors.Is(o.Err, errs.ObjectNotFound): // evicted or removed meanwhile
			misses = append(misses, found[i])
		}
	}
	return hits, misses, nil
}

// tolerate ignores failures of single calls, since an LLM server goes on without its cache.
// If the context has ended, it returns that error.
func (w *worker) tolerate(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch errs.KindOf(err) {
	case errs.Unavailable, errs.Unresolved, errs.NotLeader:
		return nil
	default:
		return err
	}
}

// readBlock reads a block whose place was asked for at a time, and judges it. Bytes that were
// read after the lease had ended prove nothing.
func (w *worker) readBlock(key string, o client.Object, asked time.Duration) {
	if w.judge.removedBefore(o.ID, asked) {
		w.judge.violation(&w.judge.broken.Resurrected, fmt.Sprintf("object %v (key %s) was removed and is back", o.ID, key))
	}
	for _, r := range o.Replicas {
		if r.Kind != client.Memory {
			continue
		}
		err := w.hosts.Read(r.Endpoint, r.Address, w.block)
		if !o.Lease.Valid() {
			return
		}
		if err != nil {
			w.judge.violation(&w.judge.broken.WrongBytes, err.Error())
		} else if wrong := hostmem.Check(w.block, w.scratch, uint64(o.ID), key); wrong != "" {
			w.judge.violation(&w.judge.broken.WrongBytes, wrong)
		} else if w.rng.IntN(holdEvery) == 0 {
			select {
			case w.holds <- hold{key, o}:
			default: // enough are kept
			}
		}
	}
}

// roomPause and roomPatience are how often, and for how long, a server tries a put again that
// found no room. Evictions, and memory that leaves quarantine, make room.
const (
	roomPause    = 20 * time.Millisecond
	roomPatience = 3 * time.Second
)

// putAll puts blocks. Those that find no room are tried again for a while.
func (w *worker) putAll(ctx context.Context, keys []string) error {
	for until := w.clock() + roomPatience; len(keys) > 0; {
		left, err := w.put(ctx, keys)
		if err != nil {
			return w.tolerate(ctx, err)
		}
		if len(left) > 0 && w.clock() > until {
			w.noRoom.Add(int64(len(left)))
			return nil
		}
		if keys = left; len(keys) == 0 {
			return nil
		}
		if err := clock.Sleep(ctx, roomPause); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) put(ctx context.Context, keys []string) (left []string, err error) {
	items := make([]client.PutItem, len(keys))
	for i, key := range keys {
		items[i] = client.PutItem{Key: key, Size: uint64(w.Block)}
	}
	reserved, err := w.client.BatchPutStart(ctx, items, client.PutConfig{})
	if err != nil {
		return nil, err
	}
	var refs []client.PutRef
	for i, r := range reserved {
		switch {
		case r.Err == nil:
			w.write(r.Reservation)
			refs = append(refs, r.Ref())
		case errors.Is(r.Err, errs.NoAvailableHandle):
			left = append(left, keys[i])
		default: // another server is putting it, or the outcome is unknown
		}
	}
	if len(refs) == 0 {
		return left, nil
	}
	ended, err := w.client.BatchPutEnd(ctx, refs, client.SelectMemory)
	if err != nil {
		return nil, err
	}
	for i, err := range ended {
		switch {
		case err == nil:
			w.judge.put(refs[i].Key, refs[i].ID)
		case errors.Is(err, errs.ObjectNotFound):
			w.judge.lost(acknowledged{refs[i].Key, refs[i].ID}, fmt.Sprintf(" before its put has ended: %v", err))
		}
	}
	return left, nil
}

func (w *worker) write(r client.Reservation) {
	hostmem.Fill(w.block, uint64(r.ID), r.Key)
	for _, replica := range r.Replicas {
		if replica.Kind != client.Memory {
			continue
		}
		if err := w.hosts.Write(replica.Endpoint, replica.Address, w.block); err != nil {
			w.judge.violation(&w.judge.broken.WrongBytes, err.Error())
		}
	}
}

// remove removes a block, by force at times.
func (w *worker) remove(ctx context.Context, key string) error {
	o, err := w.client.GetReplicaList(ctx, key)
	if err != nil {
		return w.tolerateMissing(ctx, err)
	}
	w.judge.tryRemove(key)
	w.removes.Add(1)
	err = w.client.Remove(ctx, key, client.Removal{Force: w.rng.IntN(3) == 0})
	if err == nil {
		// Whichever put the call removed, this one is gone, since ids are never reused.
		w.judge.remove(o.ID, w.clock())
	}
	return w.tolerateMissing(ctx, err)
}

func (w *worker) tolerateMissing(ctx context.Context, err error) error {
	switch errs.KindOf(err) {
	case errs.OK, errs.ObjectNotFound, errs.ObjectHasLease, errs.ReplicaNotReady:
		return nil
	default:
		return w.tolerate(ctx, err)
	}
}
