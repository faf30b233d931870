package service

import (
	"cmp"
	"context"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// MountLocalDisk offers a client's SSD to the store; offloading says whether
// the client takes objects to copy now. Mounting it again sets the flag. From now
// on the client expires if it goes silent. This alone does not make it known: it
// may have segments that this master has lost. Errors: OffloadDisabled unless
// --enable_offload is on.
func (m *Master) MountLocalDisk(ctx context.Context, client segment.ClientID, offloading bool) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	if !m.Offload {
		return offloadDisabled("MountLocalDiskSegment")
	}
	return m.withSegments(ctx, func(ctx context.Context) error {
		// Before the mount, so that the SSD goes with its client even if the caller
		// never learns that it was mounted.
		if err := m.Liveness.Watch(callerOf(ctx), client); err != nil {
			return err
		}
		err := commitOne(ctx, m, 32, func() (*metadata.MountLocalDisk, error) {
			return m.Store.PrepareMountLocalDisk(client, offloading), nil
		})
		if err != nil {
			return err
		}
		m.offloads.set(client, offloading)
		return nil
	})
}

func offloadDisabled(op string) error {
	return errs.New(errs.OffloadDisabled, op, "this master does not copy objects to SSDs; start it with --enable_offload")
}

// UnmountLocalDisk takes a client's SSD away with all replicas on it. One that
// is not mounted is no error, but OffloadDisabled unless --enable_offload is on.
func (m *Master) UnmountLocalDisk(ctx context.Context, client segment.ClientID) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	return m.withSegments(ctx, func(ctx context.Context) error {
		if _, ok := m.Store.FindLocalDisk(client); !ok && !m.Offload {
			return m.fenced(ctx, offloadDisabled("UnmountLocalDiskSegment"))
		}
		return m.unmountLocalDisk(ctx, client)
	})
}

// unmountLocalDisk is called by withSegments.
func (m *Master) unmountLocalDisk(ctx context.Context, client segment.ClientID) error {
	disk, ok := m.Store.FindLocalDisk(client)
	if !ok {
		return m.fenced(ctx, nil)
	}
	e := &metadata.UnmountLocalDisk{Number: disk.Number}
	err := commitOne(ctx, m, 16, func() (*metadata.UnmountLocalDisk, error) { return e, nil })
	if err == nil {
		m.offloads.drop(client)
		m.promotions.drop(client)
	}
	return err
}

// An OffloadTask is an object that a client is to copy to its SSD.
type OffloadTask struct {
	Tenant, Key string
	Size        uint64 // bytes
}

// OffloadHeartbeat says whether a client takes objects to copy, and gives it those
// that wait for it, each once: none if it takes none, or is about to be told to
// delete all its files. A long list comes in parts, one a call. Errors:
// SegmentNotFound if the client has no SSD mounted.
func (m *Master) OffloadHeartbeat(ctx context.Context, client segment.ClientID, offloading bool) ([]OffloadTask, error) {
	if err := m.Fence(ctx); err != nil {
		return nil, err
	}
	disk, ok := m.Store.FindLocalDisk(client)
	if !ok {
		return nil, m.fenced(ctx, noLocalDisk("OffloadObjectHeartbeat", client))
	}
	if disk.Offloading != offloading {
		if err := m.withSegments(ctx, func(ctx context.Context) error { return m.setOffloading(ctx, client, offloading) }); err != nil {
			return nil, err
		}
	}
	mayAsk := m.offloads.beat(client)
	if !offloading || disk.Wipe && mayAsk {
		return nil, m.fenced(ctx, nil)
	}
	tasks := m.offloads.take(client, m.Now().Add(m.Store.Params().DiscardTimeout))
	if err := m.Fence(ctx); err != nil {
		return nil, err
	}
	return tasks, nil
}

func (m *Master) setOffloading(ctx context.Context, client segment.ClientID, offloading bool) error {
	err := m.setLocalDisk(ctx, "OffloadObjectHeartbeat", client, func() (*metadata.SetOffloading, error) {
		return m.Store.PrepareSetOffloading(client, offloading)
	})
	if err == nil {
		m.offloads.set(client, offloading)
	}
	return err
}

// SetLocalDiskCapacity sets the capacity of a client's SSD in bytes, 0 if it is not known.
// Errors: SegmentNotFound if the client has no SSD mounted.
func (m *Master) SetLocalDiskCapacity(ctx context.Context, client segment.ClientID, bytes uint64) error {
	const op = "ReportSsdCapacity"
	if err := m.CheckLocalDisk(ctx, op, client); err != nil {
		return err
	}
	return m.withSegments(ctx, func(ctx context.Context) error {
		return m.setLocalDisk(ctx, op, client, func() (*metadata.SetOffloading, error) { return m.Store.PrepareSetCapacity(client, bytes) })
	})
}

// setLocalDisk commits what is decided about a client's SSD. It is called by
// withSegments.
func (m *Master) setLocalDisk(ctx context.Context, op string, client segment.ClientID, decide func() (*metadata.SetOffloading, error)) error {
	err := commitOne(ctx, m, 16, decide)
	if errs.KindOf(err) == errs.SegmentNotFound {
		return noLocalDisk(op, client)
	}
	return err
}

// CheckLocalDisk fails with SegmentNotFound if a client has no SSD mounted.
func (m *Master) CheckLocalDisk(ctx context.Context, op string, client segment.ClientID) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	if _, ok := m.Store.FindLocalDisk(client); !ok {
		return m.fenced(ctx, noLocalDisk(op, client))
	}
	return m.fenced(ctx, nil)
}

func noLocalDisk(op string, client segment.ClientID) error {
	return errs.New(errs.SegmentNotFound, op, "client %v has no SSD mounted; mount it again", client)
}

func (t OffloadTask) key() metadata.ObjectKey {
	return metadata.ObjectKey{Tenant: t.Tenant, Key: t.Key}
}

// An OffloadResult is an object that a client has copied to its SSD, or could not.
type OffloadResult struct {
	Task     OffloadTask
	Refused  bool   // it was not copied; what follows is unused then
	DataSize uint64 // bytes of the copy
	Endpoint string // where the client is reached
}

// NotifyOffloaded adds a replica on the client's SSD to each object that it has
// copied, and forgets the tasks of those it has refused. It takes a copy only for a task
// of this term, and while the client's memory still has what was copied. It takes none
// while the client is about to be told to delete all its files: that would delete the
// copies, too, even of objects that were put since RemoveAll. It ignores other copies; a
// copy that the object has already is no error.
//
// Errors: SegmentNotFound if the client has no SSD mounted; InvalidParams for a
// copy that has not the size of its object. The copies that are right are added
// all the same, and the error is that of the first that is not.
func (m *Master) NotifyOffloaded(ctx context.Context, client segment.ClientID, done []OffloadResult) error {
	const op = "NotifyOffloadSuccess"
	if err := m.Fence(ctx); err != nil {
		return err
	}
	if len(done) > MaxBatchItems {
		return checkBatch(op, len(done))
	}
	disk, ok := m.Store.FindLocalDisk(client)
	if !ok {
		return m.fenced(ctx, noLocalDisk(op, client))
	}
	disk.Wipe = disk.Wipe && m.offloads.mayAsk(client)
	ids := make([]metadata.ObjectID, len(done)) // as of now: the client may get the next task of a key while this waits
	for i := range done {
		ids[i] = m.offloads.given(client, done[i].Task.key())
	}
	outcomes := m.commit(ctx, len(done), 32+metadata.MaxNameBytes, func(i int, _ metadata.Time) (metadata.Change, <-chan struct{}, error) {
		return m.offloaded(op, disk, ids[i], &done[i])
	})
	var failure error
	for i, o := range outcomes {
		m.offloads.answered(disk.Client, done[i], o.err)
		switch errs.KindOf(o.err) {
		case errs.OK, errs.ObjectNotFound, errs.ReplicaNotReady: // nothing is there to have a copy
		case errs.SegmentNotFound:
			failure = cmp.Or(failure, noLocalDisk(op, client))
		default:
			failure = cmp.Or(failure, o.err)
		}
	}
	if failure != nil {
		return failure
	}
	return m.fenced(ctx, nil)
}

// offloaded decides the change that one copy asks for.
func (m *Master) offloaded(op string, disk metadata.LocalDiskInfo, id metadata.ObjectID, o *OffloadResult) (metadata.Change, <-chan struct{}, error) {
	key := o.Task.key()
	switch err := checkKey(op, key.Tenant, key.Key); {
	case err != nil:
		return nil, nil, err
	case o.Refused:
		return nil, nil, nil
	case len(o.Endpoint) > metadata.MaxNameBytes:
		return nil, nil, errs.New(errs.InvalidParams, op, "the endpoint has %d bytes, at most %d are possible", len(o.Endpoint), metadata.MaxNameBytes)
	case disk.Wipe:
		return nil, nil, errs.ReplicaNotReady
	}
	return decided(m.Store.PrepareOffloaded(metadata.Offloaded{
		Tenant: key.Tenant, Key: key.Key, ID: id, Client: disk.Client,
		Number: disk.Number, Size: o.DataSize, Endpoint: o.Endpoint,
	}))
}

// EvictDiskReplica drops an object's replica in a file that a client has deleted: a
// Disk replica that it wrote, or the one on its own SSD. One that is not there is no error.
// Errors: ObjectNotFound, InvalidParams for another kind.
func (m *Master) EvictDiskReplica(ctx context.Context, tenant, key string, client segment.ClientID, kind metadata.ReplicaKind) error {
	if err := m.Fence(ctx); err != nil {
		return err
	}
	return m.Counters.done(OpEvictDiskReplica, m.evictDisk(ctx, tenant, []string{key}, client, kind)[0])
}

// BatchEvictDiskReplica is EvictDiskReplica for many keys, each with an error of its
// own.
func (m *Master) BatchEvictDiskReplica(ctx context.Context, tenant string, keys []string, client segment.ClientID, kind metadata.ReplicaKind) ([]error, error) {
	return m.batch(ctx, OpBatchEvictDiskReplica, "BatchEvictDiskReplica", len(keys), func() []error { return m.evictDisk(ctx, tenant, keys, client, kind) })
}

func (m *Master) evictDisk(ctx context.Context, tenant string, keys []string, client segment.ClientID, kind metadata.ReplicaKind) []error {
	return errorsOf(m.commit(ctx, len(keys), 48, func(i int, now metadata.Time) (metadata.Change, <-chan struct{}, error) {
		if err := checkKey("EvictDiskReplica", tenant, keys[i]); err != nil {
			return nil, nil, err
		}
		drop, wait, err := m.Store.PrepareEvictDisk(tenant, keys[i], client, kind, now)
		if drop.Removal != nil {
			return deleteevents.Of(deleteevents.Remove, drop.Removal), nil, nil
		}
		return drop.Partial, wait, err
	}))
}
