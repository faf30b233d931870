package journal_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
)

func TestFullEtcdRecovers(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20).run().mount()
	p.mustPut("before")
	compactor := journal.NewCompactor(journal.Compactor{
		Client: client, Layout: p.layout, Tip: p.tip, Clock: clock.Boot(), Log: slog.New(slog.DiscardHandler),
		Keep: time.Hour, MaxBytes: 1 << 40, Cover: covered(p),
	})
	etcd.FillQuota(t)
	err := p.put(t.Context(), "full")
	if errs.KindOf(err) != errs.Unavailable || !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("a put into a full etcd: got %v, want Unavailable with etcd's ErrNoSpace", err)
	}
	if !errs.KindOf(err).Retryable() {
		t.Errorf("a put into a full etcd: got %v, want an error that says to try again", err)
	}
	if _, err := p.store.Inspect("default", "full"); err == nil {
		t.Error("a put that was refused: got its object in the state, want none")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- compactor.Run(ctx) }()
	waitFor(t, "space", func() bool { s := compactor.Space(); return s.Quota > 0 && !s.Full() })
	p.mustPut("full")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the compactor ended with %v, want context.Canceled", err)
	}
}

// covered returns a cover that allows deleting everything that the primary has applied.
func covered(p *primary) func(context.Context) (journal.Cover, error) {
	return func(context.Context) (journal.Cover, error) { return journal.Cover{Seq: p.log.Tip().Head.Seq}, nil }
}

// An embedded etcd was nearly full for an hour, with keys that no node could delete. When those keys
// are deleted, there is space within seconds, however many attempts failed before.
func TestSpaceIsFoundSoonAfterALongTime(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithQuota(32<<20))
	client := etcd.Client(t)
	p := newPrimary(t, client, 1<<20)
	var ahead, tries atomic.Int64
	boot := clock.Boot()
	compactor := journal.NewCompactor(journal.Compactor{
		Client: client, Layout: p.layout, Tip: p.tip, Log: slog.New(slog.DiscardHandler), Keep: time.Hour, MaxBytes: 1 << 40,
		Clock: func() time.Duration { return boot() + time.Duration(ahead.Load()) },
		Cover: func(context.Context) (journal.Cover, error) {
			tries.Add(1)
			resp, err := client.Get(t.Context(), "any")
			if err != nil {
				return journal.Cover{}, err
			}
			return journal.Cover{Revision: resp.Header.Revision}, nil
		},
	})
	etcd.FillTo(t, 31e6)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- compactor.Run(ctx) }()
	defer func() { cancel(); _ = wait(t, "the end of the compactor", done) }()
	for range 7 {
		before := tries.Load()
		waitFor(t, "an attempt to make space", func() bool {
			ahead.Add(int64(time.Minute))
			return tries.Load() > before
		})
	}
	if _, err := client.Delete(t.Context(), "tenant/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "space", func() bool { return !compactor.Space().Full() })
}

// A message is lost, so that a commit is in doubt, and then etcd is full. The node makes space, and
// the commit succeeds.
func TestFullEtcdRecoversWhileACommitIsInDoubt(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	var lose atomic.Bool
	var once sync.Once
	lost := make(chan struct{})
	hold := make(chan struct{})
	client := faultyClient(t, etcd, func() (bool, bool) {
		if !lose.Load() {
			return true, true
		}
		once.Do(func() { close(lost) })
		<-hold // until etcd is full; also those that are sent beside the first
		return false, true
	})
	p := newPrimary(t, client, 1<<20)
	compactor := journal.NewCompactor(journal.Compactor{
		Client: client, Layout: p.layout, Tip: p.tip, Clock: clock.Boot(), Log: slog.New(slog.DiscardHandler),
		Keep: time.Hour, MaxBytes: 1 << 40, Cover: covered(p),
	})
	p.run().mount().mustPut("before")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- compactor.Run(ctx) }()
	defer func() { cancel(); _ = wait(t, "the end of the compactor", done) }()

	lose.Store(true)
	answer := make(chan error, 1)
	go func() { answer <- p.put(t.Context(), "in doubt") }()
	<-lost
	etcd.FillQuota(t)
	lose.Store(false)
	close(hold)
	if err := wait(t, "the answer to the put in doubt", answer); err != nil {
		t.Errorf("the put in doubt: got %v, want no error once there is space", err)
	}
	p.mustPut("after")
}

// A write that takes etcd beyond its quota may be applied although etcd answers that it has no space.
// A resignation finds out whether it was applied.
func TestResigningWhenEtcdFills(t *testing.T) {
	for _, applied := range []bool{true, false} {
		t.Run(fmt.Sprintf("applied %v", applied), func(t *testing.T) {
			etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
			run := &faultinject.Run{Kind: faultinject.NoSpace, I: 1, Row: 1}
			client := etcd.Client(t, run.DialOptions()...)
			p := newPrimary(t, client, 1<<20)
			if applied {
				run.Arm()
			} else {
				etcd.FillQuota(t)
			}
			err := p.log.Resign(t.Context(), p.writer.Next())
			leader, failed := client.Get(t.Context(), p.layout.Leader())
			if failed != nil {
				t.Fatal(failed)
			}
			var refused *journal.RefusedError
			switch held := len(leader.Kvs) == 1; {
			case held == applied:
				t.Errorf("a resignation, applied: %v: got the leader key there: %v, want %v", applied, held, !applied)
			case applied && err != nil:
				t.Errorf("a resignation that was applied: got %v, want no error", err)
			case !applied && (!errors.As(err, &refused) || !errors.Is(err, rpctypes.ErrNoSpace)):
				t.Errorf("a resignation that was not applied: got %v, want it refused with ErrNoSpace", err)
			}
		})
	}
}
