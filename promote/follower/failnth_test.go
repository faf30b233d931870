package follower_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
	"github.com/understudy-store/understudy/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var codec = service.Codec()

var params = metadata.Params{LeaseTTL: time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

// Whatever operation on etcd or on the snapshot's stream fails while a follower
// loads, its state is the old one or the whole new one at any time, and it comes
// to have the primary's.
func TestLoadWhenTheNthOperationFails(t *testing.T) {
	for name, old := range map[string]bool{"from nothing": false, "from an old state": true} {
		for _, kind := range []faultinject.Kind{faultinject.QuestionLost, faultinject.AnswerLost} {
			t.Run(fmt.Sprintf("%s, %v", name, kind), func(t *testing.T) {
				t.Parallel()
				p := newPrimary(t)
				failed := 0
				for run := range faultinject.Runs(kind) {
					run.Skip = middleOfSnapshot
					t.Run(fmt.Sprint(run.I), func(t *testing.T) { p.loadWithFault(t, run, old) })
					if run.Fault() != "" {
						failed++
					}
				}
				if least := map[faultinject.Kind]int{faultinject.QuestionLost: 6, faultinject.AnswerLost: 12}[kind]; failed < least {
					t.Errorf("only %d operations failed, want %d at least", failed, least)
				}
			})
		}
	}
}

// middleOfSnapshot leaves out most of the thousand messages of a snapshot: what
// is between the first and the last is a part like any other.
func middleOfSnapshot(method string, n int) bool {
	return method == pb.SnapshotService_StreamSnapshot_FullMethodName && n > 3 && n < metadata.SnapshotParts && n%300 != 0
}

func (p *primary) loadWithFault(t *testing.T, run *faultinject.Run, old bool) {
	var store *metadata.Store
	var at journal.Cursor
	if old {
		store, at = p.copied(t)
		p.put(t, "since")
		if _, err := p.client.Delete(t.Context(), p.layout.Records(metadata.ObjectEvents), clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		p.put(t, "compacted")
		if _, err := p.client.Compact(t.Context(), p.log.Tip().Revision); err != nil {
			t.Fatal(err)
		}
	}
	client := p.etcd.Client(t, run.DialOptions()...)
	f := follower.New(follower.Config{
		Clock:    clock.Boot(),
		Reader:   &journal.Reader{Client: client, Layout: p.layout, Codec: codec},
		Snapshot: &fetcher{p.dial(t, run)}, Counters: new(leasesync.Counters), Log: zerolog.Nop(), Changed: func(string) {},
		FullSyncInterval: time.Minute, MaxLagBytes: 1 << 30,
	}, store, at)
	var before metadata.Position
	if old {
		before = store.Position()
	}
	run.OnFault = func() {
		got, _ := f.State()
		switch {
		case got == nil && (old || f.Complete()):
			t.Errorf("%v: the follower has no state, want one: it had an old one: %v, it is complete: %v", run, old, f.Complete())
		case got == store && old && store.Position() != before:
			t.Errorf("%v: the old state moved: got %+v, want it unchanged at %+v until the new one is complete",
				run, store.Position(), before)
		}
	}
	run.Arm()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v: the follower ended with %v, want context.Canceled", run, err)
		}
	}()
	p.put(t, "meanwhile")
	p.reached(t, run, f)
	p.put(t, "after") // it follows on
	p.reached(t, run, f)
	run.Disarm()
	wantReason := journal.ReasonStart
	if old {
		wantReason = journal.ReasonCompacted
	}
	if loads := f.Status().Loads; loads[wantReason] != 1 || len(loads) != 1 {
		t.Errorf("%v: got the snapshots %v, want one for %s", run, loads, wantReason)
	}
}

// reached waits until a follower has what the primary has now, and compares.
func (p *primary) reached(t *testing.T, run *faultinject.Run, f *follower.Follower) {
	t.Helper()
	want := p.store.Position()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := f.WaitApplied(ctx, want.Seq); err != nil {
		t.Fatalf("%v: after 10s got the follower's status %+v, want it at %d", run, f.Status(), want.Seq)
	}
	// One that has loaded a later state does not know the digest of this one; the
	// head's is then compared at the next commit.
	if got, ok := f.Digest(want.Seq); ok && got != want.Digest {
		t.Errorf("S: %v: at %d got the digest %v, want the primary's, %v", run, want.Seq, got, want.Digest)
	}
}

// A primary serves snapshots, and puts one object whenever it has sent a part
// of one, up to a few: so each has a tail.
type primary struct {
	etcd   *etcdtest.Cluster
	client *clientv3.Client
	layout journal.Layout
	store  *metadata.Store
	queue  *journal.Queue
	log    *journal.EtcdLog
	now    func() metadata.Time
	addr   string
	keys   atomic.Int64
	halt   func()       // ends the commits, those of clock time among them
	quiet  atomic.Bool  // there are no commits
	asked  atomic.Int64 // how often the fence was, by a snapshot under way
}

func newPrimary(t *testing.T) *primary { t.Helper(); return newPrimaryOn(t, etcdtest.Start(t)) }

func newPrimaryOn(t *testing.T, etcd *etcdtest.Cluster) *primary {
	t.Helper()
	boot := clock.Boot()
	p := &primary{
		etcd: etcd, layout: journal.NewLayout("/understudy", "test"),
		store: metadata.New(metadata.Options{}), now: metadata.NewClock(boot, 0),
	}
	p.client = p.etcd.Client(t)
	election := journal.NewElection()
	if _, err := p.client.Put(t.Context(), p.layout.Leader(), election.LeaderPrefix()+"}"); err != nil {
		t.Fatal(err)
	}
	p.queue = journal.NewQueue(p.store, 1<<20)
	p.log = journal.NewEtcdLog(p.client, p.layout, election, journal.Cursor{}, time.Minute, boot)
	p.log.Histories = func() bool { return true }
	p.store.StartIDs(1)
	w := journal.NewWriter(journal.WriterConfig{
		Store: p.store, Queue: p.queue, Log: p.log, Term: 1, Hold: params.HoldTime(), Now: p.now, Elapsed: boot,
	})
	if err := w.Commit(t.Context(), &metadata.TermStart{Term: 1, Params: params}); err != nil {
		t.Fatal(err)
	}
	mount, err := p.store.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 30, Endpoint: "a:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context(), mount); err != nil {
		t.Fatal(err)
	}
	p.write(t, w)
	p.serve(t)
	return p
}

// write runs a writer until the test ends, or halt is called.
func (p *primary) write(t *testing.T, w *journal.Writer) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	p.quiet.Store(false)
	p.halt = sync.OnceFunc(func() {
		p.quiet.Store(true)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the writer ended with %v, want context.Canceled", err)
		}
	})
	t.Cleanup(p.halt)
}

// resume commits again after halt.
func (p *primary) resume(t *testing.T) {
	p.queue = journal.NewQueue(p.store, 1<<20)
	p.write(t, journal.NewWriter(journal.WriterConfig{
		Store: p.store, Queue: p.queue, Log: p.log, Term: 1, Hold: params.HoldTime(), Now: p.now, Elapsed: clock.Boot(),
	}))
}

func (p *primary) serve(t *testing.T) {
	t.Helper()
	server := rpc.NewServer(rpc.Config{ClusterID: "test", NodeID: "primary", Gate: service.NewGate(), Snapshots: p, Log: zerolog.Nop()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// BeginSnapshot makes a primary the source of its snapshots.
func (p *primary) BeginSnapshot(ctx context.Context) (rpc.SnapshotBegin, error) {
	for ctx.Err() == nil {
		tip := p.log.Tip()
		part, at := p.store.AppendSnapshotPart(nil, 0)
		if at.Seq == tip.Head.Seq {
			p.asked.Store(0)
			return rpc.SnapshotBegin{Term: 1, Store: p.store, Fence: p.fence, First: part, Seq: at.Seq, Revision: tip.Revision, Head: tip.Value()}, nil
		}
	}
	return rpc.SnapshotBegin{}, ctx.Err()
}

func (p *primary) fence(context.Context) error {
	if n := p.asked.Add(1); n%400 == 0 && !p.quiet.Load() {
		return p.tryPut(context.Background(), "while a snapshot is sent")
	}
	return nil
}

func (p *primary) put(t *testing.T, prefix string) {
	t.Helper()
	if err := p.tryPut(t.Context(), prefix); err != nil {
		t.Fatal(err)
	}
}

func (p *primary) tryPut(ctx context.Context, prefix string) error {
	put := &metadata.Put{Tenant: metadata.DefaultTenant, Key: fmt.Sprint(prefix, p.keys.Add(1)), Size: 100, Replicas: 1}
	e, _, _, err := p.store.PreparePutStart(put, p.now())
	if err != nil {
		return err
	}
	_, err = p.queue.Submit(ctx, e)
	return err
}

// copied returns a copy of the state, and where it stands.
func (p *primary) copied(t *testing.T) (*metadata.Store, journal.Cursor) {
	t.Helper()
	f := follower.New(follower.Config{
		Clock:  clock.Boot(),
		Reader: &journal.Reader{Client: p.client, Layout: p.layout, Codec: codec}, Snapshot: &fetcher{p.dial(t, nil)},
		Counters: new(leasesync.Counters), Log: zerolog.Nop(), Changed: func(string) {}, FullSyncInterval: time.Minute,
	}, nil, journal.Cursor{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	if err := f.WaitApplied(t.Context(), p.store.Position().Seq); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the follower ended with %v, want context.Canceled", err)
	}
	return f.State()
}

func (p *primary) dial(t *testing.T, run *faultinject.Run) *grpc.ClientConn {
	t.Helper()
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if run != nil {
		options = append(options, run.DialOptions()...)
	}
	conn, err := grpc.NewClient(p.addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A fetcher gets snapshots over a connection.
type fetcher struct{ conn *grpc.ClientConn }

func (f *fetcher) Fetch(ctx context.Context, add func([]byte) error) (journal.Cursor, error) {
	info, err := rpc.FetchSnapshot(ctx, f.conn, rpc.SnapshotRequest{ClusterID: "test", NodeID: "follower"}, add)
	if err != nil {
		return journal.Cursor{}, err
	}
	head, err := journal.DecodeHead([]byte(info.Head))
	return journal.NewCursor(head, info.Revision, info.Head), err
}
