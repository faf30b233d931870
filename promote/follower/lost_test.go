package follower_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
)

// Whatever comes to stand at the head that is not the journal that a node follows:
// the node keeps its state, says so, takes no snapshot of it, and goes on when the
// journal is there again.
func TestALostJournalIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		head func(layout journal.Layout, old string) clientv3.Op
		want string
	}{
		"deleted": {func(l journal.Layout, _ string) clientv3.Op { return clientv3.OpDelete(l.Head()) }, "no head"},
		"garbage": {func(l journal.Layout, _ string) clientv3.Op { return clientv3.OpPut(l.Head(), "garbage") }, "cannot be read"},
		"empty":   {func(l journal.Layout, _ string) clientv3.Op { return clientv3.OpPut(l.Head(), "") }, "cannot be read"},
		"old":     {func(l journal.Layout, old string) clientv3.Op { return clientv3.OpPut(l.Head(), old) }, "is at sequence"},
		"foreign": {func(l journal.Layout, _ string) clientv3.Op {
			return clientv3.OpPut(l.Head(), `{"term":9,"sequence":1000000,"checked_digest":"0","history":"00000000000000000000000000000000"}`)
		}, "of history"},
		"newer": {func(l journal.Layout, _ string) clientv3.Op {
			return clientv3.OpPut(l.Head(), `{"format":99,"term":9,"sequence":1000000}`)
		}, "upgrade this node"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPrimary(t)
			reader := &journal.Reader{Client: p.client, Layout: p.layout, Codec: service.Codec()}
			fetched := func(context.Context, func([]byte) error) (journal.Cursor, error) {
				return journal.Cursor{}, errors.New("no snapshot may be wanted")
			}
			f := follow(t, follower.Config{Reader: reader, Snapshot: source(fetched), FullSyncInterval: 50 * time.Millisecond, Clock: clock.Boot()},
				metadata.New(metadata.Options{}), journal.Cursor{Revision: 1})
			old, err := p.client.Get(t.Context(), p.layout.Head())
			if err != nil {
				t.Fatal(err)
			}
			p.put(t, "kept")
			p.halt()
			last := p.store.Position()
			waitFor(t, "the end", f, func(s follower.Status) bool { return s.At.Head.Seq == last.Seq })
			good, err := p.client.Get(t.Context(), p.layout.Head())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.client.Do(t.Context(), tc.head(p.layout, string(old.Kvs[0].Value))); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the loss", f, func(s follower.Status) bool { return s.Loss.Err != nil })
			s := f.Status()
			if !strings.Contains(s.Loss.Err.Error(), tc.want) || s.Loss.Err.Newer != (name == "newer") {
				t.Errorf("got the loss %q, by a newer format: %v; want %q in it, and %v",
					s.Loss.Err, s.Loss.Err.Newer, tc.want, name == "newer")
			}
			if store, _ := f.State(); !s.Complete || store.Position() != last {
				t.Errorf("at %+v, complete %v: want the state kept at %+v", store.Position(), s.Complete, last)
			}
			if _, err := p.client.Put(t.Context(), p.layout.Head(), string(good.Kvs[0].Value)); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the journal", f, func(s follower.Status) bool { return s.Loss.Err == nil })
			p.resume(t)
			p.put(t, "more")
			want := p.store.Position().Seq
			waitFor(t, "what follows", f, func(s follower.Status) bool { return s.At.Head.Seq >= want })
			if loads := f.Status().Loads; len(loads) > 0 {
				t.Errorf("got snapshots %v, want none: the journal has what follows", loads)
			}
		})
	}
}

// While etcd answers only some of the reads that tell a loss, the loss stands.
func TestALossStandsWhileItCannotBeTold(t *testing.T) {
	p := newPrimary(t)
	var fails atomic.Int64 // reads of the ancestors that fail; none below 0
	fails.Store(-1)
	client, err := clientv3.New(clientv3.Config{Endpoints: p.etcd.Endpoints(), Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			if r, ok := req.(*etcdserverpb.RangeRequest); ok && string(r.Key) == p.layout.Ancestors() && fails.Load() >= 0 {
				fails.Add(1)
				return status.Error(codes.Internal, "test: no answer")
			}
			return call(ctx, method, req, reply, conn, o...)
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	f := follow(t, follower.Config{
		Reader: &journal.Reader{Client: client, Layout: p.layout, Codec: service.Codec()}, FullSyncInterval: 50 * time.Millisecond, Clock: clock.Boot(),
		Snapshot: source(func(context.Context, func([]byte) error) (journal.Cursor, error) {
			return journal.Cursor{}, errors.New("no snapshot may be wanted")
		}),
	}, metadata.New(metadata.Options{}), journal.Cursor{Revision: 1})
	p.put(t, "kept")
	p.halt()
	last := p.store.Position().Seq
	waitFor(t, "the end", f, func(s follower.Status) bool { return s.At.Head.Seq == last })
	foreign := `{"term":9,"sequence":1000000,"checked_digest":"0","history":"00000000000000000000000000000000"}`
	if _, err := p.client.Put(t.Context(), p.layout.Head(), foreign); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the loss", f, func(s follower.Status) bool { return s.Loss.Err != nil })
	fails.Store(0)
	waitFor(t, "reads that fail", f, func(s follower.Status) bool {
		if s.Loss.Err == nil {
			t.Fatal("the follower says that the loss is over, want it to stand: etcd holds a foreign journal")
		}
		return fails.Load() > 3
	})
}

// A snapshot of another history than that of the journal is not taken, even if its
// numbers fit.
func TestSnapshotOfAnotherHistory(t *testing.T) {
	p := newPrimary(t)
	p.halt()
	head := p.log.Tip().Head
	head.History = "foreign"
	f := follow(t, follower.Config{
		Reader: &journal.Reader{Client: p.client, Layout: p.layout, Codec: codec}, Clock: clock.Boot(), FullSyncInterval: time.Minute,
		Snapshot: source(func(_ context.Context, add func([]byte) error) (journal.Cursor, error) {
			for i := range metadata.SnapshotParts {
				part, _ := p.store.AppendSnapshotPart(nil, i)
				if err := add(part); err != nil {
					return journal.Cursor{}, err
				}
			}
			return journal.NewCursor(head, p.log.Tip().Revision, ""), nil
		}),
	}, nil, journal.Cursor{})
	waitFor(t, "the refusal", f, func(s follower.Status) bool {
		return s.Fault != nil && strings.Contains(s.Fault.Error(), "not of the journal")
	})
	if store, _ := f.State(); store != nil {
		t.Error("a snapshot of another history was taken, want none")
	}
}

// A journal that went back, and then on without what a node holds, costs the node its
// state: what it holds is kept first. It may not see how the journal went back.
func TestStateBesideARolledBackJournalIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		seen bool
		on   metadata.Seq // by so much beyond the node's position
	}{"seen": {true, 10}, "unseen": {false, 10}, "unseen, and the next commit fits": {false, 1}} {
		t.Run(name, func(t *testing.T) { keepStateBesideARolledBackJournal(t, tc.seen, tc.on) })
	}
}

func keepStateBesideARolledBackJournal(t *testing.T, seen bool, on metadata.Seq) {
	p := newPrimary(t)
	reader := &journal.Reader{Client: p.client, Layout: p.layout, Codec: service.Codec()}
	kept := make(chan metadata.Seq, 100)
	f := follow(t, follower.Config{
		Reader: reader, FullSyncInterval: 50 * time.Millisecond, Clock: clock.Boot(),
		Snapshot: source(func(context.Context, func([]byte) error) (journal.Cursor, error) {
			return journal.Cursor{}, errors.New("there is none")
		}),
		Diverged: func(_ context.Context, _ *metadata.Store, at journal.Cursor, _ metadata.Seq) error {
			kept <- at.Head.Seq
			return nil
		},
	}, metadata.New(metadata.Options{}), journal.Cursor{Revision: 1})
	old, err := p.client.Get(t.Context(), p.layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	p.put(t, "kept")
	p.halt()
	last := p.store.Position().Seq
	waitFor(t, "the end", f, func(s follower.Status) bool { return s.At.Head.Seq == last })
	if seen {
		if _, err := p.client.Put(t.Context(), p.layout.Head(), string(old.Kvs[0].Value)); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the loss", f, func(s follower.Status) bool { return s.Loss.Err != nil })
	}
	var ahead map[string]any
	if err := json.Unmarshal(old.Kvs[0].Value, &ahead); err != nil {
		t.Fatal(err)
	}
	ahead["sequence"], ahead["term"], ahead["streams"] = last+on, 1000, 0
	ahead["checked_sequence"], ahead["checked_digest"] = last, "1"
	value, err := json.Marshal(ahead)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.Put(t.Context(), p.layout.Head(), string(value)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the journal that went on", f, func(s follower.Status) bool { return s.Loss.Err == nil && !s.Complete })
	select {
	case at := <-kept:
		if at != last {
			t.Errorf("D: kept the state at %d, want %d", at, last)
		}
	case <-time.After(10 * time.Second):
		t.Error("D: a state that is about to be replaced was not kept within 10s, want it kept before")
	}
}

// A follower had lost the journal when it stopped, for an order that failed. The one that
// goes on from there knows that: a journal that has come back, and gone on out of sight, costs
// no state that was not kept.
func TestAFollowerKnowsOfTheLossBeforeIt(t *testing.T) {
	p := newPrimary(t)
	kept := make(chan metadata.Seq, 100)
	c := follower.Config{
		Reader: &journal.Reader{Client: p.client, Layout: p.layout, Codec: service.Codec()}, FullSyncInterval: time.Minute, Clock: clock.Boot(),
		Snapshot: source(func(context.Context, func([]byte) error) (journal.Cursor, error) {
			return journal.Cursor{}, errors.New("there is none")
		}),
		Diverged: func(_ context.Context, _ *metadata.Store, at journal.Cursor, _ metadata.Seq) error {
			kept <- at.Head.Seq
			return nil
		},
		Counters: new(leasesync.Counters), Log: zerolog.Nop(), Changed: func(string) {},
	}
	before := follower.New(c, metadata.New(metadata.Options{}), journal.Cursor{Revision: 1})
	run := func(f *follower.Follower) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { _ = f.Run(ctx); close(ended) }()
		return func() { cancel(); <-ended }
	}
	stop := run(before)
	p.put(t, "kept")
	p.halt()
	last := p.store.Position().Seq
	waitFor(t, "the end", before, func(s follower.Status) bool { return s.At.Head.Seq == last })
	good, err := p.client.Get(t.Context(), p.layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.Delete(t.Context(), p.layout.Head()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the loss", before, func(s follower.Status) bool { return s.Loss.Err != nil })
	stop()
	var ahead map[string]any
	if err := json.Unmarshal(good.Kvs[0].Value, &ahead); err != nil {
		t.Fatal(err)
	}
	ahead["sequence"], ahead["streams"], ahead["bytes"] = last+10, 0, 1<<20
	value, err := json.Marshal(ahead)
	if err != nil {
		t.Fatal(err)
	}
	put, err := p.client.Put(t.Context(), p.layout.Head(), string(value))
	if err != nil {
		t.Fatal(err)
	}
	p.etcd.Compact(t, put.Header.Revision)
	again := follower.Again(c, before)
	defer run(again)()
	waitFor(t, "the journal that went on", again, func(s follower.Status) bool { return s.Why == journal.ReasonCompacted })
	select {
	case at := <-kept:
		if at != last {
			t.Errorf("D: kept the state at %d, want %d", at, last)
		}
	case <-time.After(10 * time.Second):
		t.Error("D: a state that is about to be replaced was not kept within 10s, want it kept before")
	}
}

// Before the first commit etcd is replaced by another one, of earlier revisions, in which the
// journal begins: a node that waits for it there does not wait for a revision that is far ahead.
func TestAnotherEtcdBeforeTheFirstCommit(t *testing.T) {
	for name, began := range map[string]bool{"the journal began there": true, "it begins later": false} {
		t.Run(name, func(t *testing.T) {
			before := etcdtest.Start(t)
			for range 300 {
				if _, err := before.Client(t).Put(t.Context(), "tenant", ""); err != nil {
					t.Fatal(err)
				}
			}
			client := before.Client(t)
			var p *primary
			if began {
				p = newPrimary(t)
			}
			there := make(chan *primary, 1)
			f := follow(t, follower.Config{
				Reader: &journal.Reader{Client: client, Layout: journal.NewLayout("/understudy", "test"), Codec: service.Codec()}, FullSyncInterval: 50 * time.Millisecond, Clock: clock.Boot(),
				Snapshot: source(func(ctx context.Context, add func([]byte) error) (journal.Cursor, error) {
					select {
					case p := <-there:
						there <- p
						return (&fetcher{p.dial(t, nil)}).Fetch(ctx, add)
					default:
						return journal.Cursor{}, errors.New("nobody serves")
					}
				}),
			}, nil, journal.Cursor{})
			waitFor(t, "the empty state", f, func(s follower.Status) bool { return s.Complete })
			if p != nil {
				there <- p
				client.SetEndpoints(p.etcd.Endpoints()...)
			} else {
				empty := etcdtest.Start(t)
				client.SetEndpoints(empty.Endpoints()...)
				waitFor(t, "the empty state there", f, func(s follower.Status) bool { return s.Complete && s.At.Revision < 100 })
				p = newPrimaryOn(t, empty)
			}
			p.put(t, "k")
			p.reached(t, nil, f)
		})
	}
}

// A node that sees a wrong etcd for a while, of later revisions, goes on with the right one
// from its own revision: one that is yet to come would bring nothing.
func TestAWrongEtcdOfLaterRevisions(t *testing.T) {
	p := newPrimary(t)
	wrong := etcdtest.Start(t)
	for range 300 {
		if _, err := wrong.Client(t).Put(t.Context(), "tenant", ""); err != nil {
			t.Fatal(err)
		}
	}
	client := p.etcd.Client(t)
	f := follow(t, follower.Config{
		Reader: &journal.Reader{Client: client, Layout: p.layout, Codec: service.Codec()}, FullSyncInterval: 50 * time.Millisecond, Clock: clock.Boot(),
		Snapshot: source(func(context.Context, func([]byte) error) (journal.Cursor, error) {
			return journal.Cursor{}, errors.New("no snapshot may be wanted")
		}),
	}, metadata.New(metadata.Options{}), journal.Cursor{Revision: 1})
	p.reached(t, nil, f)
	client.SetEndpoints(wrong.Endpoints()...)
	waitFor(t, "the loss", f, func(s follower.Status) bool { return s.Loss.Err != nil })
	p.put(t, "meanwhile")
	client.SetEndpoints(p.etcd.Endpoints()...)
	waitFor(t, "the journal", f, func(s follower.Status) bool { return s.Loss.Err == nil })
	p.put(t, "after")
	p.reached(t, nil, f)
}
