package service_test

import (
	"fmt"
	"testing"

	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// BenchmarkPut measures a whole put and its removal, without a journal: what is
// left is deciding, queueing and applying.
func BenchmarkPut(b *testing.B) {
	for _, batch := range []int{1, 128} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			f := newFixture(b)
			items, refs, keys := make([]service.PutItem, batch), make([]service.UpdateItem, batch), make([]string, batch)
			for i := range keys {
				keys[i] = fmt.Sprintf("block/%032d", i)
				items[i], refs[i] = service.PutItem{Key: keys[i], Size: 100}, service.UpdateItem{Key: keys[i]}
			}
			b.ReportAllocs()
			for b.Loop() {
				_, failed, err := f.BatchPutStart(b.Context(), start(1), items)
				fail(b, failed, err)
				failed, err = f.BatchPutEnd(b.Context(), update(1), refs)
				fail(b, failed, err)
				failed, err = f.BatchRemove(b.Context(), service.RemoveRequest{Tenant: metadata.DefaultTenant, Force: true}, keys)
				fail(b, failed, err)
				if f.p.Store.Stats().Quarantined > 1<<19 {
					b.StopTimer()
					f.p.Pass(params.HoldTime())
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}

func fail(b *testing.B, failed []error, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	for _, err := range failed {
		if err != nil {
			b.Fatal(err)
		}
	}
}
