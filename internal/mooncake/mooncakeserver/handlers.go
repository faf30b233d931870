package mooncakeserver

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal/nowait"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func newTable(g *mooncake.Generation) *table {
	t := &table{name: g.Name, tenants: g.Fields.Tenants, functions: make(map[uint32]*function)}
	one(t, g.ExistKey, func(c call, a *args) (bool, error) { return c.master.ExistKey(c, c.tenant, a.Key) })
	each(t, g.BatchExistKey, batchExistKey)
	one(t, g.GetReplicaList, func(c call, a *args) (metadata.ReplicaList, error) {
		return c.master.GetReplicaList(c, c.tenant, a.Key)
	})
	each(t, g.BatchGetReplicaList, batchGetReplicaList)
	one(t, g.GetReplicaListByRegex, getReplicaListByRegex)
	one(t, g.PutStart, putStart(false))
	each(t, g.BatchPutStart, batchPutStart(false))
	one(t, g.PutEnd, update(putEnd))
	each(t, g.BatchPutEnd, eachDone(update(batchPutEnd)))
	one(t, g.PutRevoke, update(putRevoke))
	each(t, g.BatchPutRevoke, eachDone(update(batchPutRevoke)))
	one(t, g.UpsertStart, putStart(true))
	each(t, g.BatchUpsertStart, batchPutStart(true))
	one(t, g.UpsertEnd, update(putEnd))
	each(t, g.BatchUpsertEnd, eachDone(ofAll(update(batchPutEnd))))
	one(t, g.UpsertRevoke, update(putRevoke))
	each(t, g.BatchUpsertRevoke, eachDone(ofAll(update(batchPutRevoke))))
	one(t, g.Remove, done(func(c call, a *args) error { return c.master.Remove(c, c.removal(a.Force), a.Key) }))
	one(t, g.RemoveByRegex, removeByRegex)
	handle(t, g.RemoveAll, removeAll)
	each(t, g.BatchRemove, eachDone(func(c call, a *args) ([]error, error) { return c.master.BatchRemove(c, c.removal(a.Force), a.Keys) }))
	steps(t, g.BatchReplicaClear, batchReplicaClear)
	one(t, g.BatchQueryIP, batchQueryIP)
	one(t, g.MountSegment, done(mountSegment))
	steps(t, g.ReMountSegment, done(reMountSegment))
	one(t, g.UnmountSegment, done(unmountSegment))
	one(t, g.Ping, ping)
	one(t, g.ServiceReady, func(c call, _ *args) (string, error) { return c.front.Version, c.master.Fence(c) })
	one(t, g.GetFsdir, func(c call, _ *args) (string, error) { return c.master.Fsdir(), c.master.Fence(c) })
	one(t, g.GetStorageConfig, getStorageConfig)
	one(t, g.MountLocalDisk, done(func(c call, a *args) error { return c.master.MountLocalDisk(c.counted(), a.Client, a.Offloading) }))
	one(t, g.UnmountLocalDisk, done(func(c call, a *args) error { return c.master.UnmountLocalDisk(c.counted(), a.Client) }))
	steps(t, g.OffloadObjectHeartbeat, offloadObjectHeartbeat) // its flag, and then its tasks
	steps(t, g.NotifyOffloadSuccess, done(notifyOffloadSuccess))
	one(t, g.ReportSsdCapacity, done(reportSsdCapacity))
	one(t, g.PromotionHeartbeat, promotionHeartbeat)
	one(t, g.PromotionStart, promotionStart)
	one(t, g.PromotionSuccess, done(promotionEnd(true)))
	one(t, g.PromotionFailure, done(promotionEnd(false)))
	one(t, g.CopyStart, copyStart)
	one(t, g.CopyEnd, done(copyEnd))
	one(t, g.CopyRevoke, done(copyRevoke))
	one(t, g.DynamicCopyStart, dynamicCopyStart)
	one(t, g.DynamicCopyEnd, done(planned(copyEnd)))
	one(t, g.DynamicCopyRevoke, done(planned(copyRevoke)))
	one(t, g.MoveStart, moveStart)
	one(t, g.MoveEnd, done(func(c call, a *args) error { return c.master.MoveEnd(c, c.transferOf(a)) }))
	one(t, g.MoveRevoke, done(func(c call, a *args) error { return c.master.MoveRevoke(c, c.transferOf(a)) }))
	one(t, g.CreateCopyTask, createCopyTask)
	one(t, g.CreateMoveTask, createMoveTask)
	one(t, g.QueryTask, queryTask)
	one(t, g.FetchTasks, fetchTasks)
	one(t, g.MarkTaskToComplete, done(markTaskToComplete))
	one(t, g.PollRemoveAll, func(c call, a *args) (bool, error) { return c.master.PollRemoveAll(c.counted(), a.Client) })
	one(t, g.EvictDiskReplica, done(evictDiskReplica))
	each(t, g.BatchEvictDiskReplica, eachDone(batchEvictDiskReplica))
	one(t, g.GracefulUnmount, done(gracefulUnmount))
	one(t, g.SegmentStatus, segmentStatus)
	one(t, g.SegmentStatusByID, segmentStatusByID)
	for _, f := range g.Others {
		other(t, f)
	}
	t.mark(g)
	return t
}

// mark says what is particular of some functions.
func (t *table) mark(g *mooncake.Generation) {
	for _, id := range []uint32{g.ExistKey.ID, g.BatchExistKey.ID, g.GetReplicaList.ID, g.BatchGetReplicaList.ID, g.Ping.ID} {
		t.functions[id].read = true
	}
	t.functions[g.BatchGetReplicaList.ID].many = true
	for _, id := range []uint32{
		g.PutStart.ID, g.PutEnd.ID, g.PutRevoke.ID, g.UpsertStart.ID, g.UpsertEnd.ID, g.UpsertRevoke.ID, g.Remove.ID,
	} {
		if f := t.functions[id]; f != nil {
			f.single = true
		}
	}
	for id, sweeps := range map[uint32]bool{g.RemoveAll.ID: true, g.RemoveByRegex.ID: true, g.UnmountSegment.ID: false, g.GracefulUnmount.ID: false} {
		if f := t.functions[id]; f != nil {
			f.order, f.sweeps = true, sweeps
		}
	}
	for _, id := range []uint32{
		g.PutStart.ID, g.BatchPutStart.ID, g.UpsertStart.ID, g.BatchUpsertStart.ID, g.CopyStart.ID, g.DynamicCopyStart.ID, g.MoveStart.ID,
		g.CreateCopyTask.ID, g.CreateMoveTask.ID,
	} {
		if f := t.functions[id]; f != nil { // it is in this generation
			f.writes = true
		}
	}
}

type args = mooncake.Args

// maxFound is how many objects GetReplicaListByRegex answers at most: this
// protocol has no pages, and clients take no endless answers.
const maxFound = 100_000

// maxFoundBytes bounds the keys and replicas of that answer.
const maxFoundBytes = 128 << 20

func batchExistKey(c call, a *args) ([]bool, []error, error) {
	if len(a.Keys) > quickKeys && nowait.Asked(c) {
		return nil, nil, nowait.Err
	}
	return c.master.BatchExistKey(c, c.tenant, a.Keys)
}

// quickKeys is how many keys an event loop looks up in one call.
const quickKeys = 128

func batchGetReplicaList(c call, a *args) ([]metadata.ReplicaList, []error, error) {
	if len(a.Keys) > quickKeys && nowait.Asked(c) {
		return nil, nil, nowait.Err
	}
	lists, failed, err := c.master.BatchGetReplicaList(c, c.tenant, a.Keys, c.conn)
	return lists, failed, c.unroomed("BatchGetReplicaList", err)
}

// unroomed makes the failure of an answer that has no room (coro.Conn.Room) that of a call.
func (c call) unroomed(op string, err error) error {
	kind := errs.Unavailable
	switch {
	case errors.Is(err, coro.ErrLargeAnswer):
		kind = errs.InvalidParams
	case !errors.Is(err, coro.ErrBusy):
		return err
	}
	c.front.Log.Warn().Str("function", op).Stringer("peer", c.conn.RemoteAddr()).Err(err).Msg("refused to make an answer")
	return errs.Wrap(kind, op, err)
}

func getReplicaListByRegex(c call, a *args) ([]mooncake.KeyedReplicas, error) {
	if err := c.conn.Reserve(c); err != nil {
		return nil, errs.Wrap(errs.Unavailable, "GetReplicaListByRegex", err)
	}
	found, more, err := c.master.GetReplicaListByRegex(c.counted(), c.tenant, a.Key, service.Page{Size: maxFound, Bytes: maxFoundBytes})
	if err == nil && more != "" {
		err = errs.New(errs.InvalidParams, "GetReplicaListByRegex", "the pattern is found in more than %d keys, or %d bytes of them and their replicas; use a narrower one", maxFound, maxFoundBytes)
	}
	if err != nil {
		return nil, err
	}
	list, bytes := make([]mooncake.KeyedReplicas, len(found)), 0
	for i, k := range found {
		bytes += k.Bytes()
		list[i] = mooncake.KeyedReplicas{Key: k.Key, ObjectReplicas: mooncake.ObjectReplicas{ID: k.ID, Replicas: k.Replicas}}
	}
	c.writer.Expect(bytes)
	return list, nil
}

func (c call) removal(force bool) service.RemoveRequest {
	return service.RemoveRequest{Tenant: c.tenant, Force: force}
}

// massRemoval is the removal of many objects, which is logged with who asks.
func (c call) massRemoval(force bool) service.RemoveRequest {
	r := c.removal(force)
	r.From = "mooncake " + c.conn.RemoteAddr().String()
	return r
}

// removeByRegex removes in steps too, but after the first of them no error says
// that nothing was changed.
func removeByRegex(c call, a *args) (int64, error) {
	n, err := c.master.RemoveByRegex(c.counted(), c.massRemoval(a.Force), a.Key)
	c.order.objects, c.order.changed = int64(n.Removed), n.Changed
	return int64(n.Removed), err
}

// removeAll has a bare count for its result, and so cannot say why it failed: the
// connection ends instead, which clients report as a failed call. A call without a
// tenant is about all tenants, except in a generation that has none: its calls are
// all about the default tenant. An invalid tenant has no objects.
func removeAll(c call, a *args, r *int64) error {
	if *r = 0; c.refused != nil {
		c.order.result = errs.KindOf(c.refused)
		return nil
	}
	if a.Tenant == "" && c.table.tenants {
		c.tenant = ""
	}
	n, err := c.master.RemoveAll(c.counted(), c.massRemoval(a.Force))
	c.order.objects, c.order.changed, *r = int64(n.Removed), n.Changed, int64(n.Removed)
	if errs.KindOf(err) == errs.NotLeader { // what was removed makes it Unresolved
		return errNotServing
	}
	return err
}

func batchReplicaClear(c call, a *args) ([]string, error) {
	if len(a.Keys) == 0 {
		return nil, c.master.Fence(c)
	}
	cleared, err := c.master.BatchReplicaClear(c, c.tenant, a.Keys, a.Client, a.SegmentName)
	keys := make([]string, len(cleared))
	for i, item := range cleared {
		keys[i] = a.Keys[item]
	}
	return keys, err
}

func batchQueryIP(c call, a *args) (list []mooncake.ClientAddresses, err error) {
	if len(a.Clients) == 0 {
		return nil, c.master.Fence(c)
	}
	found, err := c.master.BatchQueryIp(c, a.Clients)
	bytes := 0
	for client, addresses := range found {
		list = append(list, mooncake.ClientAddresses{Client: client, Addresses: addresses})
		for _, address := range addresses {
			bytes += service.EntryBytes + len(address)
		}
	}
	if err == nil {
		err = c.unroomed("BatchQueryIp", c.conn.Room(bytes))
	}
	return list, err
}

// Value is that of the context, which has the peer that the call counts for.
func (c call) Value(key any) any {
	if _, ok := key.(share.PeerKey); ok {
		return c.peer
	}
	return c.Context.Value(key)
}

// counted is the call's context with who it counts for: the address, or that of a relay.
func (c call) counted() context.Context {
	return service.From(c, service.Caller{Peer: c.peer})
}

func mountSegment(c call, a *args) error {
	spec, err := specOf(a.Client, a.Segment)
	if err != nil {
		return err
	}
	err = c.master.MountSegment(c.counted(), spec)
	if errors.Is(err, errs.NotLeader) { // also of one that is mounted: to mount it again changes nothing
		return errs.NotLeader
	}
	return err
}

func reMountSegment(c call, a *args) error {
	specs := make([]segment.Spec, len(a.Segments))
	for i := range specs {
		var err error
		if specs[i], err = specOf(a.Client, a.Segments[i]); err != nil {
			return err
		}
	}
	return c.master.ReMountSegment(c.counted(), a.Client, specs)
}

// specOf reads a segment, which is to outlive its request; the service checks the rest.
func specOf(client segment.ClientID, spec segment.Spec) (segment.Spec, error) {
	spec.Client = client
	for _, text := range []*string{&spec.Name, &spec.Endpoint, &spec.Protocol, &spec.HostID} {
		*text = strings.Clone(*text)
	}
	return spec, checkText(errs.InvalidParams, "a name of a segment", spec.Name, spec.Endpoint, spec.Protocol, spec.HostID)
}

func unmountSegment(c call, a *args) error {
	by := service.Unmount{Client: a.Client, OwnOnly: c.front.NoOrders || c.front.Roles} // Mooncake's clients unmount what they have mounted
	err := c.master.UnmountSegment(c.counted(), a.SegmentID, &by)
	c.order.changed = by.Changed(err)
	if taken, foreign := by.Taken(); taken != nil {
		if c.order.bytes = &taken.Bytes; foreign {
			c.order.owner = taken.Owner.String()
		}
	}
	return err
}

func gracefulUnmount(c call, a *args) error {
	grace := time.Duration(min(a.GraceMillis, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	_, _, mounted := c.master.Store.OwnerOf(a.SegmentID)
	closed, drains := c.master.Store.Closed(a.SegmentID)
	err := c.master.GracefulUnmountSegment(c.counted(), a.Client, a.SegmentID, grace)
	c.order.changed = mounted && (!closed || drains) && (err == nil || errs.KindOf(err) == errs.Unresolved)
	return err
}

// segmentStatus is that of the newest segment of a name.
func segmentStatus(c call, a *args) (int32, error) {
	status, err := c.master.SegmentStatus(c, a.SegmentName)
	return int32(status), err
}

func segmentStatusByID(c call, a *args) (int32, error) {
	status, err := c.master.SegmentStatusByID(c, a.SegmentID)
	return int32(status), err
}

func ping(c call, a *args) (mooncake.PingResult, error) {
	r := mooncake.PingResult{View: c.front.View(), Status: mooncake.ClientNeedRemount}
	known, err := c.master.Ping(c.counted(), a.Client)
	if known {
		r.Status = mooncake.ClientOK
	}
	return r, err
}

// getStorageConfig says how clients keep the files of DISK replicas.
func getStorageConfig(c call, _ *args) (mooncake.StorageConfig, error) {
	m := c.master
	return mooncake.StorageConfig{Fsdir: m.Fsdir(), DiskEviction: m.DiskEviction, QuotaBytes: m.DiskQuota}, m.Fence(c)
}
