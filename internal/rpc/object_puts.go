package rpc

import (
	"context"
	"math"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

func (s *objectService) PutStart(ctx context.Context, r *pb.PutStartRequest) (*pb.PutStartResponse, error) {
	m := master(ctx)
	put, err := s.putStartOf(ctx, r)
	if err != nil {
		return nil, err
	}
	got, err := m.PutStart(ctx, put, service.PutItem{Key: r.GetKey(), Size: r.GetSize(), Group: r.GetGroupId()})
	if err != nil {
		return nil, err
	}
	return &pb.PutStartResponse{Header: s.header(m.Term), Object: one(got.ID, r.GetSize(), nil, got.Replicas)}, nil
}

func (s *objectService) BatchPutStart(ctx context.Context, r *pb.BatchPutStartRequest) (*pb.BatchPutStartResponse, error) {
	m := master(ctx)
	put, err := s.putStartOf(ctx, r)
	if err != nil {
		return nil, err
	}
	items := make([]service.PutItem, len(r.GetItems()))
	for i, it := range r.GetItems() {
		items[i] = service.PutItem{Key: it.GetKey(), Size: it.GetSize(), Group: it.GetGroupId()}
	}
	least := len(items) * max(1, min(put.Config.Replicas, metadata.MaxReplicas)) * leastEntry
	if err := s.room(ctx, s.unread).Room(least); err != nil {
		return nil, err // before anything is reserved
	}
	got, failed, err := m.BatchPutStart(ctx, put, items)
	if err != nil {
		return nil, err
	}
	build := newLists(got, func(r *service.Reservation) []metadata.Descriptor { return r.Replicas })
	resp := &pb.BatchPutStartResponse{
		Header: s.header(m.Term), Objects: make([]*pb.ReplicaList, len(got)), Errors: s.items("BatchPutStart", r.GetRequestId(), failed),
	}
	for i := range got {
		if failed[i] != nil {
			resp.Objects[i] = build.fail()
		} else {
			resp.Objects[i] = build.add(got[i].ID, items[i].Size, nil, got[i].Replicas)
		}
	}
	return resp, nil
}

func (s *objectService) PutEnd(ctx context.Context, r *pb.PutEndRequest) (*pb.PutEndResponse, error) {
	m := master(ctx)
	update, err := s.putUpdateOf(r)
	if err != nil {
		return nil, err
	}
	ref := service.UpdateItem{Key: r.GetKey(), ID: metadata.ObjectID(r.GetObjectId()), Checksum: r.ObjectChecksum}
	return &pb.PutEndResponse{Header: s.header(m.Term)}, m.PutEnd(ctx, update, ref)
}

func (s *objectService) BatchPutEnd(ctx context.Context, r *pb.BatchPutEndRequest) (*pb.BatchPutEndResponse, error) {
	m := master(ctx)
	update, err := s.putUpdateOf(r)
	if err != nil {
		return nil, err
	}
	refs := make([]service.UpdateItem, len(r.GetItems()))
	for i, it := range r.GetItems() {
		refs[i] = service.UpdateItem{Key: it.GetKey(), ID: metadata.ObjectID(it.GetObjectId()), Checksum: it.ObjectChecksum}
	}
	failed, err := m.BatchPutEnd(ctx, update, refs)
	if err != nil {
		return nil, err
	}
	items := s.items("BatchPutEnd", r.GetRequestId(), failed)
	return &pb.BatchPutEndResponse{Header: s.header(m.Term), Succeeded: succeeded(len(refs), items), Errors: items}, nil
}

func (s *objectService) PutRevoke(ctx context.Context, r *pb.PutRevokeRequest) (*pb.PutRevokeResponse, error) {
	m := master(ctx)
	update, err := s.putUpdateOf(r)
	if err != nil {
		return nil, err
	}
	return &pb.PutRevokeResponse{Header: s.header(m.Term)}, m.PutRevoke(ctx, update, service.UpdateItem{Key: r.GetKey(), ID: metadata.ObjectID(r.GetObjectId())})
}

func (s *objectService) BatchPutRevoke(ctx context.Context, r *pb.BatchPutRevokeRequest) (*pb.BatchPutRevokeResponse, error) {
	m := master(ctx)
	update, err := s.putUpdateOf(r)
	if err != nil {
		return nil, err
	}
	refs := make([]service.UpdateItem, len(r.GetItems()))
	for i, it := range r.GetItems() {
		refs[i] = service.UpdateItem{Key: it.GetKey(), ID: metadata.ObjectID(it.GetObjectId())}
	}
	failed, err := m.BatchPutRevoke(ctx, update, refs)
	if err != nil {
		return nil, err
	}
	items := s.items("BatchPutRevoke", r.GetRequestId(), failed)
	return &pb.BatchPutRevokeResponse{Header: s.header(m.Term), Succeeded: succeeded(len(refs), items), Errors: items}, nil
}

// A writer is what all requests of a put's writer have in common.
type writer interface {
	GetTenant() string
	GetClientId() string
	GetRequestId() uint64
}

func (f *front) putStartOf(ctx context.Context, r interface {
	writer
	GetConfig() *pb.PutConfig
}) (service.PutRequest, error) {
	client, err := clientOf(r)
	if err != nil {
		return service.PutRequest{}, err
	}
	config, err := putConfigOf(r.GetConfig())
	return service.PutRequest{Tenant: f.tenantOf(r), Client: client, Request: r.GetRequestId(), Config: config, Peer: callerFor(ctx).Peer}, err
}

func (f *front) putUpdateOf(r interface {
	writer
	GetSelector() pb.ReplicaSelector
}) (service.UpdateRequest, error) {
	client, err := clientOf(r)
	if err != nil {
		return service.UpdateRequest{}, err
	}
	selector, err := selectorOf(r.GetSelector())
	return service.UpdateRequest{Tenant: f.tenantOf(r), Client: client, Request: r.GetRequestId(), Selector: selector}, err
}

// putConfigOf reads how a put is to be stored; the service checks the numbers
// that have the same range there.
func putConfigOf(c *pb.PutConfig) (service.PutConfig, error) {
	config := service.PutConfig{
		Replicas:  1,
		Preferred: c.GetPreferredSegments(),
		HardPin:   c.GetHardPin(),
		SameNode:  c.GetPreferAllocInSameNode(),
		DataType:  uint8(c.GetDataType()),
		Upsert:    c.GetUpsert(),
	}
	if c.GetDataType() > math.MaxUint8 {
		return config, errs.New(errs.InvalidParams, "", "data_type is %d, at most %d is possible", c.GetDataType(), math.MaxUint8)
	}
	if err := checkName("host_id", c.GetHostId()); err != nil {
		return config, err
	}
	for _, name := range c.GetPreferredSegments() {
		if err := checkName("preferred_segments", name); err != nil {
			return config, err
		}
	}
	if c != nil && c.ReplicaNum != nil {
		config.Replicas = int(c.GetReplicaNum())
	}
	if c != nil && c.SoftPinTtlMs != nil {
		ttl := millis(c.GetSoftPinTtlMs())
		config.SoftPinTTL = &ttl
	}
	switch action := c.GetSoftPinAction(); action {
	case pb.SoftPinAction_SOFT_PIN_ACTION_UNSPECIFIED, pb.SoftPinAction_SOFT_PIN_ACTION_PRESERVE:
		config.SoftPin = service.SoftPinPreserve
	case pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE:
		config.SoftPin = service.SoftPinEnable
	case pb.SoftPinAction_SOFT_PIN_ACTION_DISABLE:
		config.SoftPin = service.SoftPinDisable
	default:
		return config, errs.New(errs.InvalidParams, "", "soft_pin_action %d is not known to this server", action)
	}
	return config, nil
}

func selectorOf(s pb.ReplicaSelector) (metadata.Selector, error) {
	switch s {
	case pb.ReplicaSelector_REPLICA_SELECTOR_UNSPECIFIED, pb.ReplicaSelector_REPLICA_SELECTOR_ALL:
		return metadata.SelectAll, nil
	case pb.ReplicaSelector_REPLICA_SELECTOR_MEMORY:
		return metadata.SelectMemory, nil
	case pb.ReplicaSelector_REPLICA_SELECTOR_DISK:
		return metadata.SelectDisk, nil
	case pb.ReplicaSelector_REPLICA_SELECTOR_LOCAL_DISK:
		return metadata.SelectLocalDisk, nil
	default:
		return 0, errs.New(errs.InvalidParams, "", "selector %d is not known to this server", s)
	}
}

// millis is a duration of so many milliseconds, or the longest there is.
func millis(ms uint64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}
