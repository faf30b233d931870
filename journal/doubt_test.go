package journal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/waittest"
)

// faultyClient connects to a real etcd; each transaction asks fault whether it
// is sent at all, and whether its answer arrives. Each call is passed to calls.
func faultyClient(t *testing.T, etcd *etcdtest.Cluster, fault func() (send, answer bool), calls ...func(method string)) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: etcd.Endpoints(),
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			for _, call := range calls {
				call(method)
			}
			if !strings.HasSuffix(method, "/Txn") {
				return invoker(ctx, method, req, reply, cc, opts...)
			}
			send, answer := fault()
			if !send {
				return status.Error(codes.Unavailable, "test: not sent")
			}
			err := invoker(ctx, method, req, reply, cc, opts...)
			if err == nil && !answer {
				return status.Error(codes.Unavailable, "test: the answer is lost")
			}
			return err
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Whether a transaction's request or answer is lost, the change is in the journal once, and its
// caller gets the true result.
func TestLostAnswersAreResolved(t *testing.T) {
	for name, tc := range map[string]struct{ send, answer func(n int32) bool }{
		"the answer is lost":      {always, odd},
		"the question is lost":    {odd, always},
		"both, one after another": {func(n int32) bool { return n%3 != 1 }, func(n int32) bool { return n%3 != 2 }},
		"answers are lost twice":  {always, func(n int32) bool { return n%3 == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			var on atomic.Bool
			var n atomic.Int32
			client := faultyClient(t, etcd, func() (bool, bool) {
				if !on.Load() {
					return true, true
				}
				i := n.Add(1)
				return tc.send(i), tc.answer(i)
			})
			s := newStandby()
			done := follow(t, etcd.Client(t), now(t, etcd.Client(t)), s)
			p := newPrimary(t, client, 1<<20).run().mount()
			on.Store(true)
			for i := range 10 {
				p.mustPut(fmt.Sprint(i))
			}
			on.Store(false)
			s.waitFor(t, p.store.Position())
			if got := s.store.Stats().Objects; got != 10 {
				t.Errorf("%d objects on the standby, want 10", got)
			}
			select {
			case err := <-done:
				t.Errorf("the reader ended with %v, want it to read on", err)
			default:
			}
		})
	}
}

// A commit without an answer costs no read at first: the same transaction goes out again,
// and finds out what became of it.
func TestDoubtIsResolvedWithoutARead(t *testing.T) {
	for name, sent := range map[string]bool{"the answer is lost": true, "the question is lost": false} {
		t.Run(name, func(t *testing.T) {
			etcd := etcdtest.Start(t)
			var lose atomic.Bool
			var reads atomic.Int32
			lost := make(chan struct{})
			client := faultyClient(t, etcd, func() (bool, bool) {
				if !lose.CompareAndSwap(true, false) {
					return true, true
				}
				close(lost)
				return sent, false
			}, func(method string) {
				if strings.HasSuffix(method, "/Range") {
					reads.Add(1)
				}
			})
			p := newPrimary(t, client, 1<<20).run().mount()
			before := reads.Load()
			lose.Store(true)
			p.mustPut("k")
			<-lost
			p.mustPut("l") // behind the one in doubt
			if n := reads.Load() - before; n > 0 {
				t.Errorf("%d reads, want none", n)
			}
		})
	}
}

// A commit that etcd does not answer is sent again while the first one is under way, since a request
// to a leader of etcd that died may be lost for good.
func TestUnansweredCommitIsSentAgain(t *testing.T) {
	etcd := etcdtest.Start(t)
	var hang atomic.Bool
	var beside atomic.Int64 // transactions that were sent behind the one that hangs
	hung, ended := make(chan struct{}), make(chan struct{})
	client, err := clientv3.New(clientv3.Config{
		Endpoints: etcd.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if !strings.HasSuffix(method, "/Txn") {
				return invoker(ctx, method, req, reply, cc, opts...)
			}
			if !hang.CompareAndSwap(true, false) {
				beside.Add(1)
				return invoker(ctx, method, req, reply, cc, opts...)
			}
			beside.Store(0)
			close(hung)
			defer close(ended)
			<-ctx.Done()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) && beside.Load() == 0 {
				t.Error("the first call ran into its deadline, want another one beside it")
			}
			return status.FromContextError(ctx.Err()).Err()
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	p := newPrimary(t, client, 1<<20).run().mount()
	hang.Store(true)
	p.mustPut("k")
	<-hung
	p.mustPut("l")
	<-ended
}

// If etcd does not grant the next lease, for example while it elects a leader, records get the lease
// of the earlier ones.
func TestLeaseThatIsNotGranted(t *testing.T) {
	etcd := etcdtest.Start(t)
	var hang atomic.Bool
	client, err := clientv3.New(clientv3.Config{
		Endpoints: etcd.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			if hang.Load() && strings.HasSuffix(method, "/LeaseGrant") {
				<-ctx.Done()
				return status.FromContextError(ctx.Err()).Err()
			}
			return invoker(ctx, method, req, reply, cc, opts...)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	p := newPrimary(t, client, 1<<20).run().mount()
	hang.Store(true)
	elapsed := clock.Boot()
	for began := elapsed(); elapsed()-began < 1100*time.Millisecond; { // beyond the second of the first lease
		p.mustPut(fmt.Sprint(elapsed()))
	}
	hang.Store(false)
}

func always(int32) bool { return true }
func odd(n int32) bool  { return n%2 == 0 }

// If another primary takes over before the doubt is resolved, the caller gets the answer that the
// outcome is open, not that nothing happened.
func TestDoubtThatIsNeverResolved(t *testing.T) {
	etcd := etcdtest.Start(t)
	other := etcd.Client(t)
	layout := journal.NewLayout("/understudy", "test")
	var lose atomic.Bool
	client := faultyClient(t, etcd, func() (bool, bool) {
		if !lose.Load() {
			return true, true
		}
		return true, false
	})
	p := newPrimary(t, client, 1<<20).run().mount()
	before := p.log.Tip().Head
	lose.Store(true)
	// The successor moves the head as soon as the doubtful commit is there.
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for ctx := t.Context(); ctx.Err() == nil; {
			resp, err := other.Get(ctx, layout.Head())
			if err != nil {
				return
			}
			if h, err := journal.DecodeHead(resp.Kvs[0].Value); err == nil && h.Seq > before.Seq && h.Term == 1 {
				next := fmt.Sprintf(`{"term":2,"sequence":%d,"checked_digest":"0"}`, h.Seq+1)
				_, _ = other.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(layout.Head()), "=", resp.Kvs[0].ModRevision)).
					Then(clientv3.OpPut(layout.Head(), next)).Commit()
				return
			}
		}
	}()
	err := p.put(t.Context(), "doubtful")
	<-moved
	switch errs.KindOf(err) {
	case errs.Unresolved: // the successor was first
	case errs.OK: // the doubt was resolved before the successor came; the next one cannot be
		if err := p.put(t.Context(), "late"); errs.KindOf(err) != errs.NotLeader && errs.KindOf(err) != errs.Unresolved {
			t.Errorf("a put behind the successor's head: got %v, want NotLeader or Unresolved", err)
		}
	default:
		t.Errorf("a put whose outcome is open: got %v, want Unresolved, or no error if it was resolved in time", err)
	}
}

func TestDeadlineWhileACommitIsUnderWay(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPrimary(t, etcd.Client(t), 1<<20).run().mount()
	for try := 1; ; try++ {
		etcd.Pause(0)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := p.put(ctx, "slow")
		cancel()
		etcd.Resume(0)
		if errs.KindOf(err) == errs.Unresolved {
			break
		}
		if errs.KindOf(err) != errs.Unavailable || try == 20 {
			t.Fatalf("a put whose commit has no answer yet: got %v in attempt %d, want Unresolved within 20", err, try)
		}
		p.mustPut(fmt.Sprint("behind ", try)) // it was not under way: behind a beat, or on a machine that stalls
	}
	// It is made all the same, and the next caller waits for it.
	waitFor(t, "the put", func() bool {
		_, err := p.store.Inspect("default", "slow")
		return err == nil
	})
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	waittest.Until(t, 20*time.Second, what, cond)
}

// A stalledLog says when a commit has come to it, and holds it until the
// context ends.
type stalledLog struct{ came chan struct{} }

func (l stalledLog) Append(ctx context.Context, _ *journal.Sealed) error {
	l.came <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func TestStoppingTheWriterLeavesNothingOpen(t *testing.T) {
	etcd := etcdtest.Start(t)
	p := newPrimary(t, etcd.Client(t), 1<<20).run().mount()
	p.stop()
	p.done <- wait(t, "the end of the writer", p.done)

	boot := clock.Boot()
	p.queue = journal.NewQueue(p.store, 1<<24)
	stalled := stalledLog{make(chan struct{}, 1)}
	w := journal.NewWriter(journal.WriterConfig{
		Store: p.store, Queue: p.queue, Log: stalled, Term: 1, Now: p.now, Elapsed: boot,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	sealed, queued := make(chan error, 1), make(chan error, 20)
	go func() { sealed <- p.put(t.Context(), "sealed") }()
	waitFor(t, "the first put", func() bool { _, n := p.queue.Len(); return n == 1 })
	go func() { ended <- w.Run(ctx) }()
	<-stalled.came
	for i := range 20 {
		go func() { queued <- p.put(t.Context(), fmt.Sprint(i)) }()
	}
	waitFor(t, "the puts in the queue", func() bool { _, n := p.queue.Len(); return n == 20 })
	cancel()
	if err := wait(t, "the answer to what was sealed", sealed); errs.KindOf(err) != errs.Unresolved {
		t.Errorf("a put whose commit is under way when the writer stops: got %v, want Unresolved", err)
	}
	for range 20 {
		if err := wait(t, "the answer to what was queued", queued); errs.KindOf(err) != errs.NotLeader {
			t.Errorf("a put in the queue when the writer stops: got %v, want NotLeader", err)
		}
	}
	if err := wait(t, "the end of the writer", ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if st := p.store.Stats(); st.Busy != 0 {
		t.Errorf("the writer has stopped: got %d bytes still reserved, want none", st.Busy)
	}
	if _, err := p.queue.Admit(t.Context(), 1); errs.KindOf(err) != errs.NotLeader {
		t.Errorf("the queue of a stopped writer: got %v, want NotLeader", err)
	}
}

// The position at which a cut reader goes on.
func TestReaderGoesOnAfterACut(t *testing.T) {
	etcd := etcdtest.Start(t)
	direct := etcd.Client(t)
	s := newStandby()
	done := follow(t, etcd.Client(t), now(t, etcd.Client(t)), s)
	p := newPrimary(t, direct, 1<<20).run().mount()
	p.mustPut("a")
	s.waitFor(t, p.store.Position())
	for i := range 3 {
		etcd.CutClients(0)
		etcd.HealClients(0)
		p.mustPut(fmt.Sprint("b", i))
	}
	s.waitFor(t, p.store.Position())
	select {
	case err := <-done:
		t.Errorf("cut clients were healed: the reader ended with %v, want it to read on", err)
	default:
	}
}
