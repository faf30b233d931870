package trace

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestStats(t *testing.T) {
	tests := []struct {
		name  string
		trace *Trace
		want  Stats
	}{
		{"empty", &Trace{}, Stats{}},
		{"one request", traceOf([]BlockID{1, 2}), Stats{Requests: 1, References: 2, Distinct: 2}},
		{
			"a conversation", traceOf([]BlockID{0, 1}, []BlockID{0, 1, 2}, []BlockID{0, 1, 3}),
			Stats{Requests: 3, References: 8, Distinct: 4, HitRate: 0.5, Duration: 2 * time.Second},
		},
		{
			"starts late", &Trace{Requests: []Request{{At: time.Hour, Blocks: []BlockID{7}}, {At: 2 * time.Hour, Blocks: []BlockID{7}}}},
			Stats{Requests: 2, References: 2, Distinct: 1, HitRate: 0.5, Duration: time.Hour},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.trace.Stats(); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A cache with room for all blocks is endless, a smaller one is a plain list of the blocks by their last use.
func TestLRUHitRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := smallTrace(rt)
		s := tr.Stats()
		if got := lruHitRate(tr, s.Distinct+1); got < s.HitRate-1e-9 || got > s.HitRate+1e-9 {
			rt.Errorf("room for all: got %v, want the endless cache's %v", got, s.HitRate)
		}
		size := rapid.IntRange(-1, s.Distinct).Draw(rt, "size")
		if got, want := lruHitRate(tr, size), plainLRU(tr, size); got != want {
			rt.Errorf("%d blocks: got %v, want %v", size, got, want)
		}
	})
}

func plainLRU(t *Trace, size int) float64 {
	var cached []BlockID
	hits, refs := 0, 0
	for _, r := range t.Requests {
		for _, b := range r.Blocks {
			refs++
			if i := slices.Index(cached, b); i >= 0 {
				hits++
				cached = slices.Delete(cached, i, i+1)
			}
			cached = append(cached, b)
			cached = cached[max(0, len(cached)-max(0, size)):]
		}
	}
	if refs == 0 {
		return 0
	}
	return float64(hits) / float64(refs)
}
