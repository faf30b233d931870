package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// callTimeout is how long a caller waits for an answer.
const callTimeout = time.Second

// A caller makes calls of the cluster, as a client does that knows all nodes,
// and passes the answers to the judge. It writes keys of its own and reads those
// of all.
type caller struct {
	world *world
	name  string
	rng   *rand.Rand
	mine  []string
	all   []string
	next  uint64 // request id
	only  string // the one node to ask; empty for any
	// behind is how much later than others its calls look at the clock: what two
	// callers do at one instant is done in their order.
	behind time.Duration
}

var errNobody = errors.New("sim: no node serves")

// ask makes one call of a node that takes calls, if there is one: usually the
// one that serves, but one that has just lost its term will do as well. It
// returns when the answer is there, or the caller has waited enough.
//
// answer judges the answer when it comes, were it long after that.
func (c *caller) ask(do func(ctx context.Context, m *service.Master) error, answer func(call, error)) error {
	n := c.pick()
	if n == nil {
		answer(call{}, errNobody)
		return errNobody
	}
	serving := n.master.Load()
	if serving == nil {
		answer(call{}, errNobody)
		return errNobody
	}
	m := *serving
	m.Now = func() metadata.Time {
		time.Sleep(c.behind)
		return serving.Now()
	}
	at := call{client: c.name, sent: c.world.transcript.now(), term: m.Term}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	came := make(chan error, 1)
	c.world.tasks.Go(func() {
		defer cancel()
		err := do(ctx, &m)
		if n.dead.Load() {
			err = errNoAnswer
		}
		at.came = c.world.transcript.now()
		answer(at, err)
		came <- err
	})
	select {
	case err := <-came:
		return err
	case <-time.After(callTimeout + 100*time.Millisecond):
		return errNoAnswer
	}
}

// errNoAnswer leaves open what became of a call.
var errNoAnswer = &errs.Error{Kind: errs.Unresolved, Op: "sim", Err: errors.New("no answer")}

// pick chooses one of the nodes that take calls.
func (c *caller) pick() *node {
	var open []*node
	for _, n := range c.world.living() {
		if n.master.Load() != nil && (c.only == "" || c.only == n.id) {
			open = append(open, n)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[c.rng.IntN(len(open))]
}

// work makes calls until the context ends.
func (c *caller) work(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		c.think(150 * time.Millisecond)
		what := c.rng.IntN(11)
		if len(c.mine) == 0 {
			what = 9 // a reader, whom no write holds up
		}
		switch what {
		case 10:
			c.transfer(ctx, c.mine[c.rng.IntN(len(c.mine))], c.rng.IntN(2) == 0)
		case 0, 1:
			_ = c.remove(c.mine[c.rng.IntN(len(c.mine))])
		case 2, 3, 4:
			c.put(ctx, c.mine[c.rng.IntN(len(c.mine))], c.rng.IntN(3) == 0)
		default:
			_ = c.get(c.all[c.rng.IntN(len(c.all))])
		}
	}
}

// think lets some time pass, at most so much.
func (c *caller) think(atMost time.Duration) { time.Sleep(time.Duration(c.rng.Int64N(int64(atMost)))) }

// tries is how often a caller repeats a call whose fate is open.
const tries = 8

// put puts an object, or upserts it: it reserves, and ends the put wherever it can.
func (c *caller) put(ctx context.Context, key string, upsert bool) {
	c.next += 2
	request := c.next
	var id metadata.ObjectID
	for range tries {
		err := c.putStart(key, upsert, request, &id)
		if err == nil {
			break
		}
		if kind := errs.KindOf(err); kind == errs.ObjectExists || kind == errs.NoAvailableHandle || ctx.Err() != nil {
			return
		}
		c.think(400 * time.Millisecond)
	}
	if id == 0 {
		return
	}
	for range tries {
		c.think(2 * time.Millisecond) // it writes the bytes; and callers whose puts shared a commit part
		if err := c.putEnd(key, request+1, id); err == nil || errs.KindOf(err) == errs.ObjectNotFound || ctx.Err() != nil {
			return
		}
		c.think(400 * time.Millisecond)
	}
}

func (c *caller) putStart(key string, upsert bool, request uint64, id *metadata.ObjectID) error {
	var r service.Reservation
	p := service.PutRequest{Tenant: metadata.DefaultTenant, Client: owner, Request: request, Config: service.PutConfig{Replicas: 1, Upsert: upsert}}
	answered := func() {}
	if upsert {
		answered = c.world.judge.removes(key, c.world.transcript.now())
	}
	got := make(chan metadata.ObjectID, 1)
	err := c.ask(func(ctx context.Context, m *service.Master) (err error) {
		r, err = m.PutStart(ctx, p, service.PutItem{Key: key, Size: objectBytes})
		return err
	}, func(at call, err error) {
		answered()
		if err == nil {
			if upsert {
				c.world.judge.removed(at, key, r.ID)
			}
			c.world.judge.reserved(at, key, r.ID, bytesOf(r.Replicas)...)
			got <- r.ID
		}
		c.record("reserves "+key, at, err)
	})
	if err == nil {
		*id = <-got
	}
	return err
}

func (c *caller) putEnd(key string, request uint64, id metadata.ObjectID) error {
	u := service.UpdateRequest{Tenant: metadata.DefaultTenant, Client: owner, Request: request, Selector: metadata.SelectMemory}
	c.world.judge.ending(key, id, c.world.transcript.now())
	return c.ask(func(ctx context.Context, m *service.Master) error {
		return m.PutEnd(ctx, u, service.UpdateItem{Key: key, ID: id})
	}, func(at call, err error) {
		switch errs.KindOf(err) {
		case errs.OK:
			c.world.judge.ended(at, key, id)
		case errs.ObjectNotFound, errs.InvalidWrite, errs.IllegalClient:
			c.world.judge.notEnded(at, key, id, err)
		default: // leaves open what became of the key
		}
		c.record("puts "+key, at, err)
	})
}

func (c *caller) remove(key string) error {
	answered := c.world.judge.removes(key, c.world.transcript.now())
	return c.ask(func(ctx context.Context, m *service.Master) error {
		return m.Remove(ctx, service.RemoveRequest{Tenant: metadata.DefaultTenant, Force: true}, key)
	}, func(at call, err error) {
		switch errs.KindOf(err) {
		case errs.OK:
			c.world.judge.removed(at, key, 0)
		case errs.ObjectNotFound:
			c.world.judge.notFound(at, key, false)
		default: // leaves open what became of the key
		}
		answered()
		c.record("removes "+key, at, err)
	})
}

func (c *caller) get(key string) error {
	_, err := c.read(key)
	return err
}

func (c *caller) read(key string) (list metadata.ReplicaList, err error) {
	err = c.ask(func(ctx context.Context, m *service.Master) (err error) {
		list, err = m.GetReplicaList(ctx, metadata.DefaultTenant, key)
		return err
	}, func(at call, err error) {
		switch errs.KindOf(err) {
		case errs.OK:
			c.world.judge.got(at, key, list.ID, bytesOf(list.Replicas)...)
		case errs.ObjectNotFound, errs.ReplicaNotReady:
			c.world.judge.notFound(at, key, true)
		default: // leaves open what became of the key
		}
		c.record("reads "+key, at, err)
	})
	if err != nil {
		return metadata.ReplicaList{}, err // the answer may still come
	}
	return list, nil
}

// bytesOf returns where replicas are.
func bytesOf(replicas []metadata.Descriptor) (list []bytes) {
	for _, d := range replicas {
		list = append(list, bytes{d.Address, d.Address + d.Size})
	}
	return list
}

// record records an answer.
func (c *caller) record(what string, at call, err error) {
	switch {
	case errors.Is(err, errNobody):
		c.world.transcript.note(c.name, "%s: no node takes calls", what)
	case err != nil:
		c.world.transcript.note(c.name, "%s: %v (term %d)", what, errs.KindOf(err), at.term)
	default:
		c.world.transcript.note(c.name, "%s (term %d)", what, at.term)
	}
}

// callers returns some writers, with two keys each, and readers.
func (w *world) callers(writers, readers int, seed uint64) []*caller {
	list := make([]*caller, writers+readers)
	all := neighbours(2 * writers)
	for i := range list {
		list[i] = &caller{
			world: w, name: fmt.Sprint("c", i), rng: rand.New(rand.NewPCG(seed, uint64(100+i))),
			all: all, next: uint64(1+i) << 32, behind: time.Duration(1 + i),
		}
		if i < writers {
			list[i].mine = all[2*i : 2*i+2]
		}
	}
	return list
}

// neighbours returns keys that the store keeps in one shard, so that what hits
// the wrong object has others to hit.
func neighbours(n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprint("k", i); xxh3.HashString(key)%metadata.ShardCount == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}
