package metrics

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// Scrapes go on while calls, commits and polls do, and while etcd is away.
func TestScrapesDisturbNobody(t *testing.T) {
	r := newRig(t)
	r.away = true
	r.status.Self.Role = promote.Standby // so that the journal's end is asked for
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: got %v, want context.Canceled", err)
		}
	})
	for range 4 {
		running.Go(func() {
			for range 20 {
				if _, err := r.registry.Gather(); err != nil {
					t.Error(err)
				}
				_ = r.Summary()
				r.Call(t.Context(), "/a.B/C", codes.OK, time.Millisecond)
			}
		})
	}
	for _, key := range []string{"x", "y", "z"} {
		r.put(100, key)
		r.p.Pass(time.Second)
	}
	cancel()
	running.Wait()
}

// BenchmarkScrape is what a scrape takes on a node with 200 hosts.
func BenchmarkScrape(b *testing.B) {
	r := newRig(b)
	for n := range 200 {
		id := [16]byte{2, byte(n)}
		spec := segment.Spec{ID: id, Name: fmt.Sprint("host", n), Base: uint64(n+1) << 40, Size: 1 << 30, Endpoint: "b:1", Client: id}
		if err := r.master.MountSegment(b.Context(), spec); err != nil {
			b.Fatal(err)
		}
	}
	r.poll(b.Context(), true)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
