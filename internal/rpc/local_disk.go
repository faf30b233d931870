package rpc

import (
	"context"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
)

func (s *clientService) MountLocalDiskSegment(ctx context.Context, r *pb.MountLocalDiskSegmentRequest) (*pb.MountLocalDiskSegmentResponse, error) {
	m := master(ctx)
	client, err := clientOf(r)
	if err != nil {
		return nil, err
	}
	return &pb.MountLocalDiskSegmentResponse{Header: s.header(m.Term)}, m.MountLocalDisk(service.From(ctx, callerFor(ctx)), client, r.GetEnableOffloading())
}

func (s *clientService) OffloadObjectHeartbeat(ctx context.Context, r *pb.OffloadObjectHeartbeatRequest) (*pb.OffloadObjectHeartbeatResponse, error) {
	m := master(ctx)
	client, err := clientOf(r)
	if err != nil {
		return nil, err
	}
	tasks, err := m.OffloadHeartbeat(service.From(ctx, callerFor(ctx)), client, r.GetEnableOffloading())
	if err != nil {
		return nil, err
	}
	resp := &pb.OffloadObjectHeartbeatResponse{Header: s.header(m.Term)}
	for _, t := range tasks {
		resp.Tasks = append(resp.Tasks, &pb.OffloadTask{Tenant: t.Tenant, Key: t.Key, Size: t.Size})
	}
	return resp, nil
}

func (s *clientService) NotifyOffloadSuccess(ctx context.Context, r *pb.NotifyOffloadSuccessRequest) (*pb.NotifyOffloadSuccessResponse, error) {
	m := master(ctx)
	client, err := clientOf(r)
	if err != nil {
		return nil, err
	}
	if len(r.GetObjects()) == 0 {
		return nil, errs.New(errs.InvalidParams, "", "objects is empty; name at least one")
	}
	done := make([]service.OffloadResult, len(r.GetObjects()))
	for i, o := range r.GetObjects() {
		t := o.GetTask()
		done[i] = service.OffloadResult{
			Task:    service.OffloadTask{Tenant: s.tenantOf(t), Key: t.GetKey(), Size: t.GetSize()},
			Refused: o.GetRefused(), DataSize: o.GetDataSize(), Endpoint: o.GetEndpoint(),
		}
	}
	return &pb.NotifyOffloadSuccessResponse{Header: s.header(m.Term)}, m.NotifyOffloaded(ctx, client, done)
}
