package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/service"
)

// healthInterval is how often Watch looks even if the gate has not changed: a node can
// lose the right to serve by the mere passing of time, which nobody announces.
const healthInterval = time.Second

// health is the standard health service. A node is healthy while it serves
// clients of the store. Each answer is found out when it is asked for, never
// remembered.
type health struct {
	healthpb.UnimplementedHealthServer
	gate *service.Gate
}

// healthy names what has a health: the server, and the services that only the
// primary offers.
var healthy = [...]string{
	"",
	pb.ObjectService_ServiceDesc.ServiceName,
	pb.ClientService_ServiceDesc.ServiceName,
	pb.SnapshotService_ServiceDesc.ServiceName,
}

func (h *health) status(name string) healthpb.HealthCheckResponse_ServingStatus {
	for _, known := range healthy {
		switch {
		case name != known:
		case h.gate.Serves():
			return healthpb.HealthCheckResponse_SERVING
		default:
			return healthpb.HealthCheckResponse_NOT_SERVING
		}
	}
	return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
}

func (h *health) Check(_ context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	s := h.status(r.GetService())
	if s == healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Errorf(codes.NotFound, "no health is known of %.64q; ask for %q", r.GetService(), healthy)
	}
	return &healthpb.HealthCheckResponse{Status: s}, nil
}

func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	all := make(map[string]*healthpb.HealthCheckResponse, len(healthy))
	for _, name := range healthy {
		all[name] = &healthpb.HealthCheckResponse{Status: h.status(name)}
	}
	return &healthpb.HealthListResponse{Statuses: all}, nil
}

func (h *health) Watch(r *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	told := healthpb.HealthCheckResponse_UNKNOWN
	for {
		changed := h.gate.Changed()
		if now := h.status(r.GetService()); now != told {
			told = now
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
