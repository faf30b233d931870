package drill

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/cluster"
)

const (
	bulkSize    = 64 // bytes of an object
	bulkBatch   = 1000
	bulkWriters = 4
	// bulkTimeout bounds one batch with all its attempts.
	bulkTimeout = 30 * time.Second
)

// A bulk is one client that puts many small objects, under keys that the recorded
// clients never use. Nobody writes their bytes.
type bulk struct {
	*client.Client
	put    atomic.Int64  // acknowledged
	newest atomic.Uint64 // object id of the last reservation, if one batch comes after another
	lost   atomic.Int64  // acknowledged reservations that were gone at their PutEnd
}

func (e *Env) newBulk() *bulk { return e.newBulkOf("") }

// newBulkOf returns a bulk of a tenant; empty means the default tenant.
func (e *Env) newBulkOf(tenant string) *bulk {
	cfg := e.cluster.ClientConfig()
	cfg.Timeout, cfg.Tenant = bulkTimeout, tenant
	return &bulk{Client: must(client.New(cfg))}
}

func bulkKey(group, n int) string { return fmt.Sprintf("bulk/%03d/%d", group, n) }

func bulkKeys(group, from, to int) (keys []string) {
	for i := from; i < to; i++ {
		keys = append(keys, bulkKey(group, i))
	}
	return keys
}

func (b *bulk) fill(ctx context.Context, groups, n int, size uint64, how client.PutConfig) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(bulkWriters)
	for group := range groups {
		for from := 0; from < n; from += bulkBatch {
			g.Go(func() error { return b.putAll(ctx, bulkKeys(group, from, min(from+bulkBatch, n)), size, how) })
		}
	}
	return g.Wait()
}

// end closes the client, and counts the reservations that it lost.
func (b *bulk) end(e *Env) {
	b.Close()
	e.result.violate("D", 0)
	if n := b.lost.Load(); n > 0 {
		e.result.violate("D", int(n), fmt.Sprintf("%d reservations of the bulk were acknowledged, and gone when they were to be ended", n))
	}
}

// putAll puts some keys. It fails unless each put succeeds or its key exists already.
func (b *bulk) putAll(ctx context.Context, keys []string, size uint64, how client.PutConfig) error {
	failed, err := b.tryPut(ctx, keys, size, how)
	if err != nil {
		return err
	}
	for i, err := range failed {
		if err != nil && !errors.Is(err, errs.ObjectExists) {
			return fmt.Errorf("putting %s: %w", keys[i], err)
		}
	}
	return nil
}

func (b *bulk) tryPut(ctx context.Context, keys []string, size uint64, how client.PutConfig) ([]error, error) {
	items := make([]client.PutItem, len(keys))
	for i, k := range keys {
		items[i] = client.PutItem{Key: k, Size: size}
	}
	started, err := b.BatchPutStart(ctx, items, how)
	if err != nil {
		return nil, err
	}
	failed := make([]error, len(keys))
	var refs []client.PutRef
	var index []int
	for i, s := range started {
		if failed[i] = s.Err; s.Err == nil {
			refs, index = append(refs, s.Ref()), append(index, i)
			b.newest.Store(uint64(s.Ref().ID))
		}
	}
	if len(refs) == 0 {
		return failed, nil
	}
	ended, err := b.BatchPutEnd(ctx, refs, client.SelectAll)
	if err != nil {
		return nil, err
	}
	for k, err := range ended {
		switch failed[index[k]] = err; {
		case err == nil:
			b.put.Add(1)
		case errors.Is(err, errs.ObjectNotFound): // nothing that a drill does takes a reservation away
			b.lost.Add(1)
		}
	}
	return failed, nil
}

func (b *bulk) there(ctx context.Context, keys []string) ([]bool, error) {
	exist := make([]bool, 0, len(keys))
	for from := 0; from < len(keys); from += bulkBatch {
		part, err := b.BatchExistKey(ctx, keys[from:min(from+bulkBatch, len(keys))])
		if err != nil {
			return nil, err
		}
		for _, x := range part {
			if x.Err != nil {
				return nil, x.Err
			}
			exist = append(exist, x.Exists)
		}
	}
	return exist, nil
}

// churn puts new objects, perSecond of them or as many as possible, until done is
// closed. It ends the puts that it has begun, unless the context ends first:
// reservations that nobody ends take memory for ten minutes and cannot be evicted.
// A put that finds no room is no error, since eviction makes room.
func (b *bulk) churn(ctx context.Context, done <-chan struct{}, perSecond int, size uint64) error {
	const batch = 250
	run := uuid.NewString()[:8]
	tick := time.NewTicker(time.Second * batch / time.Duration(perSecond))
	defer tick.Stop()
	g, working := errgroup.WithContext(ctx)
	g.SetLimit(2 * bulkWriters)
	for n := 0; ; n += batch {
		select {
		case <-tick.C:
		case <-done:
			return g.Wait()
		case <-working.Done():
			return g.Wait()
		}
		g.Go(func() error {
			keys := make([]string, batch)
			for i := range keys {
				keys[i] = fmt.Sprintf("churn/%s/%d", run, n+i)
			}
			_, err := b.tryPut(working, keys, size, client.PutConfig{})
			if err != nil && ctx.Err() == nil && !errs.KindOf(err).Retryable() && errs.KindOf(err) != errs.Unresolved {
				return err
			}
			return nil
		})
	}
}

// underPressure returns a round during which a bulk puts perSecond objects a second.
func (e *Env) underPressure(perSecond int, round func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		b := e.newBulk()
		e.pressed = b
		defer func() { e.pressed = nil; b.end(e) }()
		pressing, abort := context.WithCancel(ctx)
		defer abort()
		done := make(chan struct{})
		var churn errgroup.Group
		churn.Go(func() error { return b.churn(pressing, done, perSecond, churnSize) })
		err := script(func() { round(ctx) })
		if close(done); err != nil {
			abort()
		}
		do(errors.Join(err, churn.Wait()))
	}
}

// churnSize is the size of the recorded clients' objects, so that any object may get
// the memory of any other.
const churnSize = 1 << 10

// evicts waits until the primary has evicted some more.
func (e *Env) evicts(ctx context.Context, primary *cluster.Node) {
	const cutoffs = "understudy_cutoffs_total"
	before := must(primary.Metrics(ctx))[cutoffs]
	until(ctx, time.Minute, "the primary evicts", func(ctx context.Context) (bool, error) {
		now, err := primary.Metrics(ctx)
		return now[cutoffs] > before, err
	})
}
