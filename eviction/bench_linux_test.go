package eviction_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

var (
	scale    = flag.Int("eviction.scale", 1_000_000, "objects that BenchmarkEviction evicts")
	passSize = flag.Int("eviction.pass", 512, "objects of one pass of BenchmarkEviction")
)

// BenchmarkEviction evicts all objects of a store, in passes: it selects victims as the
// primary does, and applies the cutoffs. It reports the time of an object, and how long a
// pass takes.
func BenchmarkEviction(b *testing.B) {
	var selects, applies []time.Duration
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	evicted := 0
	for b.Loop() {
		p := lonetest.Start(b, metadata.Options{}, params, 1<<30)
		fill(b, p, *scale)
		for {
			began := threadTime(b)
			pass := eviction.Select(p.Store, eviction.Bounds{Objects: *passSize})
			selected := threadTime(b)
			if pass == nil {
				break
			}
			p.Commit(pass.Cutoff) // on this thread
			selects, applies = append(selects, selected-began), append(applies, threadTime(b)-selected)
			evicted += pass.Victims
		}
	}
	report := func(what string, times []time.Duration) {
		sum := time.Duration(0)
		for _, t := range times {
			sum += t
		}
		slices.Sort(times)
		b.ReportMetric(float64(sum.Nanoseconds())/float64(evicted), "ns/"+what)
		b.ReportMetric(float64(times[len(times)/2].Microseconds()), "µs-p50-"+what)
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "µs-p99-"+what)
	}
	report("selected", selects)
	report("applied", applies)
	b.ReportMetric(0, "ns/op") // most of it puts
}

// threadTime returns the processor time of this thread, which excludes that of other
// threads on a busy machine.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// fill puts n objects with keys of 40 bytes into 128 segments, and renews their leases in
// random order, 200 in a millisecond.
func fill(b *testing.B, p *lonetest.Primary, n int) {
	b.Helper()
	for i := range 127 {
		mount, err := p.Store.PrepareMount(segment.Spec{
			ID: segment.ID{2, byte(i)}, Name: fmt.Sprintf("host-%d", i), Base: 1 << 32, Size: 1 << 30, Endpoint: fmt.Sprintf("host-%d:1", i), Client: segment.ClientID{2, byte(i)},
		})
		if err != nil {
			b.Fatal(err)
		}
		p.Commit(mount)
	}
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("model-7b/layer-00/block-%016x", i)
	}
	for chunk := range slices.Chunk(keys, 500) {
		var starts, ends []metadata.Change
		for _, key := range chunk {
			starts = append(starts, p.PutStart(nil, key))
		}
		p.Commit(starts...)
		for _, key := range chunk {
			ends = append(ends, p.PutEnd(key))
		}
		p.Commit(ends...)
	}
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for chunk := range slices.Chunk(keys, 200) {
		p.Idle(time.Millisecond)
		p.Get(chunk...)
	}
	p.Scan()
	p.Pass(time.Hour)
	for range 2 * n / 1024 {
		p.Store.Tidy(1024)
	}
}
