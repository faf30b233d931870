package sim

import (
	"context"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// etcdServices are what etcd offers over gRPC, by the names of the services.
type etcdServices map[string]etcdService

type etcdService struct {
	*grpc.ServiceDesc
	server any
}

func newServices(etcd *etcdserver.EtcdServer) etcdServices {
	list := make(etcdServices)
	add := func(of *grpc.ServiceDesc, server any) { list[of.ServiceName] = etcdService{of, server} }
	add(&pb.KV_ServiceDesc, v3rpc.NewQuotaKVServer(etcd))
	add(&pb.Lease_ServiceDesc, v3rpc.NewQuotaLeaseServer(etcd))
	add(&pb.Watch_ServiceDesc, v3rpc.NewWatchServer(etcd))
	add(&pb.Maintenance_ServiceDesc, maintenance{v3rpc.NewMaintenanceServer(etcd, nil), etcd})
	return list
}

// maintenance is etcd's, which cannot defragment without a health service.
type maintenance struct {
	pb.MaintenanceServer
	etcd *etcdserver.EtcdServer
}

func (m maintenance) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return &pb.DefragmentResponse{}, m.etcd.Defragment()
}

// find returns the service of a method, "/service/method", and the method's
// own name.
func (s *Server) find(fullMethod string) (etcdService, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	return s.services[name], method
}

func notOffered(fullMethod string) error {
	return status.Errorf(codes.Unimplemented, "sim: etcd: %s is not offered", fullMethod)
}

// unary lets the server answer a unary call. A client that has given it up does
// not undo it: what reached etcd counts.
func (s *Server) unary(fullMethod string, request proto.Message) (proto.Message, error) {
	of, name := s.find(fullMethod)
	if of.ServiceDesc == nil {
		return nil, notOffered(fullMethod)
	}
	for _, method := range of.Methods {
		if method.MethodName != name {
			continue
		}
		answer, err := method.Handler(of.server, context.Background(), func(to any) error {
			s.fill(to.(proto.Message), request)
			return nil
		}, nil)
		if err != nil {
			return nil, err
		}
		s.leases.observe(answer.(proto.Message))
		return answer.(proto.Message), nil
	}
	return nil, notOffered(fullMethod)
}

// fill gives the server its copy of a request.
func (s *Server) fill(to, request proto.Message) {
	proto.Merge(to, request)
	if grant, ok := to.(*pb.LeaseGrantRequest); ok && grant.ID == 0 {
		grant.ID = s.leases.nextID()
	}
}

// stream lets the server handle a stream, until it ends.
func (s *Server) stream(fullMethod string, end grpc.ServerStream) error {
	of, name := s.find(fullMethod)
	if of.ServiceDesc == nil {
		return notOffered(fullMethod)
	}
	for _, stream := range of.Streams {
		if stream.StreamName == name {
			return stream.Handler(of.server, end)
		}
	}
	return notOffered(fullMethod)
}
