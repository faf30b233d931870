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

	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/metadata"
)

var scale = flag.Int("metadata.scale", 1_000_000, "objects of the larger ones of BenchmarkMemory, BenchmarkBatch and BenchmarkPauses")

// resident returns the resident memory of this process in bytes, Go's heap included.
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
	tb.Fatal("/proc/self/status: got no line VmRSS, want one")
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

// BenchmarkSnapshot reports what an object takes to encode in a snapshot, and to load: the time
// that passes, and for loading the processor time of all threads as well.
func BenchmarkSnapshot(b *testing.B) {
	s := metadata.New(metadata.Options{})
	fillStore(b, s, *scale)
	var encoding, loading, processor time.Duration
	load := func(step func() error) {
		began, used := time.Now(), processTime(b)
		if err := step(); err != nil {
			b.Fatal(err)
		}
		loading, processor = loading+time.Since(began), processor+processTime(b)-used
	}
	for b.Loop() {
		l := metadata.NewLoader(metadata.Options{})
		var part []byte
		for i := range metadata.SnapshotParts {
			began := time.Now()
			part, _ = s.AppendSnapshotPart(part[:0], i)
			encoding += time.Since(began)
			load(func() error { return l.Add(part) })
		}
		load(func() error {
			_, err := l.Finish()
			return err
		})
	}
	objects := float64(b.N) * float64(*scale)
	b.ReportMetric(float64(encoding.Nanoseconds())/objects, "ns/encoded")
	b.ReportMetric(float64(loading.Nanoseconds())/objects, "ns/loaded")
	b.ReportMetric(float64(processor.Nanoseconds())/objects, "cpu-ns/loaded")
}

// BenchmarkBatch is a batch of 128 lookups, of keys in random order that are fresh in the
// cache, as if the network had brought them. It reports the processor time of a key.
func BenchmarkBatch(b *testing.B) {
	const batch = 128
	for _, n := range []int{100_000, *scale} {
		s := metadata.New(metadata.Options{})
		fillStore(b, s, n)
		now, leases := s.Position().Time+1_000_000, leases(s)
		random := rand.New(rand.NewPCG(1, 2))
		run := func(name string, one func(keys *metadata.Lookups, key string, i int)) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				requests, took := make([]string, batch), time.Duration(0)
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for b.Loop() {
					for i := range requests {
						requests[i] = benchKey(random.IntN(n))
					}
					start := threadTime(b)
					keys := s.Lookups("default", requests)
					for i, key := range requests {
						one(keys, key, i)
					}
					took += threadTime(b) - start
				}
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*batch), "ns/key")
				b.ReportMetric(0, "ns/op") // most of it made the keys
			})
		}
		run("exists", func(keys *metadata.Lookups, _ string, i int) {
			if !leases.BatchExists(keys, i, now) {
				b.Fatal("looking up a key that was put: got that it does not exist, want that it does")
			}
		})
		run("get", func(keys *metadata.Lookups, _ string, i int) {
			if _, _, err := leases.BatchGetReplicaList(keys, i, now); err != nil {
				b.Fatal(err)
			}
		})
		run("getOneByOne", func(_ *metadata.Lookups, key string, _ int) {
			if _, _, err := leases.GetReplicaList("default", key, now); err != nil {
				b.Fatal(err)
			}
		})
		runtime.KeepAlive(s)
	}
}

// BenchmarkRenewals collects the renewals of all objects, and applies them as they were
// journaled. It reports the processor time of a renewal.
func BenchmarkRenewals(b *testing.B) {
	s := metadata.New(metadata.Options{})
	fillStore(b, s, *scale)
	now, leases := s.Position().Time+1_000_000, leases(s)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var collected, applied time.Duration
	for b.Loop() {
		now += 1_000_000
		for i := range *scale {
			if !leases.Exists("default", benchKey(i), now) {
				b.Fatal("looking up a key that was put: got that it does not exist, want that it does")
			}
		}
		start := threadTime(b)
		changes := marked(s)
		collected += threadTime(b) - start
		start = threadTime(b)
		if _, err := s.Apply(&metadata.Commit{Seq: s.Position().Seq + 1, Term: 1, Time: now, Changes: changes}, nil); err != nil {
			b.Fatal(err)
		}
		applied += threadTime(b) - start
		marked(s)
	}
	all := float64(b.N * *scale)
	b.ReportMetric(float64(collected.Nanoseconds())/all, "ns/collected")
	b.ReportMetric(float64(applied.Nanoseconds())/all, "ns/applied")
	b.ReportMetric(0, "ns/op") // most of it read
}

// BenchmarkPauses reads one key at a time while garbage is collected, more often than
// necessary. It reports the length of the collector's pauses, the share of CPU time that the
// reader spent on assisting it, and the slowest reads.
func BenchmarkPauses(b *testing.B) {
	for _, n := range []int{100_000, *scale} {
		s := metadata.New(metadata.Options{})
		fillStore(b, s, n)
		b.Run(strconv.Itoa(n), func(b *testing.B) { pauses(b, s, n) })
		runtime.KeepAlive(s)
	}
}

func pauses(b *testing.B, s *metadata.Store, n int) {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	now, leases := s.Position().Time+1_000_000, leases(s)
	runtime.GC()
	var before, after debug.GCStats
	debug.ReadGCStats(&before)
	assists, random := cpuSeconds("/cpu/classes/gc/mark/assist:cpu-seconds"), rand.New(rand.NewPCG(1, 2))
	var took []time.Duration
	began := time.Now()
	for b.Loop() {
		key := benchKey(random.IntN(n))
		start := time.Now()
		if _, _, err := leases.GetReplicaList("default", key, now); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	ended := time.Since(began)
	debug.ReadGCStats(&after)
	stops := after.Pause[:min(len(after.Pause), int(after.NumGC-before.NumGC))]
	slices.Sort(stops)
	slices.Sort(took)
	if len(stops) > 0 {
		b.ReportMetric(float64(stops[len(stops)/2].Microseconds()), "µs-pause-p50")
		b.ReportMetric(float64(stops[len(stops)*99/100].Microseconds()), "µs-pause-p99")
	}
	b.ReportMetric(float64(len(stops)), "cycles")
	b.ReportMetric(100*(cpuSeconds("/cpu/classes/gc/mark/assist:cpu-seconds")-assists)/ended.Seconds(), "%-assist")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "ns-p99")
	b.ReportMetric(float64(took[len(took)*9999/10000].Nanoseconds()), "ns-p99.99")
}

// threadTime returns the CPU time of this thread, which excludes that of other threads on a busy
// machine.
func threadTime(tb testing.TB) time.Duration { return clockTime(tb, unix.CLOCK_THREAD_CPUTIME_ID) }

// processTime returns the CPU time of all threads of this process.
func processTime(tb testing.TB) time.Duration { return clockTime(tb, unix.CLOCK_PROCESS_CPUTIME_ID) }

func clockTime(tb testing.TB, clock int32) time.Duration {
	tb.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(t.Nano())
}

func cpuSeconds(name string) float64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}
