package client

import (
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/clock"
)

// An ObjectID names one put of a key for ever: ids are not given twice, and
// later puts have higher ones.
type ObjectID uint64

// String returns the id in decimal.
func (id ObjectID) String() string { return strconv.FormatUint(uint64(id), 10) }

// An Object is what a reader needs of one.
type Object struct {
	ID       ObjectID
	Size     uint64    // bytes; each replica has as many
	Replicas []Replica // the readable ones, at least one
	Checksum *uint64   // as given at PutEnd; nil if none was
	Lease    Lease
}

// A ReplicaKind says what holds a replica.
type ReplicaKind uint8

// The kinds of replicas.
const (
	Memory    ReplicaKind = iota + 1 // a mounted segment
	Disk                             // a file under the shared root_fs_dir
	LocalDisk                        // a client's own SSD
)

// A Replica is where one copy of an object's bytes is.
type Replica struct {
	Kind     ReplicaKind
	Endpoint string    // where the owner is reached; of Memory and LocalDisk
	Address  uint64    // of the first byte, in the owner's memory; of Memory
	Protocol string    // transfer protocol, for example "rdma"; of Memory
	Segment  string    // name of the segment; of Memory
	Path     string    // of the file; of Disk
	Client   uuid.UUID // the owner; of LocalDisk
}

// A Lease is how long an object's bytes stay what they are. It runs from before the
// request was sent, on a clock that goes on while the machine is asleep.
//
// Bytes that were read count only if the lease is still valid after the read. Later the
// memory may hold another object. The zero Lease is over.
type Lease struct {
	ends time.Duration
	now  clock.Clock
}

// Valid reports whether the lease still holds.
func (l Lease) Valid() bool { return l.Remaining() > 0 }

// Remaining returns how long the lease still holds, 0 or less if it does not.
func (l Lease) Remaining() time.Duration {
	if l.now == nil {
		return 0
	}
	return l.ends - l.now()
}

// lease is one that was granted on a request sent at some time.
func (c *Client) lease(sent time.Duration, ttlMillis uint64) Lease {
	return Lease{sent + duration(ttlMillis), c.clock}
}

// duration is one of so many milliseconds, or the longest that keeps sums of
// durations in range.
func duration(ms uint64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/2/uint64(time.Millisecond))) * time.Millisecond
}

// millis rounds up: what was asked for is not 0.
func millis(d time.Duration) uint64 {
	return uint64(max(0, d+time.Millisecond-1) / time.Millisecond)
}

// objectOf translates an object for its reader; see replicasOf.
func objectOf(list *pb.ReplicaList, lease Lease, room *[]Replica) Object {
	o := Object{ID: ObjectID(list.GetObjectId()), Size: list.GetSize(), Replicas: replicasOf(list, room), Lease: lease}
	if list != nil {
		o.Checksum = list.ObjectChecksum
	}
	return o
}

// replicasOf translates replicas. Kinds that this client does not know are left
// out. The result is a part of room, which the objects of a batch share: that
// saves an allocation for each.
func replicasOf(list *pb.ReplicaList, room *[]Replica) []Replica {
	all := *room
	begin := len(all)
	for _, r := range list.GetReplicas() {
		switch at := r.GetLocation().(type) {
		case *pb.Replica_Memory:
			m := at.Memory
			all = append(all, Replica{
				Kind: Memory, Address: m.GetAddress(), Endpoint: m.GetEndpoint(), Protocol: m.GetProtocol(), Segment: m.GetSegmentName(),
			})
		case *pb.Replica_Disk:
			all = append(all, Replica{Kind: Disk, Path: at.Disk.GetPath()})
		case *pb.Replica_LocalDisk:
			owner, _ := uuid.Parse(at.LocalDisk.GetClientId()) // nil if it is not given
			all = append(all, Replica{Kind: LocalDisk, Client: owner, Endpoint: at.LocalDisk.GetEndpoint()})
		}
	}
	*room = all
	return all[begin:len(all):len(all)]
}

// roomFor returns room for the replicas of all objects.
func roomFor(lists []*pb.ReplicaList) *[]Replica {
	n := 0
	for _, l := range lists {
		n += len(l.GetReplicas())
	}
	room := make([]Replica, 0, n)
	return &room
}
