package journal_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
)

// A message is lost, so that a commit is in doubt, and then etcd is full: space
// is made, and the commit is made all the same.
func TestFullEtcdRecoversWhileACommitIsInDoubt(t *testing.T) {
	etcd := etcdtest.Start(t, etcdtest.WithQuota(16<<20))
	var lose atomic.Bool
	lost := make(chan struct{})
	hold := make(chan struct{})
	client := faultyClient(t, etcd, func() (bool, bool) {
		if !lose.CompareAndSwap(true, false) {
			return true, true
		}
		close(lost)
		<-hold // until etcd is full
		return false, true
	})
	p := newPrimary(t, client, 1<<20)
	compactor := journal.NewCompactor(journal.Compactor{
		Client: client, Layout: p.layout, Tip: p.log.Tip, Clock: clock.Boot(), Log: zerolog.Nop(),
		Keep: time.Hour, MaxBytes: 1 << 40, Owned: true,
	})
	p.log.NoSpace = compactor.NoSpace
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
	close(hold)
	if err := wait(t, "the answer to the put in doubt", answer); err != nil {
		t.Errorf("the put: %v", err)
	}
	p.mustPut("after")
}
