package mooncakeclient

import (
	"time"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/metadata"
)

func existKey(a *attempt, _ *pb.ExistKeyRequest, p *pb.ExistKeyResponse) (err error) {
	p.Exists, err = ask(a, a.generation.ExistKey)
	return err
}

func batchExistKey(a *attempt, q *pb.BatchExistKeyRequest, p *pb.BatchExistKeyResponse) (err error) {
	p.Exists = make([]bool, len(q.GetKeys()))
	p.Errors, err = askAll(a, a.generation.BatchExistKey, len(q.GetKeys()), func(i int, exists *bool) { p.Exists[i] = *exists })
	return err
}

func getReplicaList(a *attempt, _ *pb.GetReplicaListRequest, p *pb.GetReplicaListResponse) error {
	l, err := ask(a, a.generation.GetReplicaList)
	p.LeaseTtlMs, p.Object = uint64(l.LeaseTTL.Milliseconds()), listOf(l.ID, l.Checksum, l.Replicas)
	return err
}

func batchGetReplicaList(a *attempt, q *pb.BatchGetReplicaListRequest, p *pb.BatchGetReplicaListResponse) (err error) {
	p.Objects = noLists(len(q.GetKeys()))
	var ttl time.Duration
	p.Errors, err = askAll(a, a.generation.BatchGetReplicaList, len(q.GetKeys()), func(i int, l *metadata.ReplicaList) {
		p.Objects[i] = listOf(l.ID, l.Checksum, l.Replicas)
		if ttl == 0 || l.LeaseTTL < ttl {
			ttl = l.LeaseTTL // all are as long
		}
	})
	p.LeaseTtlMs = uint64(ttl.Milliseconds())
	return err
}

// getReplicaListByRegex asks for all objects at once: there are no pages, and
// the answer does not say how long their leases are.
func getReplicaListByRegex(a *attempt, q *pb.GetReplicaListByRegexRequest, p *pb.GetReplicaListByRegexResponse) error {
	a.args.Key = q.GetRegex()
	found, err := ask(a, a.generation.GetReplicaListByRegex)
	for _, k := range found {
		p.Objects = append(p.Objects, &pb.KeyedReplicaList{Key: k.Key, Object: listOf(k.ID, nil, k.Replicas)})
	}
	return err
}

// noLists returns empty objects, as they stand in batches for items that failed.
func noLists(n int) []*pb.ReplicaList {
	lists := make([]*pb.ReplicaList, n)
	for i := range lists {
		lists[i] = new(pb.ReplicaList)
	}
	return lists
}

// listOf translates an object, or a reservation.
func listOf(id metadata.ObjectID, checksum *uint64, replicas []metadata.Descriptor) *pb.ReplicaList {
	list := &pb.ReplicaList{ObjectId: uint64(id), ObjectChecksum: checksum}
	for i := range replicas {
		list.Size = replicas[i].Size // each has as many bytes
		list.Replicas = append(list.Replicas, replicaOf(&replicas[i]))
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
