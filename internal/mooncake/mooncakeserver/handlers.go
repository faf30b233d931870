package mooncakeserver

import (
	"slices"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// newTable returns the functions of a generation.
func newTable(g *mooncake.Generation) *table {
	t := &table{name: g.Name, functions: make(map[uint32]*function)}
	handle(t, g.ExistKey, existKey)
	handle(t, g.BatchExistKey, batchExistKey)
	handle(t, g.GetReplicaList, getReplicaList)
	handle(t, g.BatchGetReplicaList, batchGetReplicaList)
	handle(t, g.GetReplicaListByRegex, getReplicaListByRegex)
	handle(t, g.PutStart, putStart)
	handle(t, g.BatchPutStart, batchPutStart)
	handle(t, g.PutEnd, putEnd)
	handle(t, g.BatchPutEnd, batchPutEnd)
	handle(t, g.PutRevoke, putRevoke)
	handle(t, g.BatchPutRevoke, batchPutRevoke)
	handle(t, g.Remove, remove)
	handle(t, g.RemoveByRegex, removeByRegex)
	handle(t, g.RemoveAll, removeAll)
	handle(t, g.BatchRemove, batchRemove)
	handle(t, g.BatchReplicaClear, batchReplicaClear)
	handle(t, g.BatchQueryIP, batchQueryIP)
	handle(t, g.MountSegment, mountSegment)
	handle(t, g.ReMountSegment, reMountSegment)
	handle(t, g.UnmountSegment, unmountSegment)
	handle(t, g.Ping, ping)
	handle(t, g.ServiceReady, serviceReady)
	handle(t, g.GetFsdir, getFsdir)
	handle(t, g.GetStorageConfig, getStorageConfig)
	handle(t, g.MountLocalDisk, mountLocalDisk)
	handle(t, g.UnmountLocalDisk, unmountLocalDisk)
	handle(t, g.OffloadObjectHeartbeat, offloadObjectHeartbeat)
	handle(t, g.NotifyOffloadSuccess, notifyOffloadSuccess)
	for _, f := range g.Others {
		refuse(t, f)
	}
	for _, id := range []uint32{g.ExistKey.ID, g.BatchExistKey.ID, g.GetReplicaList.ID, g.BatchGetReplicaList.ID, g.Ping.ID} {
		t.functions[id].read = true
	}
	return t
}

// tenant is whose keys a call is about. Multi-tenancy is off, so it is always
// the default tenant, whatever the call says (behaviours, section 1).
const tenant = metadata.DefaultTenant

// settle makes an error the outcome of a call, or of an item of a batch. It
// returns errNotServing instead if this node is not the primary any more. The
// call must be one of a single change, or of none: then nothing was changed.
func settle[T any](c call, name string, r *mooncake.Result[T], err error) error {
	r.Failure = 0
	if err == nil {
		return nil
	}
	kind := errs.KindOf(err)
	if kind == errs.NotLeader {
		return errNotServing
	}
	if kind == errs.Internal {
		c.front.Log.Error().Str("function", name).Err(err).Msg("a call failed as it never should")
	}
	r.Failure = kind.Number()
	return nil
}

// results returns room for n results of a batch; their values are of before.
func results[T any](r []mooncake.Result[T], n int) []mooncake.Result[T] {
	return slices.Grow(r[:0], n)[:n]
}

// settleAll is settle for a batch: one error for all items, or each its own.
// If this node's time ended after some of the items, the others have no answer
// and so the batch has none.
func settleAll[T any](c call, name string, r []mooncake.Result[T], failed []error, err error) error {
	turnedAway := 0
	for i := range r {
		e := err
		if e == nil && failed != nil {
			e = failed[i]
		}
		if settle(c, name, &r[i], e) != nil {
			turnedAway++
		}
	}
	switch {
	case errs.KindOf(err) == errs.NotLeader, turnedAway == len(r) && turnedAway > 0:
		return errNotServing
	case turnedAway > 0:
		return errHalfway
	}
	return nil
}

// settleSteps is settle for a call that makes several changes, one after the
// other, and has one outcome for all: that does not tell whether this node's time
// ended before the first of them, so the fence is asked before.
func settleSteps[T any](c call, name string, r *mooncake.Result[T], steps func() error) error {
	if c.master.Fence() != nil {
		return errNotServing
	}
	if settle(c, name, r, steps()) != nil {
		return errHalfway
	}
	return nil
}

func existKey(c call, a *mooncake.KeyArgs, r *mooncake.Result[bool]) (err error) {
	r.Value, err = c.master.ExistKey(c, tenant, a.Key)
	return settle(c, "ExistKey", r, err)
}

func batchExistKey(c call, a *mooncake.KeysArgs, r *[]mooncake.Result[bool]) error {
	found, failed, err := c.master.BatchExistKey(c, tenant, a.Keys)
	*r = results(*r, len(a.Keys))
	for i := range found {
		(*r)[i].Value = found[i]
	}
	return settleAll(c, "BatchExistKey", *r, failed, err)
}

func getReplicaList(c call, a *mooncake.KeyArgs, r *mooncake.Result[metadata.ReplicaList]) (err error) {
	r.Value, err = c.master.GetReplicaList(c, tenant, a.Key)
	return settle(c, "GetReplicaList", r, err)
}

func batchGetReplicaList(c call, a *mooncake.KeysArgs, r *[]mooncake.Result[metadata.ReplicaList]) error {
	lists, failed, err := c.master.BatchGetReplicaList(c, tenant, a.Keys)
	*r = results(*r, len(a.Keys))
	for i := range lists {
		(*r)[i].Value = lists[i]
	}
	return settleAll(c, "BatchGetReplicaList", *r, failed, err)
}

func remove(c call, a *mooncake.RemoveArgs, r *mooncake.Done) error {
	return settle(c, "Remove", r, c.master.Remove(c, removal(a.Force), a.Key))
}

func batchRemove(c call, a *mooncake.BatchRemoveArgs, r *[]mooncake.Done) error {
	failed, err := c.master.BatchRemove(c, removal(a.Force), a.Keys)
	*r = results(*r, len(a.Keys))
	return settleAll(c, "BatchRemove", *r, failed, err)
}

// removeByRegex removes in steps too, but after the first of them no error says
// that nothing was changed.
func removeByRegex(c call, a *mooncake.RemoveArgs, r *mooncake.Result[int64]) error {
	n, err := c.master.RemoveByRegex(c, removal(a.Force), a.Key)
	r.Value = int64(n)
	return settle(c, "RemoveByRegex", r, err)
}

// removeAll has a bare count for its result, and so no way to say why it failed:
// the connection ends instead, which clients report as a failed call.
func removeAll(c call, a *mooncake.RemoveAllArgs, r *int64) error {
	n, err := c.master.RemoveAll(c, removal(a.Force))
	*r = int64(n)
	if errs.KindOf(err) == errs.NotLeader { // what was removed makes it Unresolved
		return errNotServing
	}
	return err
}

func batchReplicaClear(c call, a *mooncake.ClearArgs, r *mooncake.Result[[]string]) error {
	r.Value = r.Value[:0]
	return settleSteps(c, "BatchReplicaClear", r, func() error {
		cleared, err := c.master.BatchReplicaClear(c, tenant, a.Keys, a.Client, a.Segment)
		for _, i := range cleared {
			r.Value = append(r.Value, a.Keys[i])
		}
		return err
	})
}

func batchQueryIP(c call, a *mooncake.ClientsArgs, r *mooncake.Result[[]mooncake.ClientAddresses]) error {
	found, err := c.master.BatchQueryIp(c, a.Clients)
	r.Value = r.Value[:0]
	for client, addresses := range found {
		r.Value = append(r.Value, mooncake.ClientAddresses{Client: client, Addresses: addresses})
	}
	return settle(c, "BatchQueryIp", r, err)
}

func mountSegment(c call, a *mooncake.MountArgs, r *mooncake.Done) error {
	spec, err := specOf(a.Client, a.Segment)
	if err == nil {
		err = c.master.MountSegment(c, spec)
	}
	return settle(c, "MountSegment", r, err)
}

func reMountSegment(c call, a *mooncake.ReMountArgs, r *mooncake.Done) error {
	specs := make([]segment.Spec, len(a.Segments))
	for i := range specs {
		var err error
		if specs[i], err = specOf(a.Client, a.Segments[i]); err != nil {
			return settle(c, "ReMountSegment", r, err)
		}
	}
	return settleSteps(c, "ReMountSegment", r, func() error { return c.master.ReMountSegment(c, a.Client, specs) })
}

func unmountSegment(c call, a *mooncake.UnmountArgs, r *mooncake.Done) error {
	return settle(c, "UnmountSegment", r, c.master.UnmountSegment(c, a.Segment))
}

func ping(c call, a *mooncake.ClientArgs, r *mooncake.Result[mooncake.PingResult]) error {
	known, err := c.master.Ping(c, a.Client)
	r.Value = mooncake.PingResult{View: c.front.View(), Status: mooncake.ClientNeedRemount}
	if known {
		r.Value.Status = mooncake.ClientOK
	}
	return settle(c, "Ping", r, err)
}

func serviceReady(c call, _ *mooncake.None, r *mooncake.Result[string]) error {
	r.Value = c.front.Version
	return settle(c, "ServiceReady", r, c.master.Fence())
}

func getFsdir(c call, _ *mooncake.None, r *mooncake.Result[string]) error {
	r.Value = c.master.Fsdir()
	return settle(c, "GetFsdir", r, c.master.Fence())
}

// getStorageConfig has the C++ master's defaults for what this one does not
// manage: clients may delete files when their disk is full, and no quota.
func getStorageConfig(c call, _ *mooncake.None, r *mooncake.Result[mooncake.StorageConfig]) error {
	r.Value = mooncake.StorageConfig{Fsdir: c.master.Fsdir(), DiskEviction: true}
	return settle(c, "GetStorageConfig", r, c.master.Fence())
}
