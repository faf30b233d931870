package mooncakeserver

import (
	"unicode/utf8"

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
	r.Value = r.Value[:0]
	return settleSteps(c, "OffloadObjectHeartbeat", r, func() error { // its flag, and then its tasks
		tasks, err := c.master.OffloadHeartbeat(c, a.Client, a.Offloading)
		for _, t := range tasks {
			r.Value = append(r.Value, mooncake.OffloadTask{Tenant: t.Tenant, Key: t.Key, Size: int64(t.Size)})
		}
		return err
	})
}

// notifyOffloadSuccess takes a negative size for a refusal, of the task or of
// the object: releases differ in where they say it.
func notifyOffloadSuccess(c call, a *mooncake.NotifyOffloadArgs, r *mooncake.Done) error {
	const name = "NotifyOffloadSuccess"
	if len(a.Tasks) != len(a.Objects) {
		return settle(c, name, r, errs.New(errs.InvalidParams, name, "there are %d tasks and %d objects", len(a.Tasks), len(a.Objects)))
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
		if !done[i].Refused && !utf8.ValidString(o.Endpoint) { // readers by gRPC could not be told of it
			return settle(c, name, r, errs.New(errs.InvalidParams, name, "the endpoint of client %v is not UTF-8", a.Client))
		}
	}
	return settleSteps(c, name, r, func() error { return c.master.NotifyOffloaded(c, a.Client, done) })
}
