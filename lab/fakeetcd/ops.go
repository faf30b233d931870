package fakeetcd

import (
	"bytes"
	"cmp"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Limits of a request, etcd's defaults.
const (
	MaxRequestBytes = 1536 << 10
	MaxTxnOps       = 128
)

func notOffered(what string) error {
	return status.Error(codes.Unimplemented, "fakeetcd: "+what+" is not offered; nothing of ours has used it so far")
}

// readRange answers a Range that checkRange let through. Needs mu.
func (s *Server) readRange(r *pb.RangeRequest) (*pb.RangeResponse, error) {
	switch {
	case r.Revision > s.store.revision:
		return nil, rpctypes.ErrGRPCFutureRev
	case r.Revision > 0 && r.Revision < s.store.compacted:
		return nil, rpctypes.ErrGRPCCompacted
	}
	revision := r.Revision
	if revision <= 0 {
		revision = maxRevision
	}
	resp := &pb.RangeResponse{Header: s.header()}
	s.store.scan(string(r.Key), string(r.RangeEnd), revision, func(kv *mvccpb.KeyValue) bool {
		resp.Count++
		switch {
		case r.CountOnly:
		case r.Limit > 0 && int64(len(resp.Kvs)) == r.Limit:
			resp.More = true
		case r.KeysOnly:
			bare := proto.Clone(kv).(*mvccpb.KeyValue)
			bare.Value = nil
			resp.Kvs = append(resp.Kvs, bare)
		default:
			resp.Kvs = append(resp.Kvs, kv)
		}
		return true
	})
	return resp, nil
}

// A write is a transaction on its way: all its changes get one revision.
type write struct {
	*Server
	revision int64
	changed  bool
}

// begin begins a transaction. Needs mu, until end.
func (s *Server) begin() *write { return &write{Server: s, revision: s.store.revision + 1} }

// end makes the changes visible.
func (w *write) end() {
	if !w.changed {
		return
	}
	w.store.revision = w.revision
	w.size = max(w.size, w.store.bytes)
	w.signal()
}

func (w *write) put(r *pb.PutRequest) *pb.PutResponse {
	resp := &pb.PutResponse{}
	before := w.store.get(string(r.Key))
	if r.PrevKv {
		resp.PrevKv = before
	}
	if before != nil {
		w.detach(before)
	}
	w.attach(w.store.put(r.Key, r.Value, r.Lease, w.revision))
	w.changed = true
	return resp
}

func (w *write) deleteRange(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	resp := &pb.DeleteRangeResponse{}
	for _, kv := range w.store.list(string(r.Key), string(r.RangeEnd)) {
		w.detach(kv)
		w.store.remove(kv, w.revision)
		w.changed = true
		resp.Deleted++
		if r.PrevKv {
			resp.PrevKvs = append(resp.PrevKvs, kv)
		}
	}
	return resp
}

// txn runs a transaction that checkTxn let through: whole or, when it fails,
// not at all. Needs mu.
func (s *Server) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp := &pb.TxnResponse{Succeeded: true}
	for _, c := range r.Compare {
		resp.Succeeded = resp.Succeeded && s.compare(c)
	}
	ops := r.Success
	if !resp.Succeeded {
		ops = r.Failure
	}
	if err := s.checkLeases(ops); err != nil {
		return nil, err
	}
	w := s.begin()
	for _, op := range ops {
		resp.Responses = append(resp.Responses, w.op(op))
	}
	w.end()
	resp.Header = s.header()
	return resp, nil
}

// op runs one operation of a transaction.
func (w *write) op(op *pb.RequestOp) *pb.ResponseOp {
	switch {
	case op.GetRequestPut() != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: w.put(op.GetRequestPut())}}
	case op.GetRequestDeleteRange() != nil:
		deleted := w.deleteRange(op.GetRequestDeleteRange())
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: deleted}}
	}
	got, _ := w.readRange(op.GetRequestRange()) // reads the present, which cannot fail
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: got}}
}

// compare decides one comparison. A key that is not there compares as zero,
// but its value never does.
func (s *Server) compare(c *pb.Compare) bool {
	kv := s.store.get(string(c.Key))
	if kv == nil {
		if c.Target == pb.Compare_VALUE {
			return false
		}
		kv = &mvccpb.KeyValue{}
	}
	var order int
	switch c.Target {
	case pb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_CREATE:
		order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	default:
		return order < 0
	}
}

// checkLeases refuses operations that put keys on leases that are not there.
func (s *Server) checkLeases(ops []*pb.RequestOp) error {
	for _, op := range ops {
		if put := op.GetRequestPut(); put != nil && put.Lease != 0 && s.leases[put.Lease] == nil {
			return rpctypes.ErrGRPCLeaseNotFound
		}
	}
	return nil
}

// checkTxn refuses what etcd refuses before it looks at any key, and what is
// not offered.
func checkTxn(r *pb.TxnRequest) error {
	if len(r.Compare) > MaxTxnOps || len(r.Success) > MaxTxnOps || len(r.Failure) > MaxTxnOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.RangeEnd) > 0 {
			return notOffered("comparing a range")
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if err := checkOp(op); err != nil {
				return err
			}
		}
		if err := checkOverlaps(ops); err != nil {
			return err
		}
	}
	return nil
}

func checkOp(op *pb.RequestOp) error {
	switch {
	case op.GetRequestPut() != nil:
		return checkPut(op.GetRequestPut())
	case op.GetRequestDeleteRange() != nil:
		return checkDelete(op.GetRequestDeleteRange())
	case op.GetRequestRange() == nil:
		return notOffered("a transaction inside a transaction")
	case op.GetRequestRange().Revision != 0:
		return notOffered("reading the past inside a transaction")
	}
	return checkRange(op.GetRequestRange())
}

// checkOverlaps refuses to change a key twice in one transaction.
func checkOverlaps(ops []*pb.RequestOp) error {
	put := make(map[string]bool)
	for _, op := range ops {
		if r := op.GetRequestPut(); r != nil {
			if put[string(r.Key)] {
				return rpctypes.ErrGRPCDuplicateKey
			}
			put[string(r.Key)] = true
		}
	}
	for _, op := range ops {
		if r := op.GetRequestDeleteRange(); r != nil {
			for key := range put {
				if within(key, string(r.Key), string(r.RangeEnd)) {
					return rpctypes.ErrGRPCDuplicateKey
				}
			}
		}
	}
	return nil
}

// within reports whether a key lies in a range of the protocol.
func within(key, from, end string) bool {
	switch end {
	case "":
		return key == from
	case "\x00":
		return key >= from
	}
	return from <= key && key < end
}

func checkRange(r *pb.RangeRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.SortOrder == pb.RangeRequest_DESCEND || r.SortTarget != pb.RangeRequest_KEY:
		return notOffered("sorting")
	case r.MinModRevision|r.MaxModRevision|r.MinCreateRevision|r.MaxCreateRevision != 0:
		return notOffered("filtering by revision")
	}
	return nil
}

func checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue || r.IgnoreLease:
		return notOffered("a put that keeps value or lease")
	}
	return nil
}

func checkDelete(r *pb.DeleteRangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// puts reports whether a transaction may put anything.
func puts(r *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if op.GetRequestPut() != nil {
				return true
			}
		}
	}
	return false
}
