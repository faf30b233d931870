package follower_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

var errNobody = errors.New("nobody serves")

// A source gets snapshots as fetch says.
type source func(ctx context.Context, add func([]byte) error) (journal.Cursor, error)

func (s source) Fetch(ctx context.Context, add func([]byte) error) (journal.Cursor, error) {
	return s(ctx, add)
}

// follow runs a follower until the test ends.
func follow(t *testing.T, c follower.Config, store *metadata.Store, at journal.Cursor) *follower.Follower {
	t.Helper()
	c.Counters, c.Log, c.Changed = new(leasesync.Counters), zerolog.New(zerolog.NewTestWriter(t)), func(string) {}
	c.Random = func() float64 { return 0 } // the shortest pauses
	f := follower.New(c, store, at)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the follower ended with %v, want context.Canceled", err)
		}
	})
	return f
}

// waitFor waits until the follower's status is as wanted.
func waitFor(t *testing.T, what string, f *follower.Follower, cond func(follower.Status) bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond(f.Status()) {
		select {
		case <-deadline:
			t.Fatalf("waiting for %s: after 20s got %+v, want that status", what, f.Status())
		case <-tick.C:
		}
	}
}

// A standby that lags while nobody sends snapshots catches up with the journal,
// and may then take over: its state was never wrong.
func TestLagIsMadeUpWithoutASnapshot(t *testing.T) {
	p := newPrimary(t)
	for range 20 {
		p.put(t, "k")
	}
	p.halt()
	store, at := p.copied(t)
	at.Head.Bytes = 1 // as if it stood far back; the next commit sets it right
	f := follow(t, follower.Config{
		Clock:  clock.Boot(),
		Reader: &journal.Reader{Client: p.client, Layout: p.layout, Codec: codec},
		Snapshot: source(func(context.Context, func([]byte) error) (journal.Cursor, error) {
			return journal.Cursor{}, errNobody
		}),
		FullSyncInterval: time.Minute, MaxLagBytes: 200,
	}, store, at)
	waitFor(t, "the lag", f, func(s follower.Status) bool {
		return !s.Complete && s.Why == journal.ReasonLag && errors.Is(s.Fault, errNobody)
	})
	p.resume(t)
	waitFor(t, "the end of the lag", f, func(s follower.Status) bool { return s.Complete })
	p.reached(t, nil, f)
	if loads := f.Status().Loads; len(loads) != 0 {
		t.Errorf("got snapshots %v, want none: it made up its lag", loads)
	}
}

// renew has records of one renewal each in the journal.
func (p *primary) renew(t *testing.T, records int) {
	t.Helper()
	key := fmt.Sprint("renewed", p.keys.Add(1))
	e, _, _, err := p.store.PreparePutStart(&metadata.Put{Tenant: metadata.DefaultTenant, Key: key, Size: 100, Replicas: 1}, p.now())
	if err == nil {
		_, err = p.queue.Submit(t.Context(), e)
	}
	if err == nil {
		object := p.store.Lock(metadata.DefaultTenant, key)
		ref := object.Ref()
		object.Unlock()
		for range records {
			if err == nil {
				_, err = p.queue.Submit(t.Context(), &leasesync.Batch{Renewals: []leasesync.Renewal{{Ref: ref, Deadline: p.now()}}})
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A standby whose state was found to differ gets a snapshot in the end, even if
// the first attempts fail and nothing shows the difference any more.
func TestSnapshotIsTriedForAgain(t *testing.T) {
	p := newPrimary(t)
	p.renew(t, 1)
	store, at := p.copied(t)
	var differs atomic.Bool
	differs.Store(true)
	reading := codec
	reading[metadata.LeaseRenewals] = func(b []byte) (metadata.Change, error) {
		c, err := leasesync.Decode(b)
		if batch, ok := c.(*leasesync.Batch); ok && differs.Load() {
			batch.Renewals[0].Deadline += 1 << 30
		}
		return c, err
	}
	fetch := &fetcher{p.dial(t, nil)}
	asked := 0
	f := follow(t, follower.Config{
		Clock:  clock.Boot(),
		Reader: &journal.Reader{Client: p.client, Layout: p.layout, Codec: reading},
		Snapshot: source(func(ctx context.Context, add func([]byte) error) (journal.Cursor, error) {
			differs.Store(false)
			if asked++; asked <= 3 {
				return journal.Cursor{}, errNobody
			}
			return fetch.Fetch(ctx, add)
		}),
		FullSyncInterval: time.Minute, MaxLagBytes: 1 << 30,
	}, store, at)
	waitFor(t, "a snapshot", f, func(s follower.Status) bool {
		return s.Complete && s.Loads[journal.ReasonDifference] == 1
	})
	p.put(t, "after")
	p.reached(t, nil, f)
}

// A record in etcd that differs also from a snapshot is wrong itself: a standby
// goes on without it, promotable, and does not load one snapshot after the other.
func TestForgedRecordIsLeftOut(t *testing.T) {
	p := newPrimary(t)
	p.renew(t, 1)
	store, at := p.copied(t)
	reading := codec
	reading[metadata.LeaseRenewals] = func(b []byte) (metadata.Change, error) {
		c, err := leasesync.Decode(b)
		if batch, ok := c.(*leasesync.Batch); ok {
			batch.Renewals[0].Deadline += 1 << 30
		}
		return c, err
	}
	f := follow(t, follower.Config{
		Clock:  clock.Boot(),
		Reader: &journal.Reader{Client: p.client, Layout: p.layout, Codec: reading}, Snapshot: &fetcher{p.dial(t, nil)},
		FullSyncInterval: 10 * time.Millisecond, MaxLagBytes: 1 << 30,
	}, store, at)
	waitFor(t, "a snapshot", f, func(s follower.Status) bool { return s.Complete && s.Loads[journal.ReasonDifference] > 0 })
	synced := f.Counters.Synced.Load()
	waitFor(t, "20 more comparisons", f, func(follower.Status) bool { return f.Counters.Synced.Load() > synced+20 })
	p.put(t, "after")
	p.reached(t, nil, f)
	if s := f.Status(); s.Loads[journal.ReasonDifference] > 2 || !s.Complete {
		t.Errorf("W: complete is %t after %d snapshots, want it complete after one", s.Complete, s.Loads[journal.ReasonDifference])
	}
}

// Records stand for long. What a state was once found to show is not read again.
func TestFullSyncReadsARecordOnce(t *testing.T) {
	p := newPrimary(t)
	const records = 10
	p.renew(t, records)
	store, at := p.copied(t)
	var decoded atomic.Int64
	reading := codec
	reading[metadata.LeaseRenewals] = func(b []byte) (metadata.Change, error) {
		decoded.Add(1)
		return leasesync.Decode(b)
	}
	f := follow(t, follower.Config{
		Clock:  clock.Boot(),
		Reader: &journal.Reader{Client: p.client, Layout: p.layout, Codec: reading}, Snapshot: &fetcher{p.dial(t, nil)},
		FullSyncInterval: 10 * time.Millisecond, MaxLagBytes: 1 << 30,
	}, store, at)
	waitFor(t, "20 comparisons", f, func(follower.Status) bool { return f.Counters.Synced.Load() > 20 })
	if got := decoded.Load(); got != records {
		t.Errorf("%d records were read for 20 comparisons, want %d", got, records)
	}
	p.renew(t, 1)
	waitFor(t, "the comparison with the new one", f, func(follower.Status) bool { return decoded.Load() >= records+2 }) // the watch read it too
}

// A commit that does not apply leaves the state with a half of it: from then on nobody may
// save that state or lead with it.
func TestCommitThatDoesNotApplyCostsTheState(t *testing.T) {
	f := follower.New(follower.Config{
		Clock: clock.Boot(), Counters: new(leasesync.Counters), Log: zerolog.New(zerolog.NewTestWriter(t)),
	}, metadata.New(metadata.Options{}), journal.Cursor{})
	err := f.Commit(&metadata.Commit{
		Seq: 1, Term: 1, Time: 1, Changes: []metadata.Change{&metadata.UseRules{Version: metadata.NewestRules + 1}},
	}, journal.Cursor{Head: journal.Head{Seq: 1, Term: 1}})
	if s := f.Status(); !errors.Is(err, journal.ErrBroken) || s.Complete || s.Why != journal.ReasonCorrupt {
		t.Errorf("got %v and the status %+v, want a state that is not complete", err, s)
	}
}

// A snapshot's position does not say how many bytes the journal had there. That
// is no lag: a node that has just loaded may take over if the primary dies.
func TestSnapshotWithoutCommitsBehindItDoesNotLag(t *testing.T) {
	p := newPrimary(t)
	for range 20 {
		p.put(t, "k")
	}
	p.halt()
	f := follower.New(follower.Config{
		Clock:  clock.Boot(),
		Reader: &journal.Reader{Client: p.client, Layout: p.layout, Codec: codec}, MaxLagBytes: 100,
	}, p.store, journal.Cursor{Head: journal.Head{Seq: p.store.Position().Seq}})
	if err := f.CheckLag(t.Context()); err != nil {
		t.Error(err)
	}
}

// While the commits that belong to a snapshot are read, etcd is replaced by another one: the
// attempt ends, as a watch for a revision that is yet to come would say nothing.
func TestAnotherEtcdWhileASnapshotsCommitsAreRead(t *testing.T) {
	p := newPrimary(t)
	wrong := etcdtest.Start(t)
	if _, err := wrong.Client(t).Put(t.Context(), "tenant", ""); err != nil {
		t.Fatal(err)
	}
	var client *clientv3.Client
	var swap sync.Once
	client = p.etcd.Client(t, grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc,
		cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if strings.HasSuffix(method, "/Watch") {
			swap.Do(func() {
				client.SetEndpoints(wrong.Endpoints()...)
				for there := false; !there && ctx.Err() == nil; {
					resp, err := client.Get(ctx, "tenant")
					there = err == nil && resp.Count > 0
				}
			})
		}
		return streamer(ctx, desc, cc, method, opts...)
	}))
	f := follow(t, follower.Config{
		Clock: clock.Boot(), Reader: &journal.Reader{Client: client, Layout: p.layout, Codec: codec}, Snapshot: &fetcher{p.dial(t, nil)},
		FullSyncInterval: time.Minute,
	}, nil, journal.Cursor{})
	waitFor(t, "the end of the attempt", f, func(s follower.Status) bool {
		return s.Fault != nil && strings.Contains(s.Fault.Error(), "reading the journal behind the snapshot: the journal is lost")
	})
	client.SetEndpoints(p.etcd.Endpoints()...)
	p.put(t, "after")
	p.reached(t, nil, f)
}
