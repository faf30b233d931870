package rpc

import (
	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/metadata"
)

// lists builds the replica lists of one answer. They are the bulk of what this
// server sends, so they take four allocations together, and not five each.
type lists struct {
	objects  []pb.ReplicaList
	replicas []*pb.Replica
	memory   []memoryReplica
}

// A memoryReplica is all that a replica in memory is made of.
type memoryReplica struct {
	replica  pb.Replica
	location pb.Replica_Memory
	memory   pb.MemoryLocation
}

// newLists makes room for so many lists, with so many replicas together.
func newLists(objects, replicas int) *lists {
	return &lists{
		objects:  make([]pb.ReplicaList, objects),
		replicas: make([]*pb.Replica, 0, replicas),
		memory:   make([]memoryReplica, replicas),
	}
}

// one returns the list of a single object.
func one(id metadata.ObjectID, size uint64, checksum *uint64, replicas []metadata.Descriptor) *pb.ReplicaList {
	return newLists(1, len(replicas)).add(id, size, checksum, replicas)
}

// add returns the list of the next object; of none, for one that has failed.
func (l *lists) add(id metadata.ObjectID, size uint64, checksum *uint64, replicas []metadata.Descriptor) *pb.ReplicaList {
	list := &l.objects[0]
	l.objects = l.objects[1:]
	list.ObjectId, list.Size, list.ObjectChecksum = uint64(id), size, checksum
	if len(replicas) == 0 {
		return list
	}
	begin := len(l.replicas)
	for i := range replicas {
		l.replicas = append(l.replicas, l.replica(&replicas[i]))
	}
	list.Replicas = l.replicas[begin:len(l.replicas):len(l.replicas)]
	return list
}

// fail takes the place of an object that has failed.
func (l *lists) fail() *pb.ReplicaList { return l.add(0, 0, nil, nil) }

func (l *lists) replica(d *metadata.Descriptor) *pb.Replica {
	m := &l.memory[0]
	l.memory = l.memory[1:]
	r := &m.replica
	r.Status = replicaStatus(d.Status)
	switch d.Kind {
	case metadata.Memory:
		m.memory.Address, m.memory.Endpoint, m.memory.Protocol, m.memory.SegmentName = d.Address, d.Endpoint, d.Protocol, d.Segment
		m.location.Memory = &m.memory
		r.Location = &m.location
	case metadata.Disk:
		r.Location = &pb.Replica_Disk{Disk: &pb.DiskLocation{Path: d.Path}}
	case metadata.LocalDisk:
		r.Location = &pb.Replica_LocalDisk{LocalDisk: &pb.LocalDiskLocation{ClientId: d.Client.String(), Endpoint: d.Endpoint}}
	}
	return r
}

func replicaStatus(s metadata.ReplicaStatus) pb.ReplicaStatus {
	switch s {
	case metadata.Processing:
		return pb.ReplicaStatus_REPLICA_STATUS_PROCESSING
	case metadata.Complete:
		return pb.ReplicaStatus_REPLICA_STATUS_COMPLETE
	default:
		return pb.ReplicaStatus_REPLICA_STATUS_UNSPECIFIED
	}
}
