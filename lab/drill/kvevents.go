package drill

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/cluster"
)

// The drill of KV events: a subscriber that follows them over takeovers knows exactly the keys
// that exist.

// A keyFollower keeps the set of keys that exist according to KV events.
type keyFollower struct {
	mu      sync.Mutex
	keys    map[string]bool
	resyncs int
	events  int
}

func (f *keyFollower) follow(ctx context.Context, c *client.Client) error {
	for update, err := range c.KeyEvents(ctx, client.KeyPosition{}) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		f.take(update)
	}
	return nil
}

func (f *keyFollower) take(u client.KeyEvents) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.Resync {
		f.resyncs++
		clear(f.keys)
	}
	for _, e := range u.Events {
		if f.events++; e.InMemory || e.OnDisk {
			f.keys[e.Key] = true
		} else {
			delete(f.keys, e.Key)
		}
	}
}

func (f *keyFollower) knows(keys []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(keys) == len(f.keys) && !slices.ContainsFunc(keys, func(k string) bool { return !f.keys[k] })
}

// kvEvents kills the primary again and again while memory is full, so that keys are put,
// removed and evicted all the time. It compares the keys that a follower knows with those that
// exist.
func kvEvents(ctx context.Context, e *Env) {
	const rounds = 3
	e.withMover(ctx, []string{"memory"}, func(ctx context.Context, p pair, b *bulk, _ *mover) {
		f := &keyFollower{keys: map[string]bool{}}
		c := must(client.New(e.cluster.ClientConfig()))
		defer c.Close()
		following, stop := context.WithCancel(ctx)
		var work errgroup.Group
		work.Go(func() error { return f.follow(following, c) })
		defer func() { stop(); do(work.Wait()) }()
		for ; e.result.Rounds < rounds && !e.noticed(); e.result.Rounds++ {
			p = e.ready(ctx)
			filling, enough := context.WithCancel(ctx)
			var fill errgroup.Group
			fill.Go(func() error { return b.putAndRemove(filling, e.result.Rounds) })
			err := clock.Sleep(ctx, time.Second+time.Duration(e.rng.IntN(500))*time.Millisecond)
			next, _ := e.kill(ctx, p.primary, p.term)
			enough()
			do(err)
			do(fill.Wait())
			e.knowsAll(ctx, f, next)
			e.restart(ctx, p.primary)
		}
		e.result.check("one resync", f.resyncs == 1, "%d times the follower was told to begin anew, want once, at its beginning", f.resyncs)
		e.result.Counts["kv_events"] = int64(f.events)
		e.compare(ctx)
	}, "--enable_kv_events")
}

// putAndRemove puts and removes until the context ends, and ignores failures.
func (b *bulk) putAndRemove(ctx context.Context, round int) error {
	for n := 0; ctx.Err() == nil; n++ {
		_, _ = b.tryPut(ctx, []string{fmt.Sprintf("churn/%d/%d", round, n)}, offloadSize, client.PutConfig{})
		if n%7 == 0 {
			_ = b.Remove(ctx, fmt.Sprintf("churn/%d/%d", round, n/2), client.Removal{Force: true})
		}
	}
	return nil
}

// knowsAll checks that the follower soon knows exactly the keys that exist.
func (e *Env) knowsAll(ctx context.Context, f *keyFollower, primary *cluster.Node) {
	there := 0
	known := cluster.Poll(ctx, 20*time.Second, "a follower of KV events knows all keys", func(ctx context.Context) (bool, error) {
		var keys []string
		for request := new(pb.ListKeysRequest); ; {
			page, err := primary.Admin.ListKeys(ctx, request)
			if err != nil {
				return false, err
			}
			if keys, request.PageToken = append(keys, page.GetKeys()...), page.GetNextPageToken(); request.GetPageToken() == "" {
				there = len(keys)
				return f.knows(keys), nil
			}
		}
	})
	e.result.check("the follower knows all keys", known == nil, "after round %d: %v", e.result.Rounds+1, known)
	e.did("the follower of KV events knows the %d keys that there are", there)
}
