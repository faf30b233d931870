package metrics

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// Memory of abandoned puts is counted from the discard until it comes free.
func TestDiscardedMemory(t *testing.T) {
	r := newRig(t)
	start := service.PutRequest{Tenant: metadata.DefaultTenant, Client: segment.ClientID{1}, Config: service.PutConfig{Replicas: 1}}
	for range 2 { // the second replaces the first, which is old enough
		if _, err := r.master.PutStart(t.Context(), start, service.PutItem{Key: "x", Size: 1024}); err != nil {
			t.Fatal(err)
		}
		r.p.Pass(31 * time.Second)
	}
	r.values("discarded", map[string]float64{
		"master_put_start_discard_cnt": 1, "master_put_start_discarded_staging_size": 1024, "master_put_start_release_cnt": 0,
	})
	r.p.Pass(600 * time.Second)
	r.p.Commit(&metadata.UseRules{Version: 1})
	r.values("free again", map[string]float64{
		"master_put_start_discard_cnt": 1, "master_put_start_discarded_staging_size": 0, "master_put_start_release_cnt": 1,
	})
}

// State files are what upstream calls snapshots.
func TestSavesAreSnapshots(t *testing.T) {
	r := newRig(t)
	r.status.Saving = promote.Saving{Saves: 1, Failures: 2, Took: 700 * time.Millisecond}
	for range 2 {
		r.poll(t.Context(), false)
	}
	r.values("one save", map[string]float64{"master_snapshot_success": 1, "master_snapshot_fail": 2})
	for _, f := range r.gather() {
		if f.GetName() == "master_snapshot_duration_ms" {
			if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 700 {
				t.Errorf("got %d saves of %v ms, want 1 of 700", h.GetSampleCount(), h.GetSampleSum())
			}
			return
		}
	}
	t.Error("durations of saves: got none shown, want master_snapshot_duration_ms")
}

// Files of Disk replicas are counted with their bytes, as long as they are there.
func TestFileBytes(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"x", "y"} {
		r.p.Commit(r.p.PutStart(func(put *metadata.Put) { put.DiskPath = "/mnt/f" }, key))
		r.p.Commit(r.p.PutEnd(key))
		ref := r.p.Ref(key)
		ref.Selector = metadata.SelectDisk
		e, _, err := r.store.PreparePutEnd(ref, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.p.Commit(e)
	}
	r.values("two files", map[string]float64{"file_cache_nums_": 2, "master_allocated_file_size_bytes": 200})
	if err := r.master.Remove(t.Context(), service.RemoveRequest{Tenant: metadata.DefaultTenant}, "x"); err != nil {
		t.Fatal(err)
	}
	r.values("one is gone", map[string]float64{"file_cache_nums_": 1, "master_allocated_file_size_bytes": 100})
}
