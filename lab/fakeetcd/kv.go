package fakeetcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

// handle answers a request. Needs mu.
func (s *Server) handle(r proto.Message) answer {
	switch r := r.(type) {
	case *pb.RangeRequest:
		return answered(s.get(r))
	case *pb.PutRequest:
		return answered(s.put(r))
	case *pb.DeleteRangeRequest:
		return answered(s.deleteRange(r))
	case *pb.TxnRequest:
		return answered(s.write(r, r))
	case *pb.CompactionRequest:
		return answered(s.compact(r))
	case *pb.LeaseGrantRequest:
		return answered(s.grant(r))
	case *pb.LeaseRevokeRequest:
		return answered(s.revokeLease(r))
	case *pb.LeaseTimeToLiveRequest:
		return answered(s.timeToLive(r))
	case *pb.LeaseKeepAliveRequest:
		return s.keepAlive(r)
	case *pb.StatusRequest:
		return answered(s.status())
	case *pb.AlarmRequest:
		return answered(s.alarm(r))
	case *pb.DefragmentRequest:
		return answered(s.defragment())
	}
	return answer{err: notOffered(string(r.ProtoReflect().Descriptor().Name()))}
}

func answered[M proto.Message](m M, err error) answer { return answer{message: m, err: err} }

// get reads keys.
func (s *Server) get(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	return s.readRange(r)
}

// put writes a key.
func (s *Server) put(r *pb.PutRequest) (*pb.PutResponse, error) {
	op := []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r}}}
	resp, err := s.write(r, &pb.TxnRequest{Success: op})
	if err != nil {
		return nil, err
	}
	put := resp.Responses[0].GetResponsePut()
	put.Header = resp.Header
	return put, nil
}

// deleteRange deletes keys.
func (s *Server) deleteRange(r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	op := []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}}
	resp, err := s.write(r, &pb.TxnRequest{Success: op})
	if err != nil {
		return nil, err
	}
	deleted := resp.Responses[0].GetResponseDeleteRange()
	deleted.Header = resp.Header
	return deleted, nil
}

// write does what a request asks for, as a transaction.
func (s *Server) write(asked proto.Message, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(r); err != nil {
		return nil, err
	}
	size := int64(proto.Size(asked))
	if size > MaxRequestBytes {
		return nil, rpctypes.ErrGRPCRequestTooLarge
	}
	if puts(r) {
		if s.full {
			return nil, rpctypes.ErrGRPCNoSpace
		}
		if s.size+size > s.opts.QuotaBytes {
			// The harder of the two things that etcd does with the write that is too
			// much: it finds out when it applies it.
			s.full = true
			if _, err := s.txn(r); err != nil {
				return nil, err
			}
			return nil, rpctypes.ErrGRPCNoSpace
		}
	}
	return s.txn(r)
}

// compact forgets history.
func (s *Server) compact(r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if err := s.store.compact(r.Revision); err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.header()}, nil
}

// reportedVersion is the etcd that the fake takes itself for.
const reportedVersion = "3.7.0"

// status tells the size of the database.
func (s *Server) status() (*pb.StatusResponse, error) {
	resp := &pb.StatusResponse{
		Header: s.header(), Version: reportedVersion, Leader: 1, RaftTerm: 1,
		DbSize: s.size, DbSizeInUse: s.store.bytes, DbSizeQuota: s.opts.QuotaBytes,
	}
	if s.full {
		resp.Errors = append(resp.Errors, noSpace().String())
	}
	return resp, nil
}

// alarm lists alarms and lifts them. The only one that there can be is NOSPACE.
func (s *Server) alarm(r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	resp := &pb.AlarmResponse{Header: s.header()}
	if s.full {
		resp.Alarms = append(resp.Alarms, noSpace())
	}
	switch {
	case r.Action == pb.AlarmRequest_ACTIVATE:
		return nil, notOffered("raising an alarm")
	case r.Action == pb.AlarmRequest_DEACTIVATE && r.Alarm == pb.AlarmType_NOSPACE:
		s.full = false
	}
	return resp, nil
}

func noSpace() *pb.AlarmMember { return &pb.AlarmMember{MemberID: 1, Alarm: pb.AlarmType_NOSPACE} }

// defragment gives free space back.
func (s *Server) defragment() (*pb.DefragmentResponse, error) {
	s.size = s.store.bytes
	return &pb.DefragmentResponse{Header: s.header()}, nil
}
