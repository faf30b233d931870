package mooncakeserver

import (
	"strings"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

func offloadObjectHeartbeat(c call, a *args) ([]mooncake.OffloadTask, error) {
	tasks, err := c.master.OffloadHeartbeat(c.counted(), a.Client, a.Offloading)
	return offloadTasks(tasks), err
}

func offloadTasks(tasks []service.OffloadTask) []mooncake.OffloadTask {
	list := make([]mooncake.OffloadTask, len(tasks))
	for i, t := range tasks {
		list[i] = mooncake.OffloadTask{Tenant: t.Tenant, Key: t.Key, Size: int64(t.Size)}
	}
	return list
}

// notifyOffloadSuccess takes a negative size for a refusal, of the task or of
// the object: releases differ in where they say it.
func notifyOffloadSuccess(c call, a *args) error {
	if len(a.Tasks) != len(a.Objects) {
		return errs.New(errs.InvalidParams, "NotifyOffloadSuccess", "there are %d tasks and %d objects", len(a.Tasks), len(a.Objects))
	}
	copied := make([]service.OffloadResult, len(a.Tasks))
	for i, t := range a.Tasks {
		o := a.Objects[i]
		copied[i] = service.OffloadResult{
			Task:    service.OffloadTask{Tenant: strings.Clone(c.master.Tenants.Of(t.Tenant)), Key: t.Key, Size: uint64(max(0, t.Size))},
			Refused: t.Size < 0 || o.DataSize < 0, DataSize: uint64(max(0, o.DataSize)), Endpoint: o.Endpoint,
		}
		if copied[i].Refused {
			continue
		}
		if err := checkText(errs.InvalidParams, "the endpoint of a client's SSD", o.Endpoint); err != nil {
			return err
		}
	}
	return c.master.NotifyOffloaded(c, a.Client, copied)
}

func reportSsdCapacity(c call, a *args) error {
	if a.Capacity < 0 {
		return errs.New(errs.InvalidParams, "ReportSsdCapacity", "the capacity is %d bytes", a.Capacity)
	}
	return c.master.SetLocalDiskCapacity(c.counted(), a.Client, uint64(a.Capacity))
}

func promotionHeartbeat(c call, a *args) ([]mooncake.OffloadTask, error) {
	tasks, err := c.master.PromotionHeartbeat(c, a.Client)
	return offloadTasks(tasks), err
}

func promotionStart(c call, a *args) (mooncake.Located, error) {
	id, target, err := c.master.PromotionStart(c, metadata.Promotion{Tenant: c.tenant, Key: a.Key, Client: a.Client, Size: a.Size, Preferred: a.Targets})
	return mooncake.Located{ID: id, Descriptor: target}, err
}

func promotionEnd(complete bool) func(call, *args) error {
	return func(c call, a *args) error { return c.master.PromotionEnd(c, c.tenant, a.Key, a.Client, complete) }
}

func evictDiskReplica(c call, a *args) error {
	return c.master.EvictDiskReplica(c, c.tenant, a.Key, a.Client, fileKind(a.Kind))
}

func batchEvictDiskReplica(c call, a *args) ([]error, error) {
	return c.master.BatchEvictDiskReplica(c, c.tenant, a.Keys, a.Client, fileKind(a.Kind))
}

// fileKind is the kind of a replica whose file a client has deleted; 0 for others.
func fileKind(number int32) metadata.ReplicaKind {
	switch number {
	case mooncake.ReplicaDisk:
		return metadata.Disk
	case mooncake.ReplicaLocalDisk:
		return metadata.LocalDisk
	}
	return 0
}
