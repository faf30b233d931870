package console

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// A day and more is recorded in far less than 16 MiB, and the last 24 hours are there.
func TestRecorderKeepsADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := int64(0)
		r := &Recorder{Now: time.Now, Read: func() Reading {
			n++
			role := []string{"primary", "fenced"}[n/300%2]
			read := Reading{Role: role, Gets: 100 * n, Hits: 90 * n, Saves: n / 7, Loads: int(n / 7), Puts: Latency{Count: uint64(n), Bounds: []float64{1}, Counts: []uint64{uint64(n)}}}
			if role == "fenced" {
				read.Obstacle = strings.Repeat("w", 10_000)
			}
			return read
		}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		before := heap()
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(49 * time.Hour)
		synctest.Wait()
		grown := heap() - before
		if grown > 6<<20 {
			t.Errorf("the recording takes %d bytes, want at most 6 MiB", grown)
		}
		t.Logf("49 hours: %d bytes, %d a sample", grown, unsafe.Sizeof(sample{}))
		now := time.Now()
		s := r.series(now.Add(-24*time.Hour), now, maxSteps)
		if len(s.At) < maxSteps-1 || len(s.At) > maxSteps+1 || *s.Hits[0] != 0.9 || *s.Gets[1] != 100 || *s.Puts[1] != 1 {
			t.Errorf("24 hours: %d steps, want about %d with a hit rate of 0.9 and a put a second", len(s.At), maxSteps)
		}
		if oldest := s.At[0]; oldest > now.Add(-24*time.Hour+3*time.Minute).Unix() {
			t.Errorf("the oldest step is of %v, want it a day ago", time.Unix(oldest, 0))
		}
		marks, _, _ := r.noted(now.Add(-24*time.Hour), now)
		if saves := r.marks["snapshot"]; len(saves) == 0 || saves[0].at.After(now.Add(-24*time.Hour)) {
			t.Errorf("of state files there are %d marks, want those of 24 hours", len(saves))
		}
		if len(marks) < 2*24*60*60/(300+int(savesApart/time.Second)) {
			t.Errorf("%d marks in 24 hours are too few", len(marks))
		}
		if len(r.marks["role"]) > maxMarks || len(r.marks["load"]) != maxMarks || len(r.gaps) != maxGaps || len(r.gaps[0].Cause) > maxText+3 {
			t.Errorf("%d marks, %d gaps with %d bytes of text: want %d, %d and at most %d", len(r.marks), len(r.gaps), len(r.gaps[0].Cause), maxMarks, maxGaps, maxText)
		}
		stop()
		if err := <-ended; err == nil {
			t.Error("Run ended without the error of its context")
		}
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What changes is noted once, with its time.
func TestRecorderNotesChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := Reading{Role: "standby", Primary: "a"}
		r := &Recorder{Now: time.Now, Read: func() Reading { return read }}
		step := func(change func()) {
			change()
			r.record()
			time.Sleep(sampleEvery)
		}
		begun := time.Now()
		step(func() {})
		step(func() { read.Obstacle = "it waits" })
		if g := r.open(); g == nil || g.Cause != "it waits" {
			t.Errorf("while nobody serves: got %+v, want a gap that lasts", g)
		}
		step(func() { read.Obstacle = "etcd is away" })
		step(func() { read.Obstacle, read.Role, read.Primary = "", "primary", "b" })
		step(func() { read.Saves, read.Loads, read.LoadReason = 1, 2, "start" })
		marks, gaps, start := r.noted(begun, time.Now())
		var texts []string
		for _, m := range marks {
			texts = append(texts, m.kind+": "+m.text)
		}
		want := []string{
			"role: this process started, as standby", "role: this node turned from standby to primary", "role: this node saw b elected",
			"snapshot: this node saved a state file", "load: this node loaded a snapshot: start",
		}
		if got := strings.Join(texts, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
		if len(gaps) != 1 || gaps[0].Cause != "etcd is away" || gaps[0].To.Sub(gaps[0].From) != 2*sampleEvery || start != begun {
			t.Errorf("got the gaps %+v since %v, want one of 2 s", gaps, start)
		}
		if r.open() != nil {
			t.Error("the gap has not ended")
		}
		if _, gaps, _ := r.noted(begun.Add(time.Hour), begun.Add(2*time.Hour)); len(gaps) != 0 {
			t.Errorf("an hour later: got %+v, want no gap", gaps)
		}
	})
}

// A node that starts under a primary learns of it within a sample: that is no gap. One
// that lasts is, from the start on.
func TestStartIsNoGap(t *testing.T) {
	for _, unsure := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			read := Reading{Role: "standby", Obstacle: "no node is elected yet"}
			r := &Recorder{Now: time.Now, Read: func() Reading { return read }}
			begun := time.Now()
			for range unsure {
				r.record()
				time.Sleep(sampleEvery)
			}
			read.Obstacle = ""
			r.record()
			if _, gaps, _ := r.noted(begun, time.Now()); len(gaps) != unsure-1 {
				t.Errorf("%d samples without a primary: got the gaps %+v, want %d", unsure, gaps, unsure-1)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	bounds := []float64{0.001, 0.01, 0.1}
	for name, row := range map[string]struct {
		now, before Latency
		want        float64
	}{
		"nothing":             {Latency{0, bounds, []uint64{0, 0, 0}}, Latency{}, math.NaN()},
		"nothing since":       {Latency{9, bounds, []uint64{9, 9, 9}}, Latency{9, bounds, []uint64{9, 9, 9}}, math.NaN()},
		"half of a bucket":    {Latency{10, bounds, []uint64{0, 10, 10}}, Latency{}, 0.0055},
		"above all bounds":    {Latency{10, bounds, []uint64{0, 0, 0}}, Latency{}, 0.1},
		"only the difference": {Latency{110, bounds, []uint64{100, 100, 110}}, Latency{100, bounds, []uint64{100, 100, 100}}, 0.055},
	} {
		got := row.now.quantile(0.5, row.before)
		if math.Abs(got-row.want) > 1e-9 || math.IsNaN(got) != math.IsNaN(row.want) {
			t.Errorf("%s: got %v, want %v", name, got, row.want)
		}
	}
}

// A day of samples is joined fast enough to be asked for twice a second.
func BenchmarkSeries(b *testing.B) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	r := &Recorder{Now: func() time.Time { now = now.Add(time.Second); return now }, Read: func() Reading { return Reading{Role: "primary"} }}
	for range maxSamples {
		r.record()
	}
	for b.Loop() {
		r.series(now.Add(-24*time.Hour), now, maxSteps)
	}
}
