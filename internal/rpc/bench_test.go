package rpc_test

import (
	"fmt"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// Allocations are those of client and server together.

func BenchmarkGetReplicaList(b *testing.B) {
	n := newNode(b).mount()
	n.put("k")
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := n.objects.GetReplicaList(b.Context(), &pb.GetReplicaListRequest{Key: "k"}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// A PutStart, and its PutRevoke.
func BenchmarkPutStart(b *testing.B) {
	n := newNode(b).mount()
	b.ReportAllocs()
	for i := range b.N {
		key := fmt.Sprintf("block/%d", i%100)
		r, err := n.objects.PutStart(b.Context(), &pb.PutStartRequest{ClientId: alice, Key: key, Size: 1})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := n.objects.PutRevoke(b.Context(), &pb.PutRevokeRequest{ClientId: alice, Key: key, ObjectId: r.GetObject().GetObjectId()}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBatchGetReplicaList128(b *testing.B) {
	n := newNode(b).mount()
	keys := make([]string, 128)
	for i := range keys {
		keys[i] = fmt.Sprintf("block/%032d", i)
	}
	n.put(keys...)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := n.objects.BatchGetReplicaList(b.Context(), &pb.BatchGetReplicaListRequest{Keys: keys}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N*len(keys))/b.Elapsed().Seconds(), "keys/s")
}
