// Package lonetest builds a primary without standbys for tests: a real store,
// queue and writer, with a journal that keeps nothing.
package lonetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A Primary is a store with a writer that runs until the test ends. Its clock
// stands still but for Pass.
type Primary struct {
	Store *metadata.Store
	Queue *journal.Queue
	now   atomic.Int64
	t     testing.TB
}

// Start runs a primary of term 1 with a segment of size bytes.
func Start(t testing.TB, opts metadata.Options, params metadata.Params, size uint64) *Primary {
	t.Helper()
	p := &Primary{Store: metadata.New(opts), t: t}
	p.now.Store(1_000_000)
	p.Queue = journal.NewQueue(p.Store, 64<<20)
	p.Store.StartIDs(1)
	w := journal.NewWriter(journal.WriterConfig{
		Store: p.Store, Queue: p.Queue, Log: journal.NoLog{}, Term: 1, Hold: params.HoldTime(), Now: p.Now,
		Elapsed: clock.Boot(),
	})
	if err := w.Commit(t.Context(), &metadata.TermStart{Term: 1, Params: params}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	e, err := p.Store.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: size, Endpoint: "a:1", Client: segment.ClientID{1}})
	if err != nil {
		t.Fatal(err)
	}
	p.Commit(e)
	return p
}

// Now returns the cluster time.
func (p *Primary) Now() metadata.Time { return metadata.Time(p.now.Load()) }

// Pass lets time pass, and a commit.
func (p *Primary) Pass(d time.Duration) {
	p.t.Helper()
	p.now.Add(d.Milliseconds())
	p.Commit()
}

// Idle lets time pass, without a commit but for the writer's heartbeats.
func (p *Primary) Idle(d time.Duration) { p.now.Add(d.Milliseconds()) }

// Commit commits changes.
func (p *Primary) Commit(changes ...metadata.Change) {
	p.t.Helper()
	answers, err := p.Queue.Submit(p.t.Context(), changes...)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, err := range answers {
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// Put puts whole objects of 100 bytes, which take 104, changed by option.
func (p *Primary) Put(option func(*metadata.Put), keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		put := &metadata.Put{Tenant: metadata.DefaultTenant, Key: key, Client: segment.ClientID{1}, Size: 100, Replicas: 1}
		if option != nil {
			option(put)
		}
		start, _, _, err := p.Store.PreparePutStart(put, p.Now())
		if err != nil {
			p.t.Fatalf("put %s: %v", key, err)
		}
		p.Commit(start)
		end, _, err := p.Store.PreparePutEnd(metadata.PutRef{
			Tenant: metadata.DefaultTenant, Key: key, Client: segment.ClientID{1}, Selector: metadata.SelectMemory,
		}, nil)
		if err != nil {
			p.t.Fatalf("put %s: %v", key, err)
		}
		p.Commit(end)
	}
}

// Get reads objects, which renews their leases.
func (p *Primary) Get(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		if _, _, err := p.Store.GetReplicaList(metadata.DefaultTenant, key, p.Now()); err != nil {
			p.t.Fatalf("get %s: %v", key, err)
		}
	}
}

// Alive returns how many of the objects are there.
func (p *Primary) Alive(keys ...string) (n int) {
	for _, key := range keys {
		if _, err := p.Store.Inspect(metadata.DefaultTenant, key); err == nil {
			n++
		}
	}
	return n
}

// Keys returns n keys with a prefix.
func Keys(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(prefix, i))
	}
	return list
}

// Removal is the delete event of one object.
func Removal(r *metadata.Removal) metadata.Change {
	return &deleteevents.Event{Type: deleteevents.Remove, Removals: []*metadata.Removal{r}}
}
