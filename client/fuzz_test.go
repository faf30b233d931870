package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// FuzzAnswers lets a primary give any answers to calls about objects. The client must return a
// result or an error, and lists as long as the request.
func FuzzAnswers(f *testing.F) {
	var answer []byte
	instead := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if !strings.Contains(method, "ObjectService") && !strings.HasSuffix(method, "BatchQueryIp") && !strings.HasSuffix(method, "Heartbeat") {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		_ = (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(answer, reply.(proto.Message)) // as much as there is
		return nil
	}
	cl := newCluster(f, 1)
	cl.lead(0)
	c := connect(f, client.Config{Addresses: cl.addresses(), Timeout: 100 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(instead)}})
	for _, m := range []proto.Message{
		&pb.BatchGetReplicaListResponse{Header: &pb.ResponseHeader{Term: 1}, Objects: []*pb.ReplicaList{{ObjectId: 7}, nil}, Errors: []*pb.ItemError{{Index: 9}}},
		&pb.PutStartResponse{Object: &pb.ReplicaList{Replicas: []*pb.Replica{{}, {}}}}, &pb.BatchExistKeyResponse{Exists: []bool{true}},
		&pb.GetReplicaListByRegexResponse{NextPageToken: "x"}, &pb.OffloadObjectHeartbeatResponse{},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	keys := []string{"a", "b"}
	f.Fuzz(func(t *testing.T, b []byte) {
		answer = b
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, _ = c.ExistKey(ctx, "a")
		_, _ = c.GetReplicaList(ctx, "a")
		_, _ = c.PutStart(ctx, client.PutItem{Key: "a", Size: 1}, client.PutConfig{})
		_, _ = c.BatchQueryIP(ctx, []uuid.UUID{{1}})
		_, _ = c.OffloadObjectHeartbeat(ctx, true)
		_, _ = c.BatchReplicaClear(ctx, keys, "s")
		if got, err := c.BatchExistKey(ctx, keys); err == nil && len(got) != len(keys) {
			t.Fatalf("answer %x: got %d answers, want one for each of %d keys", b, len(got), len(keys))
		}
		if got, err := c.BatchGetReplicaList(ctx, keys); err == nil && len(got) != len(keys) {
			t.Fatalf("answer %x: got %d lists, want one for each of %d keys", b, len(got), len(keys))
		}
		if got, err := c.BatchRemove(ctx, keys, client.Removal{}); err == nil && len(got) != len(keys) {
			t.Fatalf("answer %x: got %d outcomes, want one for each of %d removals", b, len(got), len(keys))
		}
		for _, err := range c.GetReplicaListByRegex(ctx, "^a", 1) {
			if err != nil {
				break
			}
		}
	})
}

// FuzzFinding lets the leader key, and the only node, name anything as the leader. The client
// must find no leader, or go where they point, and must not search for longer than its deadline.
func FuzzFinding(f *testing.F) {
	cl := newCluster(f, 1)
	cl.lead(0)
	var answer, failure []byte
	instead := func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		var s spb.Status
		if (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(failure, &s) == nil && s.GetCode() != 0 {
			return status.ErrorProto(&s)
		}
		_ = (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(answer, reply.(proto.Message))
		return nil
	}
	nowhere := func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody is there") }
	for _, from := range []rpcerr.Source{{ClusterID: "c", NodeID: "n", Term: 3, Leader: "a:1"}, {}} {
		b, err := proto.Marshal(rpcerr.Status(errs.NotLeader, "ServiceReady", from).Proto())
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(`{"rpc_address":"a:1","term":7}`), []byte(nil), b)
	}
	b, err := proto.Marshal(&pb.ServiceReadyResponse{Header: &pb.ResponseHeader{ClusterId: "c", NodeId: "n", Term: 1 << 60}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"term":-1}`), b, []byte(nil))
	f.Fuzz(func(t *testing.T, key, a, b []byte) {
		answer, failure = a, b
		c, err := client.New(client.Config{
			Addresses: cl.addresses(), Timeout: 20 * time.Millisecond,
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(instead), grpc.WithContextDialer(nowhere)},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if address, term, err := client.ParseLeader(key, 1); err == nil {
			if address == "" || term == 0 {
				t.Fatalf("leader key %s: got %q in term %d, want an address and a term, or an error", key, address, term)
			}
			client.Announce(c, address, term)
		}
		_, _ = c.ExistKey(t.Context(), "a")
		if n := client.Candidates(c); n > 100 {
			t.Fatalf("addresses that the client keeps: got %d, want at most 100", n)
		}
	})
}

// A fuzzedStream is one of which each message is the same.
type fuzzedStream struct {
	grpc.ClientStream
	left    int
	message []byte
}

func (s *fuzzedStream) RecvMsg(m any) error {
	if s.left--; s.left < 0 {
		return io.EOF
	}
	_ = (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(s.message, m.(proto.Message))
	return nil
}

// FuzzKeyEvents has a primary stream any messages about keys.
func FuzzKeyEvents(f *testing.F) {
	cl := newCluster(f, 1)
	cl.lead(0)
	var message []byte
	instead := func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, d, cc, method, opts...)
		return &fuzzedStream{stream, 3, message}, err
	}
	c := connect(f, client.Config{Addresses: cl.addresses(), DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(instead)}})
	for _, m := range []*pb.KvEventsResponse{
		{Header: &pb.ResponseHeader{Term: 1}, Through: &pb.KvPosition{History: "h", Term: 1, Sequence: 2}, Events: []*pb.KvEvent{{Key: "a"}, nil}},
		{Resync: true}, {Header: &pb.ResponseHeader{ClusterId: "other", Term: 9}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		message = b
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		n := 0
		for got, err := range c.KeyEvents(ctx, client.KeyPosition{}) {
			if n++; err != nil || n > 3 {
				break
			}
			_ = got
		}
	})
}
