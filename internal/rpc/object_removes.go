package rpc

import (
	"context"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
)

func (s *objectService) Remove(ctx context.Context, r *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	m := master(ctx)
	return &pb.RemoveResponse{Header: s.header(m.Term)}, m.Remove(ctx, s.removalOf(r), r.GetKey())
}

func (s *objectService) BatchRemove(ctx context.Context, r *pb.BatchRemoveRequest) (*pb.BatchRemoveResponse, error) {
	m := master(ctx)
	failed, err := m.BatchRemove(ctx, s.removalOf(r), r.GetKeys())
	if err != nil {
		return nil, err
	}
	items := s.items("BatchRemove", r.GetRequestId(), failed)
	return &pb.BatchRemoveResponse{Header: s.header(m.Term), Succeeded: succeeded(len(r.GetKeys()), items), Errors: items}, nil
}

func (s *objectService) RemoveByRegex(ctx context.Context, r *pb.RemoveByRegexRequest) (*pb.RemoveByRegexResponse, error) {
	m := master(ctx)
	n, err := m.RemoveByRegex(service.From(ctx, callerFor(ctx)), s.removalOf(r), r.GetRegex())
	noteChange(ctx, n.Changed)
	return &pb.RemoveByRegexResponse{Header: s.header(m.Term), Removed: uint64(n.Removed), KeptLeased: uint64(n.Leased), KeptInProgress: uint64(n.InProgress)}, err
}

func (s *objectService) RemoveAll(ctx context.Context, r *pb.RemoveAllRequest) (*pb.RemoveAllResponse, error) {
	m := master(ctx)
	removal := s.removalOf(r)
	if r.GetAllTenants() {
		if r.GetTenant() != "" {
			return nil, errs.New(errs.InvalidParams, "", "all_tenants is set, and a tenant as well; give one of them")
		}
		removal.Tenant = ""
	}
	n, err := m.RemoveAll(service.From(ctx, callerFor(ctx)), removal)
	noteChange(ctx, n.Changed)
	return &pb.RemoveAllResponse{Header: s.header(m.Term), Removed: uint64(n.Removed), KeptLeased: uint64(n.Leased), KeptInProgress: uint64(n.InProgress)}, err
}

func (s *objectService) BatchReplicaClear(ctx context.Context, r *pb.BatchReplicaClearRequest) (*pb.BatchReplicaClearResponse, error) {
	m := master(ctx)
	client, err := clientOf(r)
	if err != nil {
		return nil, err
	}
	if err := checkName("segment_name", r.GetSegmentName()); err != nil {
		return nil, err
	}
	cleared, err := m.BatchReplicaClear(ctx, s.tenantOf(r), r.GetKeys(), client, r.GetSegmentName())
	if err != nil {
		return nil, err
	}
	resp := &pb.BatchReplicaClearResponse{Header: s.header(m.Term), Cleared: make([]uint32, len(cleared))}
	for i, index := range cleared {
		resp.Cleared[i] = uint32(index)
	}
	return resp, nil
}

func (f *front) removalOf(r interface {
	GetTenant() string
	GetForce() bool
	GetRequestId() uint64
}) service.RemoveRequest {
	return service.RemoveRequest{Tenant: f.tenantOf(r), Force: r.GetForce(), Request: r.GetRequestId()}
}
