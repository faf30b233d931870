package rpc

import (
	"cmp"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A front is what all services share.
type front struct{ *Config }

func (f *front) header(term metadata.Term) *pb.ResponseHeader {
	return &pb.ResponseHeader{Term: uint64(term), ClusterId: f.ClusterID, NodeId: f.NodeID}
}

// items lists the failures of a batch. A defect among them is logged, once for
// the batch.
func (f *front) items(op string, request uint64, failed []error) []*pb.ItemError {
	items := rpcerr.Items(failed)
	for _, item := range items {
		if item.GetKind() == pb.Kind_KIND_INTERNAL_ERROR {
			f.Log.Error().Str("method", op).Uint64("request_id", request).Uint32("item", item.GetIndex()).Int("failed", len(items)).
				Err(failed[item.GetIndex()]).Msg("an item of a batch failed by a defect of this program")
			break
		}
	}
	return items
}

func (f *front) tenantOf(r interface{ GetTenant() string }) string {
	return f.Tenants.Of(r.GetTenant())
}

// uuidOf reads a UUID in its canonical form; other spellings that the library
// accepts, and the nil UUID, are refused.
func uuidOf(field, text string) (uuid.UUID, error) {
	const canonical = 36
	if len(text) == canonical {
		if id, err := uuid.Parse(text); err == nil && id != uuid.Nil {
			return id, nil
		}
	}
	return uuid.Nil, errs.New(errs.InvalidParams, "",
		"%s is %.64q; it must be a UUID of 36 characters, such as 6ba7b810-9dad-11d1-80b4-00c04fd430c8, and not the nil one", field, text)
}

func clientOf(r interface{ GetClientId() string }) (segment.ClientID, error) {
	id, err := uuidOf("client_id", r.GetClientId())
	return segment.ClientID(id), err
}

func segmentID(field, text string) (segment.ID, error) {
	id, err := uuidOf(field, text)
	return segment.ID(id), err
}

// pageBytes bounds a page, so that it fits minSendBytes with its largest entry.
const pageBytes = 1 << 20

// pageOf reads what part of a long answer is asked for.
func pageOf(r interface {
	GetPageSize() uint32
	GetPageToken() string
}) (service.Page, error) {
	size := cmp.Or(r.GetPageSize(), pb.DefaultPageSize)
	if size > pb.MaxPageSize {
		return service.Page{}, errs.New(errs.InvalidParams, "", "page_size is %d, at most %d are possible", size, pb.MaxPageSize)
	}
	return service.Page{Size: int(size), Bytes: pageBytes, Token: r.GetPageToken()}, nil
}

func succeeded(items int, failed []*pb.ItemError) uint32 { return uint32(items - len(failed)) }

// checkName refuses a name that is too long for anything to have it.
func checkName(field, name string) error {
	if len(name) > pb.MaxNameBytes {
		return errs.New(errs.InvalidParams, "", "%s has a name of %d bytes, at most %d are possible", field, len(name), pb.MaxNameBytes)
	}
	return nil
}

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

func newLists[T any](of []T, replicasOf func(*T) []metadata.Descriptor) *lists {
	objects, replicas := len(of), 0
	for i := range of {
		replicas += len(replicasOf(&of[i]))
	}
	return &lists{
		objects:  make([]pb.ReplicaList, objects),
		replicas: make([]*pb.Replica, 0, replicas),
		memory:   make([]memoryReplica, replicas),
	}
}

func one(id metadata.ObjectID, size uint64, checksum *uint64, replicas []metadata.Descriptor) *pb.ReplicaList {
	build := newLists([][]metadata.Descriptor{replicas}, func(r *[]metadata.Descriptor) []metadata.Descriptor { return *r })
	return build.add(id, size, checksum, replicas)
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

// fail returns the empty list in place of an object that has failed.
func (l *lists) fail() *pb.ReplicaList { return l.add(0, 0, nil, nil) }

func (l *lists) replica(d *metadata.Descriptor) *pb.Replica {
	m := &l.memory[0]
	l.memory = l.memory[1:]
	r := &m.replica
	r.Status = pb.ReplicaStatus(d.Status) // the numbers are the same
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
