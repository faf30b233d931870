package metadata_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

var scale = flag.Int("metadata.scale", 1_000_000, "objects of the larger ones of BenchmarkMemory, BenchmarkBatch and BenchmarkPauses")

// resident returns the bytes of memory that this process has, of Go's heap and beside it.
func resident(tb testing.TB) uint64 {
	tb.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Skip("needs /proc")
	}
	for line := range bytes.Lines(status) {
		if field, is := bytes.CutPrefix(line, []byte("VmRSS:")); is {
			kib, err := strconv.ParseUint(string(bytes.Fields(field)[0]), 10, 64)
			if err != nil {
				tb.Fatal(err)
			}
			return kib << 10
		}
	}
	tb.Fatal("no VmRSS")
	return 0
}

// BenchmarkMemory reports the bytes that an object takes, its key included, of all
// memory of the process.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		debug.FreeOSMemory()
		before := resident(b)
		s := metadata.New(metadata.Options{})
		fillStore(b, s, *scale)
		debug.FreeOSMemory()
		b.ReportMetric(float64(resident(b)-before)/float64(*scale), "bytes/object")
		b.ReportMetric(float64(resident(b))/1e6, "MB-RSS")
		runtime.KeepAlive(s)
	}
}

// BenchmarkBatch is a batch of 128 lookups, of keys in random order that are fresh in the
// cache, as if the network had brought them. It reports the time of a key.
func BenchmarkBatch(b *testing.B) {
	const batch = 128
	for _, n := range []int{100_000, *scale} {
		s := metadata.New(metadata.Options{})
		fillStore(b, s, n)
		now, leases := s.Position().Time+1_000_000, leases(s)
		random := rand.New(rand.NewPCG(1, 2))
		run := func(name string, one func(keys *metadata.Batch, key string, i int)) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				requests, took := make([]string, batch), time.Duration(0)
				for b.Loop() {
					for i := range requests {
						requests[i] = benchKey(random.IntN(n))
					}
					start := time.Now()
					keys := s.Batch("default", requests)
					for i, key := range requests {
						one(keys, key, i)
					}
					took += time.Since(start)
				}
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*batch), "ns/key")
				b.ReportMetric(0, "ns/op") // most of it made the keys
			})
		}
		run("exists", func(keys *metadata.Batch, _ string, i int) {
			if !leases.BatchExists(keys, i, now) {
				b.Fatal("an object is missing")
			}
		})
		run("get", func(keys *metadata.Batch, _ string, i int) {
			if _, _, err := leases.BatchGetReplicaList(keys, i, now); err != nil {
				b.Fatal(err)
			}
		})
		run("getOneByOne", func(_ *metadata.Batch, key string, _ int) {
			if _, _, err := leases.GetReplicaList("default", key, now); err != nil {
				b.Fatal(err)
			}
		})
		runtime.KeepAlive(s)
	}
}

// BenchmarkPauses reads while garbage is collected, and reports for how long the
// collector stopped the program, how long a cycle took, and the longest reads.
func BenchmarkPauses(b *testing.B) {
	s := metadata.New(metadata.Options{})
	fillStore(b, s, *scale)
	now, leases := s.Position().Time+1_000_000, leases(s)
	runtime.GC()
	var before, after debug.GCStats
	debug.ReadGCStats(&before)
	assists := cpuSeconds("/cpu/classes/gc/mark/assist:cpu-seconds")
	var took []time.Duration
	at, began := uint64(0), time.Now()
	for b.Loop() {
		at = at*6364136223846793005 + 1442695040888963407
		key := benchKey(int(at >> 32 % uint64(*scale)))
		start := time.Now()
		if _, _, err := leases.GetReplicaList("default", key, now); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	debug.ReadGCStats(&after)
	cycles := after.NumGC - before.NumGC
	pauses := slices.Sorted(slices.Values(after.Pause[:min(len(after.Pause), int(cycles))]))
	slices.Sort(took)
	if cycles > 0 {
		b.ReportMetric(float64(pauses[len(pauses)*99/100].Microseconds()), "µs-pause-p99")
		b.ReportMetric(float64(pauses[len(pauses)-1].Microseconds()), "µs-pause-max")
	}
	b.ReportMetric(float64(cycles), "cycles")
	b.ReportMetric(100*(cpuSeconds("/cpu/classes/gc/mark/assist:cpu-seconds")-assists)/time.Since(began).Seconds(), "%-assist")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "ns-p99")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "µs-max")
}

func cpuSeconds(name string) float64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}
