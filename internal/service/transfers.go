package service

import (
	"context"
	"errors"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

// A TransferPlan tells the client of a copy or a move what to read and where to
// write.
type TransferPlan struct {
	ID      metadata.ObjectID
	Source  metadata.Descriptor
	Targets []metadata.Descriptor // none if the object is there already
}

// CopyStart begins a copy of an object to other segments. Its source is neither
// evicted nor removed until CopyEnd or CopyRevoke, at most for the release timeout.
// Errors: those of metadata.Store.PrepareTransfer.
func (m *Master) CopyStart(ctx context.Context, t metadata.Transfer) (TransferPlan, error) {
	return m.startTransfer(ctx, OpCopyStart, "CopyStart", t)
}

// MoveStart begins a move, as CopyStart does a copy.
func (m *Master) MoveStart(ctx context.Context, t metadata.Transfer) (TransferPlan, error) {
	t.Move = true
	return m.startTransfer(ctx, OpMoveStart, "MoveStart", t)
}

func (m *Master) startTransfer(ctx context.Context, counted Op, op string, t metadata.Transfer) (plan TransferPlan, err error) {
	if err := m.Fence(ctx); err != nil {
		return TransferPlan{}, err
	}
	switch {
	case len(t.Targets) > metadata.MaxReplicas:
		err = errs.New(errs.InvalidParams, op, "there are %d targets, at most %d are possible", len(t.Targets), metadata.MaxReplicas)
	case t.Move && len(t.Targets) != 1:
		err = errs.New(errs.InvalidParams, op, "there are %d targets, a move has one", len(t.Targets))
	case t.Move && t.Source == t.Targets[0]:
		err = errs.New(errs.InvalidParams, op, "the source is the target")
	default:
		err = checkKey(op, t.Tenant, t.Key)
	}
	if err != nil {
		return TransferPlan{}, m.Counters.done(counted, err)
	}
	t.Metered = bool(m.Tenants)
	o := m.startWithRoom(ctx, t.Tenant, 64+16*len(t.Targets), func() (*metadata.StartTransfer, <-chan struct{}, error) {
		return m.Store.PrepareTransfer(&t)
	})
	if e, ok := o.change.(*metadata.StartTransfer); ok && o.err == nil {
		plan.ID = e.ID
		plan.Source, plan.Targets = e.Descriptors()
	}
	return plan, m.Counters.done(counted, o.err)
}

// startWithRoom commits the start of a transfer. When it breaks its tenant's quota, other
// objects of the tenant are evicted and it is tried again, as a put is. Nothing is evicted
// for a transfer for which there would be no room either if its object were alone.
func (m *Master) startWithRoom(ctx context.Context, tenant string, bytes int, start func() (*metadata.StartTransfer, <-chan struct{}, error)) outcome {
	var o outcome
	commit := func() {
		asOf := m.Store.Time()
		o = m.commit(ctx, 1, bytes, func(int, metadata.Time) (metadata.Change, <-chan struct{}, error) {
			e, wait, err := start()
			m.noteTransfer(err, asOf)
			return decided(e, wait, err)
		})[0]
	}
	commit()
	m.evictions.Retry(ctx, tenant, func(quota uint64) (uint64, metadata.ObjectID) {
		var no *metadata.NoRoomError
		if !o.overQuota() || !errors.As(o.err, &no) || no.Wanted > quota || no.Kept > quota-no.Wanted {
			return 0, 0
		}
		return no.Wanted, no.ID
	}, commit)
	if o.overQuota() {
		m.Counters.Tenants.rejected(tenant)
	}
	return o
}

// noteTransfer asks for an eviction pass, as a put does, if a transfer found no memory. If
// another segment has room for a copy, it does not: a pass goes by age, and would take
// objects everywhere until one segment has room.
func (m *Master) noteTransfer(err error, asOf metadata.Time) {
	if no, ok := errors.AsType[*metadata.NoRoomError](err); ok && errs.KindOf(err) == errs.NoAvailableHandle && m.Store.CouldHold(no.Size, 1) && !m.Store.HasRoom(no.Size) {
		m.AllocationFailed(no.Size, asOf)
	}
}

// CopyEnd makes the copies of a client readable. Errors: ObjectNotFound,
// ObjectNoTask without a copy under way, IllegalClient for a stranger's,
// InvalidParams for a move, ReplicaGone if its source or a target has gone: the
// other copies are readable, unless it was the source.
func (m *Master) CopyEnd(ctx context.Context, t metadata.Transfer) error {
	return m.endTransfer(ctx, OpCopyEnd, t, true)
}

// CopyRevoke gives a copy up. Errors: as CopyEnd.
func (m *Master) CopyRevoke(ctx context.Context, t metadata.Transfer) error {
	return m.endTransfer(ctx, OpCopyRevoke, t, false)
}

// MoveEnd makes a moved object readable at its target, and takes it away from its
// source. If either has gone, the move is given up: ReplicaGone. Other errors: as
// CopyEnd.
func (m *Master) MoveEnd(ctx context.Context, t metadata.Transfer) error {
	t.Move = true
	return m.endTransfer(ctx, OpMoveEnd, t, true)
}

// MoveRevoke gives a move up. Errors: as CopyEnd.
func (m *Master) MoveRevoke(ctx context.Context, t metadata.Transfer) error {
	t.Move = true
	return m.endTransfer(ctx, OpMoveRevoke, t, false)
}

func (m *Master) endTransfer(ctx context.Context, counted Op, t metadata.Transfer, complete bool) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	o := m.commit(ctx, 1, 32, func(_ int, now metadata.Time) (metadata.Change, <-chan struct{}, error) {
		return decided(m.Store.PrepareTransferEnd(&t, complete, now))
	})[0]
	if e, ok := o.change.(*metadata.EndTransfer); ok && o.err == nil && e.Lost && complete {
		o.err = errs.ReplicaGone
	}
	return m.Counters.done(counted, o.err)
}
