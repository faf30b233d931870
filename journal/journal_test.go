package journal_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var params = metadata.Params{LeaseTTL: time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

var codec = journal.Codec{
	metadata.LeaseRenewals: leasesync.Decode,
	metadata.ObjectEvents:  func(b []byte) (metadata.Change, error) { return metadata.DecodeObjectEvent(b, eviction.NewCutoff) },
	metadata.DeleteEvents:  deleteevents.Decode,
}

// A primary is a store with a writer on a real etcd.
type primary struct {
	t      *testing.T
	client *clientv3.Client
	layout journal.Layout
	store  *metadata.Store
	queue  *journal.Queue
	log    *journal.EtcdLog
	writer *journal.Writer

	election journal.Election

	now  func() metadata.Time
	seen *observer
	done chan error
	stop context.CancelFunc
}

// tip is where its journal ends.
func (p *primary) tip(context.Context) journal.Cursor { return p.log.Tip() }

type observer struct {
	mu               sync.Mutex
	commits, refused int
	reason           error
	onRefused        func(error)
	onCommit         func(context.Context)
}

func (o *observer) Committed(ctx context.Context, _, _ int, _, _ time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.commits++
	if o.onCommit != nil {
		o.onCommit(ctx)
	}
}

func (o *observer) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.commits
}

func (o *observer) Refused(_ int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused++
	o.reason = err
	if o.onRefused != nil {
		o.onRefused(err)
	}
}

// newPrimary elects itself in term 1 and begins the term. The writer does not
// run until run is called.
func newPrimary(t *testing.T, client *clientv3.Client, queueBytes int64) *primary {
	t.Helper()
	p := &primary{
		t: t, client: client, layout: journal.NewLayout("/understudy", "test"),
		store: metadata.New(metadata.Options{}), seen: &observer{}, done: make(chan error, 1),
	}
	election := journal.NewElection()
	if _, err := client.Put(t.Context(), p.layout.Leader(), election.LeaderPrefix()+"}"); err != nil {
		t.Fatal(err)
	}
	boot := clock.Boot()
	p.now = metadata.NewClock(boot, 0)
	p.queue = journal.NewQueue(p.store, queueBytes)
	p.election = election
	p.log = journal.NewEtcdLog(client, p.layout, election, journal.Cursor{}, 5*time.Second, boot)
	p.store.StartIDs(1)
	p.writer = journal.NewWriter(journal.WriterConfig{
		Store: p.store, Queue: p.queue, Log: p.log, Term: 1, Hold: params.HoldTime(), Now: p.now, Elapsed: boot, Observer: p.seen,
	})
	if err := p.writer.Commit(t.Context(), &metadata.TermStart{Term: 1, Params: params}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *primary) run() *primary {
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() { p.done <- p.writer.Run(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		select {
		case err := <-p.done:
			p.t.Logf("the writer ended: %v", err)
		case <-time.After(20 * time.Second):
			p.t.Error("the writer runs 20s after it was stopped, want it ended")
		}
	})
	return p
}

func (p *primary) mount() *primary {
	p.t.Helper()
	e, err := p.store.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 30, Endpoint: "a:1"})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.queue.Submit(p.t.Context(), e); err != nil {
		p.t.Fatal(err)
	}
	return p
}

func (p *primary) prepare(key string) *metadata.PutStart {
	p.t.Helper()
	e, _, wait, err := p.store.PreparePutStart(&metadata.Put{Tenant: "default", Key: key, Size: 100, Replicas: 1}, p.now())
	if err != nil || wait != nil {
		p.t.Fatalf("preparing a put of %s: got %v, busy: %v; want no error, and not busy", key, err, wait != nil)
	}
	return e
}

func (p *primary) put(ctx context.Context, key string) error {
	answers, err := p.queue.Submit(ctx, p.prepare(key))
	if err != nil {
		return err
	}
	return answers[0]
}

func (p *primary) mustPut(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		if err := p.put(p.t.Context(), key); err != nil {
			p.t.Fatalf("put %s: got %v, want no error", key, err)
		}
	}
}

// A standby is a store that follows.
type standby struct {
	store *metadata.Store

	mu      sync.Mutex
	changed []string
	moved   chan struct{} // replaced at each commit
	founded chan struct{} // has an element for each founding
}

func newStandby() *standby {
	return &standby{store: metadata.New(metadata.Options{}), moved: make(chan struct{}), founded: make(chan struct{}, 1)}
}

func (s *standby) Commit(c *metadata.Commit, at journal.Cursor) error {
	before := s.store.Position()
	if at.Head.Checked == before.Seq && before.Seq > 0 && at.Head.Digest != before.Digest {
		return fmt.Errorf("at %d got the digest %v, want the primary's %v", before.Seq, before.Digest, at.Head.Digest)
	}
	if _, err := s.store.Apply(c, nil); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.moved)
	s.moved = make(chan struct{})
	return nil
}

func (s *standby) Founded(journal.Cursor) error { s.founded <- struct{}{}; return nil }

func (s *standby) Changed(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, key)
}

func (s *standby) waitFor(t *testing.T, want metadata.Position) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		moved := s.moved
		s.mu.Unlock()
		got := s.store.Position()
		if got == want {
			return
		}
		if got.Seq >= want.Seq {
			t.Fatalf("the standby is at %+v, want it at the primary's position, %+v", got, want)
		}
		select {
		case <-moved:
		case <-deadline:
			t.Fatalf("the standby stays at %+v, wanted %+v", got, want)
		}
	}
}

// follow reads the journal until the test ends; the channel gets the end.
func follow(t *testing.T, client *clientv3.Client, behind journal.Cursor, s *standby) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		r := &journal.Reader{Client: client, Layout: journal.NewLayout("/understudy", "test"), Codec: codec}
		done <- r.Read(ctx, behind, s)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return done
}

// now is the position of a reader that begins before the journal does.
func now(t *testing.T, client *clientv3.Client) journal.Cursor {
	t.Helper()
	resp, err := client.Get(t.Context(), "any")
	if err != nil {
		t.Fatal(err)
	}
	return journal.Cursor{Revision: resp.Header.Revision}
}

func wait(t *testing.T, what string, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatalf("waiting for %s: got nothing in 20s, want it", what)
		return nil
	}
}

// A standby applies what the primary commits: conformance line 76.
func TestCommitsReachAStandbyInOrder(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	s := newStandby()
	done := follow(t, etcd.Client(t), now(t, client), s)
	p := newPrimary(t, client, 1<<20).run().mount()
	var callers sync.WaitGroup
	for w := range 8 {
		callers.Go(func() {
			for i := range 50 {
				if err := p.put(t.Context(), fmt.Sprintf("%d-%d", w, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	s.waitFor(t, p.store.Position())
	if got := p.store.Stats().Objects; got != 400 {
		t.Errorf("got %d objects for 400 puts, want all", got)
	}
	if n := p.seen.count(); n >= 400 {
		t.Errorf("got %d commits for 400 concurrent puts, want fewer: puts share commits", n)
	}
	// The heartbeat moves on by itself, and with it the digest that is checked.
	at := p.store.Position()
	s.waitFor(t, waitBeyond(t, p.store, at.Seq))
	if _, err := client.Put(t.Context(), p.layout.Node("n1"), "{}"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("the reader ended with %v, want it to read on", err)
	default:
	}
}

func waitBeyond(t *testing.T, s *metadata.Store, seq metadata.Seq) metadata.Position {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if p := s.Position(); p.Seq > seq {
			return p
		}
	}
	t.Fatalf("got no commit behind %d in 20s, want a heartbeat's", seq)
	return metadata.Position{}
}

func TestFencedByAnotherLeader(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPrimary(t, etcd.Client(t), 1<<20).run().mount()
	p.mustPut("a")
	if _, err := etcd.Client(t).Delete(t.Context(), p.layout.Leader()); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Client(t).Put(t.Context(), p.layout.Leader(), "somebody else"); err != nil {
		t.Fatal(err)
	}
	before := p.store.Position()
	if err := p.put(t.Context(), "b"); errs.KindOf(err) != errs.NotLeader {
		t.Errorf("a put of a deposed primary: got %v, want NotLeader", err)
	}
	err := wait(t, "the end of the writer", p.done)
	p.done <- err
	if !errors.Is(err, journal.ErrFenced) {
		t.Errorf("the writer of a deposed primary ended with %v, want ErrFenced", err)
	}
	if err := p.put(t.Context(), "b"); errs.KindOf(err) != errs.NotLeader {
		t.Errorf("a later put of a deposed primary: got %v, want NotLeader", err)
	}
	if got := p.store.Position(); got.Seq != before.Seq && got.Seq != before.Seq+1 {
		t.Errorf("the deposed primary applied commits: got it at %+v, want it at %+v, or one commit further", got, before)
	}
	p.prepare("b") // was taken back: the key is free
}

// A deposed primary must not write after the head has moved on, even if the leader key were its own
// again.
func TestFencedByTheHead(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20).run().mount()
	at := p.log.Tip()
	head := fmt.Sprintf(`{"term":9,"sequence":%d,"checked_digest":"0"}`, at.Head.Seq+1)
	if _, err := client.Put(t.Context(), p.layout.Head(), head); err != nil {
		t.Fatal(err)
	}
	if err := p.put(t.Context(), "b"); errs.KindOf(err) != errs.NotLeader {
		t.Errorf("a put behind the head of another primary: got %v, want NotLeader", err)
	}
}

func TestTheRecordsLeaseIsRenewed(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20).run().mount()
	leases, err := client.Leases(t.Context())
	if err != nil || len(leases.Leases) == 0 {
		t.Fatalf("got the leases %v, %v, want one for the records", leases, err)
	}
	for _, l := range leases.Leases {
		if _, err := client.Revoke(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
	}
	p.mustPut("after the lease went")
}

// Records that no primary deletes expire, but only after a day, since all nodes may be away for that
// long.
func TestRecordsExpire(t *testing.T) {
	etcd := etcdtest.Start(t)
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20).run().mount()
	resp, err := client.Get(t.Context(), p.layout.Record(metadata.ObjectEvents, 2))
	if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].Lease == 0 {
		t.Fatalf("the record of the mount: got %+v, %v, want one that has a lease", resp, err)
	}
	ttl, err := client.TimeToLive(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
	if day := int64(24 * time.Hour / time.Second); err != nil || ttl.GrantedTTL < day || ttl.GrantedTTL > day+100 {
		t.Errorf("granted TTL %d s, want a day and little more: %v", ttl.GrantedTTL, err)
	}
}

func TestACallerThatGoesTakesItsChangeBack(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPrimary(t, etcd.Client(t), 1<<20)
	e, err := p.store.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.queue.Submit(ctx, e); errs.KindOf(err) != errs.Unavailable {
		t.Fatalf("a mount without a writer: got %v, want Unavailable at its deadline", err)
	}
	if bytes, n := p.queue.Len(); bytes != 0 || n != 0 {
		t.Errorf("the caller has gone: got %d bytes in %d submissions in the queue, want none", bytes, n)
	}
	p.run().mount()
	if st := p.store.Stats(); st.Segments != 1 {
		t.Errorf("after a commit of the next writer: got %d segments, want 1", st.Segments)
	}
}

// A change whose caller's context has ended is not committed, even if a writer waits for changes.
func TestACallerThatComesTooLateChangesNothing(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPrimary(t, etcd.Client(t), 1<<20).run()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2000 { // the writer would be quicker than the caller in some
		e, err := p.store.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := p.queue.Admit(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ticket.Submit(ctx, e); errs.KindOf(err) != errs.Unavailable {
			t.Fatalf("a mount whose caller has gone: got %v, want Unavailable", err)
		}
	}
	p.mount()
}

func TestOversizedSubmissions(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPrimary(t, etcd.Client(t), 1<<20).run().mount()
	big := p.prepare("big")
	big.DiskPath = string(make([]byte, metadata.MaxChangeBytes))
	busy := p.store.Stats().Busy
	if _, err := p.queue.Submit(t.Context(), big); errs.KindOf(err) != errs.InvalidParams {
		t.Errorf("a put with a path of 128 KiB: got %v, want InvalidParams, as the change is too large", err)
	}
	if got := p.store.Stats().Busy; got >= busy {
		t.Errorf("a change was refused: got %d bytes reserved, want less than the %d with it", got, busy)
	}
	var many []metadata.Change
	for i := range 10 {
		e := p.prepare(fmt.Sprint("many", i))
		e.DiskPath = string(make([]byte, metadata.MaxChangeBytes/2))
		many = append(many, e)
	}
	if _, err := p.queue.Submit(t.Context(), many...); errs.KindOf(err) != errs.InvalidParams {
		t.Errorf("a submission of 640 KiB: got %v, want InvalidParams", err)
	}
	p.mustPut("big", "many0")
}
