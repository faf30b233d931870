package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
)

// FuzzAnswers has a primary answer anything to calls about objects: the client returns what
// can be understood or an error, and lists as long as what was asked for.
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
			t.Fatalf("%x: %d answers to %d keys", b, len(got), len(keys))
		}
		if got, err := c.BatchGetReplicaList(ctx, keys); err == nil && len(got) != len(keys) {
			t.Fatalf("%x: %d lists for %d keys", b, len(got), len(keys))
		}
		if got, err := c.BatchRemove(ctx, keys, client.Removal{}); err == nil && len(got) != len(keys) {
			t.Fatalf("%x: %d outcomes of %d removals", b, len(got), len(keys))
		}
		for _, err := range c.GetReplicaListByRegex(ctx, "^a", 1) {
			if err != nil {
				break
			}
		}
	})
}
