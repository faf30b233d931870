// Package lonetest builds a primary for tests: a real store, queue and writer. Its journal
// is one follower, which decodes and applies each commit, as a standby does, and must get
// the same digest.
package lonetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A Primary is a store with a writer that runs until the test ends. Its clock moves only
// with Pass and Idle.
type Primary struct {
	Store *metadata.Store
	// Follower has applied all commits of the writer; in benchmarks none.
	Follower *metadata.Store
	Queue    *journal.Queue
	Leases   *leasesync.Leases // without their loop
	now      atomic.Int64
	changes  atomic.Int64
	t        testing.TB
}

// Start runs a primary of term 1 with a segment of size bytes.
func Start(t testing.TB, opts metadata.Options, params metadata.Params, size uint64) *Primary {
	t.Helper()
	p := &Primary{Store: metadata.New(opts), Follower: metadata.New(metadata.Options{}), t: t}
	p.now.Store(1_000_000)
	p.Queue = journal.NewQueue(p.Store, 64<<20)
	p.Leases = Leases(p.Store)
	p.Leases.Journal = p.Queue
	p.Store.StartIDs(1)
	var log journal.Log = p
	if _, measures := t.(*testing.B); measures {
		log = journal.NoLog{}
	}
	w := journal.NewWriter(journal.WriterConfig{
		Store: p.Store, Queue: p.Queue, Log: log, Direct: true, Term: 1, Hold: params.HoldTime(), Now: p.Now,
		Elapsed: clock.Boot(), Filler: leasesync.NewFiller(),
	})
	if err := w.Commit(t.Context(), &metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: metadata.NewestRules}); err != nil {
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

// Append decodes a commit and applies it to the follower.
func (p *Primary) Append(_ context.Context, c *journal.Sealed) error {
	commit := &metadata.Commit{Seq: c.Head.Seq, Term: c.Head.Term, Time: c.Head.Time}
	for stream, record := range c.Records {
		if record == nil {
			continue
		}
		_, changes, err := service.Codec().DecodeRecord(metadata.Stream(stream), record)
		if err != nil {
			return err
		}
		commit.Changes = append(commit.Changes, changes...)
	}
	if digest, ok := p.Follower.DigestAt(c.Head.Checked); ok && digest != c.Head.Digest {
		p.t.Errorf("at %d the follower's digest is %v, the primary's %v", c.Head.Checked, digest, c.Head.Digest)
	}
	p.changes.Add(int64(len(commit.Changes)))
	_, err := p.Follower.Apply(commit, nil)
	return err
}

// Changes returns how many changes were ever appended; heartbeats have none.
func (p *Primary) Changes() int64 { return p.changes.Load() }

// Leases returns the leases of a store, without their loop.
func Leases(store *metadata.Store) *leasesync.Leases {
	return leasesync.New(leasesync.Leases{Store: store, Counters: new(leasesync.Counters)})
}

// Now returns the cluster time.
func (p *Primary) Now() metadata.Time { return metadata.Time(p.now.Load()) }

// Pass lets time pass, and then makes a commit without changes.
func (p *Primary) Pass(d time.Duration) {
	p.t.Helper()
	p.now.Add(d.Milliseconds())
	p.Commit(leasesync.NewFiller())
}

// Idle lets time pass, with no commits except the writer's heartbeats.
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
		p.Commit(p.PutStart(option, key))
		p.Commit(p.PutEnd(key))
	}
}

// PutStart prepares a PutStart as Put does.
func (p *Primary) PutStart(option func(*metadata.Put), key string) *metadata.PutStart {
	p.t.Helper()
	put := &metadata.Put{Tenant: metadata.DefaultTenant, Key: key, Client: segment.ClientID{1}, Size: 100, Replicas: 1}
	if option != nil {
		option(put)
	}
	e, _, _, err := p.Store.PreparePutStart(put, p.Now())
	if err != nil || e == nil {
		p.t.Fatalf("put %s: %v", key, err)
	}
	return e
}

// PutEnd prepares a PutEnd as Put does.
func (p *Primary) PutEnd(key string) *metadata.PutEnd {
	p.t.Helper()
	e, _, err := p.Store.PreparePutEnd(p.Ref(key), nil)
	if err != nil || e == nil {
		p.t.Fatalf("put %s: %v", key, err)
	}
	return e
}

// Ref names a put of Put.
func (p *Primary) Ref(key string) metadata.PutRef {
	return metadata.PutRef{Tenant: metadata.DefaultTenant, Key: key, Client: segment.ClientID{1}, Selector: metadata.SelectMemory}
}

// Remove prepares the removal of an object.
func (p *Primary) Remove(key string, force bool) *deleteevents.Event {
	p.t.Helper()
	e, _, err := deleteevents.Prepare(p.Store, deleteevents.Request{Tenant: metadata.DefaultTenant, Key: key, Force: force}, p.Now())
	if err != nil {
		p.t.Fatalf("remove %s: %v", key, err)
	}
	return e
}

// Unmount unmounts a segment.
func (p *Primary) Unmount(id segment.ID) {
	p.t.Helper()
	number, ok := p.Store.FindSegment(id)
	if !ok {
		p.t.Fatalf("segment %v is not mounted", id)
	}
	p.Commit(&deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{number}})
}

// Get reads objects, which renews their leases.
func (p *Primary) Get(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		if _, _, err := p.Leases.GetReplicaList(metadata.DefaultTenant, key, p.Now()); err != nil {
			p.t.Fatalf("get %s: %v", key, err)
		}
	}
}

// Scan journals the leases that are marked.
func (p *Primary) Scan() {
	p.t.Helper()
	if err := p.Leases.Scan(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// Alive returns how many of the objects exist.
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
