package client

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// A PutItem is an object to put.
type PutItem struct {
	Key   string // 1 to 65,536 bytes of UTF-8
	Size  uint64 // bytes, at least 1
	Group string // of objects that belong together; empty for none
}

// A PutConfig says how objects are to be stored. The zero value is the server's
// default.
type PutConfig struct {
	Replicas          int           // wanted in memory, at most 64, on distinct segment names; one is enough. 0 = 1
	PreferredSegments []string      // names of segments to try first, in this order
	SoftPin           SoftPin       // whether it is evicted only when nothing else can be
	SoftPinTTL        time.Duration // from when it is readable; with PinSoftly only. 0 = the server's default
	HardPin           bool          // never evict it
	SameNode          bool          // batches: place later objects at the endpoint of the first
	DataType          uint8         // kept for readers, without meaning to the server
	HostID            string        // of the writer's host
	Upsert            bool          // replace what is under the key; it is unreadable until PutEnd
}

// A SoftPin is what a put does to the soft pin of its key.
type SoftPin pb.SoftPinAction

// What to do about a soft pin.
const (
	KeepSoftPin = SoftPin(pb.SoftPinAction_SOFT_PIN_ACTION_UNSPECIFIED) // a new object has none
	PinSoftly   = SoftPin(pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE)
	NoSoftPin   = SoftPin(pb.SoftPinAction_SOFT_PIN_ACTION_DISABLE)
)

func (p *PutConfig) message(op operation) (*pb.PutConfig, error) {
	if p.Replicas < 0 || p.Replicas > pb.MaxReplicas {
		return nil, errs.New(errs.InvalidParams, op.name, "%d replicas are wanted; give 1 to %d, or 0 for one", p.Replicas, pb.MaxReplicas)
	}
	if p.SoftPinTTL < 0 {
		return nil, errs.New(errs.InvalidParams, op.name, "SoftPinTTL is %v; it cannot be negative", p.SoftPinTTL)
	}
	m := &pb.PutConfig{
		PreferredSegments: p.PreferredSegments, SoftPinAction: pb.SoftPinAction(p.SoftPin), HardPin: p.HardPin,
		PreferAllocInSameNode: p.SameNode, DataType: uint32(p.DataType), HostId: p.HostID,
		Upsert: p.Upsert,
	}
	if p.Replicas > 0 {
		m.ReplicaNum = proto.Uint32(uint32(p.Replicas))
	}
	if p.SoftPinTTL > 0 {
		m.SoftPinTtlMs = proto.Uint64(millis(p.SoftPinTTL))
	}
	return m, nil
}

// A Reservation is where the writer of an object is to put its bytes. Nobody else gets
// that memory until the put is ended or revoked, or is 30 s old and replaced.
type Reservation struct {
	Key      string
	ID       ObjectID
	Size     uint64
	Replicas []Replica // all are to be written
}

// Ref names the put for PutEnd and PutRevoke.
func (r *Reservation) Ref() PutRef { return PutRef{Key: r.Key, ID: r.ID} }

// PutStart reserves memory for an object. Go on with PutEnd or PutRevoke.
//
// Errors: ObjectExists for a readable object, or for a reservation that is not 30 s old,
// this client's own among them; NoAvailableHandle if no segment has room: try again after
// eviction. With PutConfig.Upsert there is no ObjectExists, but ObjectHasTask while the
// object is copied or moved, and InvalidParams for another group.
//
// After Unresolved there may be a reservation that nobody will end. The key can be put
// again 30 s later.
func (c *Client) PutStart(ctx context.Context, item PutItem, config PutConfig) (Reservation, error) {
	how, err := config.message(opPutStart)
	if err != nil {
		return Reservation{}, err
	}
	req := &pb.PutStartRequest{
		Tenant: c.config.Tenant, RequestId: newRequestID(), ClientId: c.config.ClientID.String(),
		Key: item.Key, Size: item.Size, GroupId: item.Group, Config: how,
	}
	resp, _, err := ask(ctx, c, opPutStart, req, func(r *pb.PutStartResponse) bool { return r.GetObject().GetObjectId() != 0 })
	if err != nil {
		return Reservation{}, err
	}
	return reservationOf(item.Key, resp.GetObject(), new([]Replica)), nil
}

func reservationOf(key string, list *pb.ReplicaList, room *[]Replica) Reservation {
	return Reservation{Key: key, ID: ObjectID(list.GetObjectId()), Size: list.GetSize(), Replicas: replicasOf(list, room)}
}

// A Reserved is a reservation of a batch, or the error in its place.
type Reserved struct {
	Reservation
	Err error
}

// BatchPutStart is PutStart for 1 to 10,000 objects, in their order. The error
// is for the call as a whole, when no item has got an answer.
func (c *Client) BatchPutStart(ctx context.Context, items []PutItem, config PutConfig) ([]Reserved, error) {
	how, err := config.message(opBatchPutStart)
	if err != nil {
		return nil, err
	}
	wanted := make([]*pb.PutStartItem, len(items))
	for i, it := range items {
		wanted[i] = &pb.PutStartItem{Key: it.Key, Size: it.Size, GroupId: it.Group}
	}
	request := func(id uint64, r run) proto.Message {
		return &pb.BatchPutStartRequest{
			Tenant: c.config.Tenant, RequestId: id, ClientId: c.config.ClientID.String(), Items: wanted[r.from:r.to], Config: how,
		}
	}
	results := make([]Reserved, len(items))
	take := func(r run, resp *pb.BatchPutStartResponse) bool {
		if !allThere(resp.GetObjects(), resp.GetErrors(), r.to-r.from) {
			return false
		}
		room := roomFor(resp.GetObjects())
		for i, list := range resp.GetObjects() {
			if list.GetObjectId() != 0 {
				results[r.from+i].Reservation = reservationOf(items[r.from+i].Key, list, room)
			}
		}
		return true
	}
	failed, err := changeAll(ctx, c, opBatchPutStart, len(items), request, take)
	if err != nil {
		return nil, err
	}
	for i, err := range failed {
		results[i].Err = err
	}
	return results, nil
}

// A PutRef names a put that its writer ends or revokes.
type PutRef struct {
	Key string
	// ID is as PutStart gave it. 0 means whatever put is under the key; then the
	// call is not repeated once it may have been applied.
	ID ObjectID
	// Checksum of the bytes by the clients' own rule, for their readers; nil for
	// none. PutEnd only.
	Checksum *uint64
}

// A Selector chooses replicas of an object by kind.
type Selector pb.ReplicaSelector

// The selectors.
const (
	SelectAll       = Selector(pb.ReplicaSelector_REPLICA_SELECTOR_UNSPECIFIED) // memory and a client's SSD, but not Disk, as in the C++ master
	SelectMemory    = Selector(pb.ReplicaSelector_REPLICA_SELECTOR_MEMORY)      // in memory
	SelectDisk      = Selector(pb.ReplicaSelector_REPLICA_SELECTOR_DISK)        // the file under the shared root_fs_dir
	SelectLocalDisk = Selector(pb.ReplicaSelector_REPLICA_SELECTOR_LOCAL_DISK)  // on a client's SSD
)

// PutEnd makes the chosen replicas of a put readable. It is no error if they are readable
// already.
//
// Errors: ObjectNotFound if the put is gone, or another one is under the key;
// IllegalClient for another client's put; InvalidWrite if there is no such replica.
func (c *Client) PutEnd(ctx context.Context, put PutRef, which Selector) error {
	_, _, err := ask[pb.PutEndResponse](ctx, c, opPutEnd.unless(put.ID != 0), &pb.PutEndRequest{
		Tenant: c.config.Tenant, RequestId: newRequestID(), ClientId: c.config.ClientID.String(),
		Key: put.Key, ObjectId: uint64(put.ID), Selector: pb.ReplicaSelector(which), ObjectChecksum: put.Checksum,
	}, nil)
	return err
}

// PutRevoke gives up the chosen replicas of a put in progress.
//
// Errors: as PutEnd; InvalidWrite also if one of them is readable already.
func (c *Client) PutRevoke(ctx context.Context, put PutRef, which Selector) error {
	_, _, err := ask[pb.PutRevokeResponse](ctx, c, opPutRevoke.unless(put.ID != 0), &pb.PutRevokeRequest{
		Tenant: c.config.Tenant, RequestId: newRequestID(), ClientId: c.config.ClientID.String(),
		Key: put.Key, ObjectId: uint64(put.ID), Selector: pb.ReplicaSelector(which),
	}, nil)
	return err
}

// BatchPutEnd is PutEnd for 1 to 10,000 puts. It returns the outcome of each, nil for
// success; the error is for the call as a whole, as in BatchPutStart.
func (c *Client) BatchPutEnd(ctx context.Context, puts []PutRef, which Selector) ([]error, error) {
	items := make([]*pb.PutEndItem, len(puts))
	for i, p := range puts {
		items[i] = &pb.PutEndItem{Key: p.Key, ObjectId: uint64(p.ID), ObjectChecksum: p.Checksum}
	}
	request := func(id uint64, r run) proto.Message {
		return &pb.BatchPutEndRequest{
			Tenant: c.config.Tenant, RequestId: id, ClientId: c.config.ClientID.String(), Items: items[r.from:r.to], Selector: pb.ReplicaSelector(which),
		}
	}
	return changeAll(ctx, c, opBatchPutEnd.unless(allNamed(puts)), len(puts), request, acknowledged[*pb.BatchPutEndResponse])
}

// BatchPutRevoke is PutRevoke for 1 to 10,000 puts, as BatchPutEnd.
func (c *Client) BatchPutRevoke(ctx context.Context, puts []PutRef, which Selector) ([]error, error) {
	items := make([]*pb.PutRevokeItem, len(puts))
	for i, p := range puts {
		items[i] = &pb.PutRevokeItem{Key: p.Key, ObjectId: uint64(p.ID)}
	}
	request := func(id uint64, r run) proto.Message {
		return &pb.BatchPutRevokeRequest{
			Tenant: c.config.Tenant, RequestId: id, ClientId: c.config.ClientID.String(), Items: items[r.from:r.to], Selector: pb.ReplicaSelector(which),
		}
	}
	return changeAll(ctx, c, opBatchPutRevoke.unless(allNamed(puts)), len(puts), request, acknowledged[*pb.BatchPutRevokeResponse])
}

func allNamed(puts []PutRef) bool {
	return !slices.ContainsFunc(puts, func(p PutRef) bool { return p.ID == 0 })
}
