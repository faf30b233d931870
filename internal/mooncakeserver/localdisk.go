package mooncakeserver

import (
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/service"
)

func mountLocalDisk(c call, a *mooncake.LocalDiskArgs, r *mooncake.Done) error {
	return settle(c, "MountLocalDiskSegment", r, c.master.MountLocalDisk(c, a.Client, a.Offloading))
}

func unmountLocalDisk(c call, a *mooncake.ClientArgs, r *mooncake.Done) error {
	return settle(c, "UnmountLocalDiskSegment", r, c.master.UnmountLocalDisk(c, a.Client))
}

func offloadObjectHeartbeat(c call, a *mooncake.LocalDiskArgs, r *mooncake.Result[[]mooncake.OffloadTask]) error {
	tasks, err := c.master.OffloadHeartbeat(c, a.Client, a.Offloading)
	r.Value = r.Value[:0]
	for _, t := range tasks {
		r.Value = append(r.Value, mooncake.OffloadTask{Tenant: t.Tenant, Key: t.Key, Size: int64(t.Size)})
	}
	return settle(c, "OffloadObjectHeartbeat", r, err)
}

// notifyOffloadSuccess takes a negative size for a refusal, of the task or of
// the object: releases differ in where they say it.
func notifyOffloadSuccess(c call, a *mooncake.NotifyOffloadArgs, r *mooncake.Done) error {
	if len(a.Tasks) != len(a.Objects) {
		return settle(c, "NotifyOffloadSuccess", r,
			errs.New(errs.InvalidParams, "NotifyOffloadSuccess", "there are %d tasks and %d objects", len(a.Tasks), len(a.Objects)))
	}
	done := make([]service.Offloaded, len(a.Tasks))
	for i, t := range a.Tasks {
		o := a.Objects[i]
		done[i] = service.Offloaded{
			Task:    service.OffloadTask{Tenant: tenant, Key: t.Key},
			Refused: t.Size < 0 || o.DataSize < 0, DataSize: uint64(max(0, o.DataSize)), Endpoint: o.Endpoint,
		}
		if t.Size > 0 {
			done[i].Task.Size = uint64(t.Size)
		}
	}
	return settle(c, "NotifyOffloadSuccess", r, c.master.NotifyOffloaded(c, a.Client, done))
}
