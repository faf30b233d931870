package client_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/understudy-store/understudy/client"
)

// BenchmarkGetReplicaList measures a read through the client, gRPC and loopback, with the
// server in the same process: callers in parallel, one object or 128 at a time.
//
//	go test -run=^$ -bench=GetReplicaList ./client
func BenchmarkGetReplicaList(b *testing.B) {
	_, c := serving(b)
	keys := make([]string, 8192)
	for i := range keys {
		keys[i] = fmt.Sprintf("benchmark/%024d", i)
	}
	put(b, c, keys...)
	var started atomic.Int64 // callers, which begin at different keys
	first := func() int { return int(started.Add(1)) * 1009 }

	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for i := first(); pb.Next(); i++ {
				if _, err := c.GetReplicaList(b.Context(), keys[i%len(keys)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "objects/s")
	})
	b.Run("batch of 128", func(b *testing.B) {
		const size = 128
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for i := first(); pb.Next(); i++ {
				from := i * size % len(keys)
				found, err := c.BatchGetReplicaList(b.Context(), keys[from:from+size])
				if err == nil {
					err = firstError(found)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)*size/b.Elapsed().Seconds(), "objects/s")
	})
}

func firstError(found []client.Found) error {
	for _, f := range found {
		if f.Err != nil {
			return f.Err
		}
	}
	return nil
}
