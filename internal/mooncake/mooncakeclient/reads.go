package mooncakeclient

import (
	"fmt"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/metadata"
)

// errNotWhole is the error of an answer that lacks something: what came of the
// call is open then.
func errNotWhole(got, want int) error {
	return fmt.Errorf("the answer is about %d items, and the request was about %d", got, want)
}

func existKey(a *attempt, q *pb.ExistKeyRequest, p *pb.ExistKeyResponse) error {
	var r mooncake.Result[bool]
	if err := do(a, a.generation.ExistKey, &mooncake.KeyArgs{Key: q.GetKey(), Tenant: tenantOf(q)}, &r); err != nil {
		return err
	}
	p.Exists = r.Value
	return failed(r.Failure)
}

func batchExistKey(a *attempt, q *pb.BatchExistKeyRequest, p *pb.BatchExistKeyResponse) (err error) {
	var r []mooncake.Result[bool]
	if err := do(a, a.generation.BatchExistKey, &mooncake.KeysArgs{Keys: q.GetKeys(), Tenant: tenantOf(q)}, &r); err != nil {
		return err
	}
	p.Exists = make([]bool, len(r))
	for i := range r {
		p.Exists[i] = r[i].Failure == 0 && r[i].Value
	}
	p.Errors, err = itemErrors(r, len(q.GetKeys()))
	return err
}

func getReplicaList(a *attempt, q *pb.GetReplicaListRequest, p *pb.GetReplicaListResponse) error {
	var r mooncake.Result[metadata.ReplicaList]
	if err := do(a, a.generation.GetReplicaList, &mooncake.KeyArgs{Key: q.GetKey(), Tenant: tenantOf(q)}, &r); err != nil {
		return err
	}
	p.LeaseTtlMs, p.Object = uint64(r.Value.LeaseTTL.Milliseconds()), listOf(&r.Value)
	return failed(r.Failure)
}

func batchGetReplicaList(a *attempt, q *pb.BatchGetReplicaListRequest, p *pb.BatchGetReplicaListResponse) (err error) {
	var r []mooncake.Result[metadata.ReplicaList]
	if err := do(a, a.generation.BatchGetReplicaList, &mooncake.KeysArgs{Keys: q.GetKeys(), Tenant: tenantOf(q)}, &r); err != nil {
		return err
	}
	p.Objects = make([]*pb.ReplicaList, len(r))
	for i := range r {
		if p.Objects[i] = new(pb.ReplicaList); r[i].Failure != 0 {
			continue
		}
		p.Objects[i] = listOf(&r[i].Value)
		if ttl := uint64(r[i].Value.LeaseTTL.Milliseconds()); p.LeaseTtlMs == 0 || ttl < p.LeaseTtlMs {
			p.LeaseTtlMs = ttl // all are as long
		}
	}
	p.Errors, err = itemErrors(r, len(q.GetKeys()))
	return err
}

// getReplicaListByRegex asks for all objects at once: there are no pages, and
// the answer does not say how long their leases are.
func getReplicaListByRegex(a *attempt, q *pb.GetReplicaListByRegexRequest, p *pb.GetReplicaListByRegexResponse) error {
	var r mooncake.Result[[]mooncake.KeyedReplicas]
	if err := do(a, a.generation.GetReplicaListByRegex, &mooncake.KeyArgs{Key: q.GetRegex(), Tenant: tenantOf(q)}, &r); err != nil {
		return err
	}
	for i := range r.Value {
		k := &r.Value[i]
		p.Objects = append(p.Objects, &pb.KeyedReplicaList{Key: k.Key, Object: listOf(&metadata.ReplicaList{ID: k.ID, Replicas: k.Replicas})})
	}
	return failed(r.Failure)
}

// listOf translates an object.
func listOf(l *metadata.ReplicaList) *pb.ReplicaList {
	list := &pb.ReplicaList{ObjectId: uint64(l.ID), ObjectChecksum: l.Checksum}
	for i := range l.Replicas {
		d := &l.Replicas[i]
		list.Size = d.Size // each has as many bytes
		list.Replicas = append(list.Replicas, replicaOf(d))
	}
	return list
}

func replicaOf(d *metadata.Descriptor) *pb.Replica {
	r := &pb.Replica{Status: pb.ReplicaStatus_REPLICA_STATUS_PROCESSING}
	if d.Status == metadata.Complete {
		r.Status = pb.ReplicaStatus_REPLICA_STATUS_COMPLETE
	}
	switch d.Kind {
	case metadata.Memory:
		r.Location = &pb.Replica_Memory{Memory: &pb.MemoryLocation{Address: d.Address, Endpoint: d.Endpoint, Protocol: d.Protocol}}
	case metadata.Disk:
		r.Location = &pb.Replica_Disk{Disk: &pb.DiskLocation{Path: d.Path}}
	case metadata.LocalDisk:
		r.Location = &pb.Replica_LocalDisk{LocalDisk: &pb.LocalDiskLocation{ClientId: uuid.UUID(d.Client).String(), Endpoint: d.Endpoint}}
	}
	return r
}
