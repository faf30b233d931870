package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/understudy-store/understudy/errs"
)

// existsLease stands for the lease on a key that exists, as the answer does not give its time:
// it is the nodes' default.
const existsLease = 10 * time.Second

// errHalfLease ends the calls of a batch for which the objects of another cluster cannot wait.
var errHalfLease = errors.New("no answer within half of the lease on what another cluster has found; ask again for these keys")

// A leaseWait bounds the calls of a batch of several clusters, so that the caller can use what
// one of them has found while another one is away.
type leaseWait struct {
	ctx    context.Context // of the calls
	cancel context.CancelCauseFunc
	first  sync.Once
	timer  *time.Timer // set by first
}

func newLeaseWait(ctx context.Context) *leaseWait {
	w := new(leaseWait)
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	return w
}

// found says that a cluster has found objects, with a lease for so long.
func (w *leaseWait) found(lease time.Duration) {
	w.first.Do(func() { w.timer = time.AfterFunc(lease/2, func() { w.cancel(errHalfLease) }) })
}

// why returns the error of a call, with the reason if the wait has ended it.
func (w *leaseWait) why(op operation, err error) error {
	if err != nil && errors.Is(context.Cause(w.ctx), errHalfLease) {
		return errs.New(errs.Unavailable, op.name, "%v: %v", errHalfLease, err)
	}
	return err
}

// end ends the wait, when all calls have ended.
func (w *leaseWait) end() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
}
