package bench

import (
	"testing"
	"time"
)

func TestCommits(t *testing.T) {
	got, err := RunCommits(t.Context(), CommitOptions{Dir: t.TempDir(), Callers: []int{2}, Duration: 200 * time.Millisecond, Bytes: 700})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Steps) != 4 {
		t.Fatalf("got %d steps, want 4", len(got.Steps))
	}
	for i, s := range got.Steps {
		t.Logf("%+v", s)
		if s.PerSecond <= 0 || s.P50 <= 0 || s.P50 > s.P99 || s.CPU < 0 || (i >= 2) != (s.CommitsPerSecond > 0) {
			t.Errorf("got %+v, want something done, with ascending latencies; commits of changes alone", s)
		}
	}
}
