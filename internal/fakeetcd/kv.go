package fakeetcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

type kvService struct {
	pb.UnimplementedKVServer
	*Server
}

// Range reads keys.
func (s kvService) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return serve(ctx, s.Server, r, func() (*pb.RangeResponse, error) {
		if err := checkRange(r); err != nil {
			return nil, err
		}
		return s.readRange(r)
	})
}

// Put writes a key.
func (s kvService) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	return serve(ctx, s.Server, r, func() (*pb.PutResponse, error) {
		op := []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r}}}
		resp, err := s.write(r, &pb.TxnRequest{Success: op})
		if err != nil {
			return nil, err
		}
		put := resp.Responses[0].GetResponsePut()
		put.Header = resp.Header
		return put, nil
	})
}

// DeleteRange deletes keys.
func (s kvService) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return serve(ctx, s.Server, r, func() (*pb.DeleteRangeResponse, error) {
		op := []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}}
		resp, err := s.write(r, &pb.TxnRequest{Success: op})
		if err != nil {
			return nil, err
		}
		deleted := resp.Responses[0].GetResponseDeleteRange()
		deleted.Header = resp.Header
		return deleted, nil
	})
}

// Txn writes several keys at once, or none.
func (s kvService) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return serve(ctx, s.Server, r, func() (*pb.TxnResponse, error) { return s.write(r, r) })
}

// write does what a request asks for, as a transaction. Needs mu.
func (s kvService) write(asked proto.Message, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(r); err != nil {
		return nil, err
	}
	size := int64(proto.Size(asked))
	if size > MaxRequestBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	if puts(r) {
		if !s.full && s.size+size > s.opts.QuotaBytes {
			s.full = true
		}
		if s.full {
			return nil, rpctypes.ErrGRPCNoSpace
		}
	}
	return s.txn(r)
}

// Compact forgets history.
func (s kvService) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return serve(ctx, s.Server, r, func() (*pb.CompactionResponse, error) {
		if err := s.store.compact(r.Revision); err != nil {
			return nil, err
		}
		return &pb.CompactionResponse{Header: s.header()}, nil
	})
}

type maintenanceService struct {
	pb.UnimplementedMaintenanceServer
	*Server
}

// reportedVersion is the etcd that the fake takes itself for.
const reportedVersion = "3.7.0"

// Status tells the size of the database.
func (s maintenanceService) Status(ctx context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	return serve(ctx, s.Server, r, func() (*pb.StatusResponse, error) {
		resp := &pb.StatusResponse{
			Header: s.header(), Version: reportedVersion, Leader: 1, RaftTerm: 1,
			DbSize: s.size, DbSizeInUse: s.store.bytes, DbSizeQuota: s.opts.QuotaBytes,
		}
		if s.full {
			resp.Errors = append(resp.Errors, s.noSpace().String())
		}
		return resp, nil
	})
}

// Alarm lists alarms and lifts them. The only one that there can be is NOSPACE.
func (s maintenanceService) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	return serve(ctx, s.Server, r, func() (*pb.AlarmResponse, error) {
		resp := &pb.AlarmResponse{Header: s.header()}
		if s.full {
			resp.Alarms = append(resp.Alarms, s.noSpace())
		}
		switch {
		case r.Action == pb.AlarmRequest_ACTIVATE:
			return nil, notOffered("raising an alarm")
		case r.Action == pb.AlarmRequest_DEACTIVATE && r.Alarm == pb.AlarmType_NOSPACE:
			s.full = false
		}
		return resp, nil
	})
}

func (s maintenanceService) noSpace() *pb.AlarmMember {
	return &pb.AlarmMember{MemberID: 1, Alarm: pb.AlarmType_NOSPACE}
}

// Defragment gives free space back.
func (s maintenanceService) Defragment(ctx context.Context, r *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return serve(ctx, s.Server, r, func() (*pb.DefragmentResponse, error) {
		s.size = s.store.bytes
		return &pb.DefragmentResponse{Header: s.header()}, nil
	})
}
