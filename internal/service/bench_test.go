package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
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

// BenchmarkAddresses measures BatchQueryIp for a client with n segments, each at a host of
// its own.
func BenchmarkAddresses(b *testing.B) {
	for _, n := range []int{1 << 13, 1 << 16} {
		f := newFixture(b)
		if err := f.ReMountSegment(b.Context(), owner(2), manySegments(n)); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("segments=%d", n), func(b *testing.B) {
			for b.Loop() {
				if ips, err := f.BatchQueryIp(b.Context(), []segment.ClientID{owner(2)}); err != nil || len(ips[owner(2)]) != n {
					b.Fatal(len(ips[owner(2)]), err)
				}
			}
		})
	}
}

// BenchmarkOverQuota measures a put that breaks its tenant's quota among n objects:
// one that evicts another object, and one that finds nothing to evict.
func BenchmarkOverQuota(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		f := newFixture(b, withTenants)
		spec := segment.Spec{ID: segment.ID{2}, Name: "b", Base: 1 << 40, Size: 1 << 32, Endpoint: "b:1", Client: owner(1)}
		if err := f.MountSegment(b.Context(), spec); err != nil {
			b.Fatal(err)
		}
		f.fill(b, "evictable", n/2)
		f.fill(b, "leased", n/2)
		f.fill(b, "small", 100)
		f.p.Pass(time.Minute)
		for tenant, n := range map[string]int{"leased": n / 2, "small": 100} {
			for i := range n {
				if _, err := f.GetReplicaList(b.Context(), tenant, fmt.Sprint(i)); err != nil {
					b.Fatal(err)
				}
			}
		}
		f.p.Scan()
		for tenant, kind := range map[string]errs.Kind{"evictable": errs.OK, "leased": errs.TenantQuotaExceeded, "small": errs.TenantQuotaExceeded} {
			put := func(b *testing.B, key string) {
				if err := f.putFor(b, tenant, 100, key); errs.KindOf(err) != kind {
					b.Fatal(err)
				}
			}
			put(b, "first")
			b.Run(fmt.Sprintf("objects=%d/%s", n, tenant), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					put(b, fmt.Sprint(b.N, "-", i))
				}
			})
		}
	}
}

// fill puts n objects, which are the whole quota of a tenant.
func (f *fixture) fill(b *testing.B, tenant string, n int) {
	f.quota(b, tenant, uint64(n)*100)
	for at := 0; at < n; {
		keys := make([]string, min(n-at, 1000))
		for i := range keys {
			keys[i] = fmt.Sprint(at)
			at++
		}
		if err := f.putFor(b, tenant, 100, keys...); err != nil {
			b.Fatal(err)
		}
		f.p.Idle(time.Millisecond)
	}
}
