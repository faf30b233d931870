package scalebench

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/cluster"
)

// TestMain makes this binary a child of a cluster, when it was started as one.
func TestMain(m *testing.M) {
	if status, child := cluster.RunChild(); child {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}

// All tasks run, and each goes through what it should.
func TestAllTasks(t *testing.T) {
	for _, ha := range []bool{false, true} {
		o := Options{HA: ha, Objects: 20_000, Least: minLeast, lease: 3 * time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // callers that find no primary would call for ever
		r, err := Run(ctx, o)
		cancel()
		if err != nil {
			t.Fatalf("all tasks with HA %v: got error %v, want none", ha, err)
		}
		if r.BytesPerObject < 50 || r.BytesPerObject > 2000 || r.IdleRSS <= r.EmptyRSS || r.FillPerSecond <= 0 {
			t.Errorf("with HA %v: got %+v, want some hundred bytes an object", ha, r)
		}
		least := map[string]int64{
			"idle": 0, "busy": 0, "renewals": 1000, "state-file": 20_000, "snapshot": 20_000, "handover": 20_000, "kill": 20_000,
			"remove-regex": 2000, "quarantine": 1000, "unmount": 1700, "evict": 300,
		}
		for _, m := range r.Tasks {
			want, known := least[m.Name]
			delete(least, m.Name)
			if !known || m.Items < want || m.Seconds <= 0 || len(m.Calls) != 3 {
				t.Errorf("with HA %v: got %+v, want at least %d items", ha, m, want)
			}
			for _, c := range m.Calls {
				if c.Count == 0 || c.P50 > c.P99 || c.P99 > c.Max || c.Max == 0 {
					t.Errorf("with HA %v, %s: got %+v, want calls with ascending times", ha, m.Name, c)
				}
			}
			takeover := m.Name == "handover" || m.Name == "kill"
			if (m.Phases != nil) != takeover || (m.PeakRSS == 0) != takeover {
				t.Errorf("with HA %v, %s: got phases %v and a peak of %d bytes, want phases only of a takeover, the peak of all others", ha, m.Name, m.Phases, m.PeakRSS)
			}
		}
		if left := map[bool]int{false: 4, true: 0}[ha]; len(least) != left {
			t.Errorf("with HA %v: got no results of %v, want %d tasks left out", ha, least, left)
		}
	}
}

func TestKeys(t *testing.T) {
	k, seen := kind{prefix: "model-7b/layer-00/block-"}, make(map[string]bool)
	for i := range 100_000 {
		key := k.key(i)
		if len(key) != 40 || seen[key] {
			t.Fatalf("key %d is %q: want 40 bytes that no other has", i, key)
		}
		seen[key] = true
	}
}

// The collector's figures come from differences of the runtime's histogram.
func TestCollections(t *testing.T) {
	bucket := func(le string) string { return pauseBuckets + le + `"}` }
	before := map[string]float64{bucket("0.001"): 5, bucket("0.01"): 5, bucket("+Inf"): 5, cyclesMetric: 3}
	after := map[string]float64{bucket("0.001"): 104, bucket("0.01"): 105, bucket("+Inf"): 105, cyclesMetric: 5, assistSeconds: 0.5}
	var m Task
	m.addCollections(before, after)
	if m.Collections != 2 || m.AssistSeconds != 0.5 || m.PauseP99 != 1 || m.PauseMax != 10 {
		t.Errorf("got %+v, want 2 cycles, 0.5 s, and pauses of 1 and 10 ms", m)
	}
}

func TestCheck(t *testing.T) {
	for _, o := range []Options{{Objects: 10, Least: minLeast}, {Objects: minObjects}, {Objects: minObjects, Least: minLeast, Tasks: []string{"idle", "sleep"}}} {
		if o.Check() == nil {
			t.Errorf("options %+v: got no fault, want one", o)
		}
	}
}

// A read that finds nothing is answered: else the callers' batches would count as one long wait
// while objects are evicted, as nearly each of them then has a key that is gone.
func TestMissesAreAnswers(t *testing.T) {
	for err, want := range map[error]bool{nil: true, errs.ObjectNotFound: true, errs.Unavailable: false, io.EOF: false} {
		if got := answer(err) == nil; got != want {
			t.Errorf("a read with the error %v: got answered %v, want %v", err, got, want)
		}
	}
}
