package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

func TestReaderThatIsTooLate(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPrimary(t, etcd.Client(t), 1<<20).run().mount()
	start := p.log.Tip()
	p.mustPut("a", "b")
	if _, err := etcd.Client(t).Delete(t.Context(), p.layout.Record(metadata.ObjectEvents, p.log.Tip().Head.Seq)); err != nil {
		t.Fatal(err)
	}
	p.mustPut("c")
	etcd.Compact(t, p.log.Tip().Revision)
	err := wait(t, "the end of the reader", follow(t, etcd.Client(t), start, newStandby()))
	wantReason(t, err, journal.ReasonCompacted)
	if b, ok := errors.AsType[*journal.BrokenError](err); ok && b.Beside {
		t.Errorf("got %v, of a state that may have what the journal has not; want not: one primary wrote all of it", err)
	}

	r := &journal.Reader{Client: etcd.Client(t), Layout: p.layout, Codec: codec}
	_, err = r.Start(t.Context())
	wantReason(t, err, journal.ReasonStart)
}

// A reader behind a compaction reads the records that etcd still has. The counts in the heads prove
// the commits without records.
func TestReaderBehindACompaction(t *testing.T) {
	etcd := etcdtest.Start(t)
	start := now(t, etcd.Client(t))
	p := newPrimary(t, etcd.Client(t), 1<<20).run().mount()
	for i := range 40 { // more than one request reads
		p.mustPut(fmt.Sprint("k", i))
	}
	idle := p.log.Tip().Head.Seq + 1
	waitFor(t, "an empty commit", func() bool { return p.log.Tip().Head.Seq >= idle })
	p.mustPut("l")
	etcd.Compact(t, p.log.Tip().Revision)
	s := newStandby()
	follow(t, etcd.Client(t), start, s)
	p.mustPut("m")
	s.waitFor(t, p.store.Position())
}

// A reader that knows the current head goes on after a compaction without reading anything.
func TestReaderAtTheHeadBehindACompaction(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20).run().mount()
	at := p.log.Tip()
	for range 3 { // others write
		if _, err := client.Put(t.Context(), "other", ""); err != nil {
			t.Fatal(err)
		}
	}
	reader := &journal.Reader{Client: client, Layout: p.layout, Codec: codec}
	waitFor(t, "a read between two commits", func() bool {
		at = p.log.Tip()
		view, err := reader.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		on, err := reader.Resume(t.Context(), at, view, nil)
		return err == nil && on.Head == at.Head && on.Revision >= at.Revision
	})
}

func wantReason(t *testing.T, err error, want journal.Reason) {
	t.Helper()
	var b *journal.BrokenError
	if !errors.As(err, &b) || b.Reason != want || !errors.Is(err, journal.ErrBroken) {
		t.Errorf("got %v, want reason %s", err, want)
	}
}

// The expiry and the deletion of keys are no commits: a reader goes on from its revision.
func TestExpiredRecordsChangeNothing(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20).run().mount()
	p.mustPut("a", "b", "c")
	if _, err := client.Delete(t.Context(), p.layout.Records(metadata.ObjectEvents), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	p.mustPut("d")
	s := newStandby()
	// From the very beginning, by revision.
	resp, err := client.Get(t.Context(), p.layout.Head())
	if err != nil {
		t.Fatal(err)
	}
	follow(t, client, journal.Cursor{Revision: resp.Kvs[0].CreateRevision - 1}, s)
	s.waitFor(t, p.store.Position())
}

// Whatever is in etcd, a reader refuses everything but the next commit, says why, and keeps its state.
func TestTamperedJournal(t *testing.T) {
	for name, tc := range map[string]struct {
		put  func(journal.Layout, journal.Head) []clientv3.Op
		want journal.Reason // empty for a journal that is lost
		text string
	}{
		"garbage in a record": {
			func(l journal.Layout, h journal.Head) []clientv3.Op {
				return []clientv3.Op{head(l, h, 1, 1<<metadata.ObjectEvents), clientv3.OpPut(l.Record(metadata.ObjectEvents, h.Seq+1), "garbage!")}
			}, journal.ReasonCorrupt, "version",
		},
		"a flipped bit": {
			func(l journal.Layout, h journal.Head) []clientv3.Op {
				return []clientv3.Op{head(l, h, 1, 1<<metadata.ObjectEvents), clientv3.OpPut(l.Record(metadata.ObjectEvents, h.Seq+1), "\x01\x00abcd12345")}
			}, journal.ReasonCorrupt, "checksum",
		},
		"a later format": {
			func(l journal.Layout, h journal.Head) []clientv3.Op {
				return []clientv3.Op{head(l, h, 1, 1<<metadata.DeleteEvents), clientv3.OpPut(l.Record(metadata.DeleteEvents, h.Seq+1), "\x63\x00abcd12345")}
			}, journal.ReasonCorrupt, "upgrade this node",
		},
		"a missing record": {
			func(l journal.Layout, h journal.Head) []clientv3.Op {
				return []clientv3.Op{head(l, h, 1, 1<<metadata.ObjectEvents)}
			}, journal.ReasonGap, "record",
		},
		"a record too many": {
			func(l journal.Layout, h journal.Head) []clientv3.Op {
				return []clientv3.Op{head(l, h, 1, 0), clientv3.OpPut(l.Record(metadata.ObjectEvents, h.Seq+1), "x")}
			}, journal.ReasonGap, "record",
		},
		"a jump of the head": {
			func(l journal.Layout, h journal.Head) []clientv3.Op { return []clientv3.Op{head(l, h, 2, 0)} },
			journal.ReasonGap, "moves",
		},
		"a head that is no JSON": {
			func(l journal.Layout, _ journal.Head) []clientv3.Op {
				return []clientv3.Op{clientv3.OpPut(l.Head(), "{")}
			},
			"", "head",
		},
		"a deleted head": {
			func(l journal.Layout, _ journal.Head) []clientv3.Op {
				return []clientv3.Op{clientv3.OpDelete(l.Head())}
			},
			"", "no head",
		},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			client := etcd.Client(t)
			s := newStandby()
			done := follow(t, client, now(t, client), s)
			p := newPrimary(t, client, 1<<20) // the writer does not run
			at := p.store.Position()
			s.waitFor(t, at)
			if _, err := client.Txn(t.Context()).Then(tc.put(p.layout, p.log.Tip().Head)...).Commit(); err != nil {
				t.Fatal(err)
			}
			err := wait(t, "the end of the reader", done)
			if tc.want != "" {
				wantReason(t, err, tc.want)
			} else if !errors.Is(err, journal.ErrLost) {
				t.Errorf("the journal is lost: got %v, want ErrLost", err)
			}
			if err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got the error %q, want %q in it", err, tc.text)
			}
			if got := s.store.Position(); got != at {
				t.Errorf("a reader refused a commit: got its state at %+v, want %+v as before", got, at)
			}
		})
	}
}

func head(l journal.Layout, h journal.Head, by metadata.Seq, streams int) clientv3.Op {
	return clientv3.OpPut(l.Head(), fmt.Sprintf(`{"term":%d,"sequence":%d,"cluster_time_ms":%d,"streams":%d,"checked_digest":"0"}`,
		h.Term, h.Seq+by, h.Time, streams))
}

// The journal goes on from a position only if it was there at that revision.
func TestContinues(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	before := now(t, client)
	p := newPrimary(t, client, 1<<20)
	p.log.Histories = func() bool { return true }
	p.run().mount()
	p.mustPut("a")
	at := p.log.Tip()
	p.mustPut("b")
	reader := &journal.Reader{Client: client, Layout: p.layout, Codec: codec}
	later := at.At(at.Revision + 1000)
	foreign := journal.NewCursor(at.Head, at.Revision, at.Value()+" ")
	unknown, other, term, history := at.Head, at.Head, at.Head, at.Head
	other.Seq++
	term.Term++
	history.History = "another"
	without := func(h journal.Head) journal.Cursor { return journal.NewCursor(h, at.Revision, "") }
	for name, tc := range map[string]struct {
		at   journal.Cursor
		want string
	}{
		"here": {at, ""}, "before the first commit": {before, ""}, "later than etcd is": {later, "has not come to"},
		"another head with the same numbers": {foreign, "the journal was at"},
		"a head whose value is not known":    {without(unknown), ""},
		"another sequence":                   {without(other), "the journal was at"},
		"another term":                       {without(term), "the journal was at"},
		"another history":                    {without(history), "the journal was at"},
	} {
		why, err := reader.Continues(t.Context(), tc.at)
		if err != nil || (why == nil) != (tc.want == "") || why != nil && !strings.Contains(why.Error(), tc.want) {
			t.Errorf("%s: %v, %v; want %q", name, why, err, tc.want)
		}
	}
	if _, err := client.Compact(t.Context(), p.log.Tip().Revision); err != nil {
		t.Fatal(err)
	}
	if why, err := reader.Continues(t.Context(), at); err != nil || why == nil || !strings.Contains(why.Error(), "no history") {
		t.Errorf("a position whose history is compacted: got %v, %v, want \"no history\" as the reason", why, err)
	}
}

func TestAfter(t *testing.T) {
	head := journal.Head{Term: 3, Seq: 100}
	for other, want := range map[journal.Head]bool{
		{Term: 3, Seq: 99}: true, {Term: 3, Seq: 100}: false, {Term: 3, Seq: 101}: false,
		{Term: 4, Seq: 2}: false, {Term: 2, Seq: 200}: true, {}: true,
	} {
		if head.After(other) != want {
			t.Errorf("%+v is after %+v: got %v, want %v", head, other, !want, want)
		}
	}
}

func TestLag(t *testing.T) {
	head := journal.Head{Seq: 9, Time: 5_000}
	for name, c := range map[string]struct {
		at      metadata.Position
		entries uint64
		behind  time.Duration
	}{
		"behind":       {metadata.Position{Seq: 7, Time: 3_500}, 2, 1500 * time.Millisecond},
		"at the head":  {metadata.Position{Seq: 9, Time: 5_000}, 0, 0},
		"further":      {metadata.Position{Seq: 10, Time: 6_000}, 0, 0},
		"a later time": {metadata.Position{Seq: 8, Time: 5_001}, 1, 0},
		"no state":     {metadata.Position{}, 9, 0},
	} {
		if entries, behind := head.Lag(c.at); entries != c.entries || behind != c.behind {
			t.Errorf("%s: %d commits, %v; want %d, %v", name, entries, behind, c.entries, c.behind)
		}
	}
}

// The head was deleted, and the journal founded anew, before a reader read either. The reader goes on
// after both. A reader for which the head is still missing reports that the journal is lost.
func TestReaderPassesAHeadThatWasDeletedAndFoundedAnew(t *testing.T) {
	for name, founded := range map[string]bool{"founded anew": true, "still missing": false} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			client := etcd.Client(t)
			s := newStandby()
			done := follow(t, client, now(t, client), s)
			p := newPrimary(t, client, 1<<20)
			p.log.Histories = func() bool { return true }
			p.run().mount()
			p.mustPut("k")
			s.waitFor(t, p.store.Position())
			p.stop()
			p.done <- wait(t, "the end of the writer", p.done)
			at := p.log.Tip()
			s.waitFor(t, p.store.Position())
			if _, err := client.Delete(t.Context(), p.layout.Head()); err != nil {
				t.Fatal(err)
			}
			if err := wait(t, "the loss", done); !errors.Is(err, journal.ErrLost) {
				t.Fatalf("the reader at the deletion: got %v, want ErrLost", err)
			}
			if founded {
				head, err := journal.Founding(at.Head, p.store.Position(), at.Head.Term+1024).Encode()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := client.Put(t.Context(), p.layout.Head(), head); err != nil {
					t.Fatal(err)
				}
			}
			done = follow(t, client, at, s)
			if !founded {
				if err := wait(t, "the loss", done); !errors.Is(err, journal.ErrLost) {
					t.Errorf("the reader behind the deletion: got %v, want ErrLost", err)
				}
				return
			}
			select {
			case <-s.founded:
			case err := <-done:
				t.Errorf("the reader behind the founding ended with %v, want it to read on", err)
			case <-time.After(20 * time.Second):
				t.Error("the reader behind the deletion: got no founding in 20s, want it")
			}
		})
	}
}

// Somebody wrote over the head and put it right, and a reader comes to that later: it goes on
// behind it. A head that came with a record is that of a commit, which it does not pass over.
func TestReaderPassesAHeadThatWasPutRight(t *testing.T) {
	for name, asCommit := range map[string]bool{"the head alone": false, "a commit": true} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			client := etcd.Client(t)
			s := newStandby()
			done := follow(t, client, now(t, client), s)
			p := newPrimary(t, client, 1<<20) // the writer does not run
			s.waitFor(t, p.store.Position())
			at := p.log.Tip()
			resp, err := client.Get(t.Context(), p.layout.Head())
			if err != nil {
				t.Fatal(err)
			}
			bad := []clientv3.Op{clientv3.OpPut(p.layout.Head(), "nonsense")}
			if asCommit {
				bad = append(bad, clientv3.OpPut(p.layout.Record(metadata.ObjectEvents, at.Head.Seq+1), "x"))
			}
			if _, err := client.Txn(t.Context()).Then(bad...).Commit(); err != nil {
				t.Fatal(err)
			}
			if err := wait(t, "the loss", done); !errors.Is(err, journal.ErrLost) {
				t.Fatalf("the reader while the head is wrong: got %v, want ErrLost", err)
			}
			if _, err := client.Put(t.Context(), p.layout.Head(), string(resp.Kvs[0].Value)); err != nil {
				t.Fatal(err)
			}
			done = follow(t, client, at, s)
			if asCommit {
				if err := wait(t, "the loss", done); !errors.Is(err, journal.ErrLost) {
					t.Errorf("the reader at a commit that is not of its journal: got %v, want ErrLost", err)
				}
				return
			}
			if _, err := client.Txn(t.Context()).Then(head(p.layout, at.Head, 2, 0)).Commit(); err != nil {
				t.Fatal(err)
			}
			wantReason(t, wait(t, "the next head", done), journal.ReasonGap) // which it has come to
		})
	}
}

// A reader says why its watch ended, also if etcd refuses it each time.
func TestAWatchThatEtcdRefuses(t *testing.T) {
	etcd := etcdtest.Start(t)
	start := now(t, etcd.Client(t))
	client := etcd.Client(t, grpc.WithChainStreamInterceptor(refuseWatches))
	ended := make(chan error, 1)
	reader := &journal.Reader{Client: client, Layout: journal.NewLayout("/understudy", "test"), Codec: codec, Ended: func(err error) {
		select {
		case ended <- err:
		default:
		}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := make(chan error, 1)
	go func() { read <- reader.Read(ctx, start, newStandby()) }()
	if err := wait(t, "the end of a watch", ended); !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("got %v, want that etcd denied the permission", err)
	}
	cancel()
	if err := wait(t, "the end of the reader", read); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
}

// refuseWatches answers for etcd that this user may not watch.
func refuseWatches(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, conn, method, options...)
	if err != nil || method != "/etcdserverpb.Watch/Watch" {
		return s, err
	}
	return &refusedWatch{s}, nil
}

type refusedWatch struct{ grpc.ClientStream }

func (s *refusedWatch) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	resp := m.(*etcdserverpb.WatchResponse)
	resp.WatchId, resp.Created, resp.Canceled, resp.CancelReason = -1, true, true, rpctypes.ErrPermissionDenied.Error()
	return nil
}
