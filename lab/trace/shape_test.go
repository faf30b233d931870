package trace

import (
	"container/list"
	"math"
	"os"
	"slices"
	"testing"
	"time"
)

// The figures of the conversation trace and of generated ones; of these, mean and range of seeds 0 to 19 with the default
// of 3,000 requests, which refer to 68,400 to 79,200 blocks:
//
//	                    conversation   generated
//	blocks, mean            23.98      24.71    22.80 to 26.39    blocks of a request
//	blocks, 50 %            14         14.6     13 to 16
//	blocks, 90 %            54         55.3     50 to 62
//	blocks, 99 %           167        174      147 to 211
//	blocks, max            247        245      240 to 250
//	new conversations       61.3 %     64.9 %   62.2 to 67.0 %    requests that share at most block 0 with earlier ones
//	endless                 36.6 %     37.1 %   34.4 to 41.2 %    Stats.HitRate
//	LRU 1/2                 36.3 %     37.0 %   34.3 to 41.2 %    hit rate of an LRU cache for half of the distinct blocks,
//	LRU 1/4                 35.4 %     36.3 %   33.9 to 40.4 %    and so on: the part of the references whose
//	LRU 1/10                27.8 %     29.8 %   28.2 to 33.1 %    reuse distance, in distinct blocks, is below
//	LRU 1/50                 7.9 %      9.0 %    7.7 to 10.3 %    that size
//	bursts                   2.48       1.69     1.49 to 2.02     variance to mean of the requests in 30 s
//	second half             53.4 %     52.7 %   50.5 to 54.8 %    requests in the second half of the time
//
// The same names are used here.
var shape = []struct {
	name         string
	of           func(*Trace) float64
	conversation float64 // of the conversation trace
	mean         float64 // how far from that the mean of 20 generated traces may lie
	one          float64 // and how far a single one
}{
	{"blocks, mean", meanBlocks, 23.9797, 1.5, 4},
	{"blocks, 50 %", blocksAt(50), 14, 1, 3},
	{"blocks, 90 %", blocksAt(90), 54, 3, 10},
	{"blocks, 99 %", blocksAt(99), 167, 15, 50},
	{"blocks, max", blocksAt(100), 247, 5, 10},
	{"new conversations", newConversations, 0.6128, 0.04, 0.07},
	{"endless", func(t *Trace) float64 { return t.Stats().HitRate }, 0.3664, 0.01, 0.05},
	{"LRU 1/2", lru(2), 0.3631, 0.01, 0.05},
	{"LRU 1/4", lru(4), 0.3535, 0.015, 0.06},
	{"LRU 1/10", lru(10), 0.2784, 0.025, 0.06},
	{"LRU 1/50", lru(50), 0.0787, 0.015, 0.03},
	{"bursts", burstiness, 2.4774, 0.9, 1.2},
	{"second half", secondHalf, 0.5340, 0.01, 0.035},
}

// TestConversationTrace checks the figures that this package states for the conversation trace. The trace is Mooncake's and
// is not part of this project, so the test runs where somebody has it:
//
//	CONVERSATION_TRACE=conversation_trace.jsonl.gz go test -run ConversationTrace ./lab/trace
func TestConversationTrace(t *testing.T) {
	path := os.Getenv("CONVERSATION_TRACE")
	if path == "" {
		t.Skip("the conversation trace is not part of this project; CONVERSATION_TRACE=FILE runs this test with it")
	}
	start := time.Now()
	tr, err := Load(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("read in %v", time.Since(start))
	want := Stats{Requests: 12031, References: 288500, Distinct: 182790, HitRate: 1 - 182790./288500, Duration: 3536999 * time.Millisecond}
	if got := tr.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	requireShared(t, tr)
	for _, f := range shape {
		got := f.of(tr)
		t.Logf("%-18s %8.4f", f.name, got)
		if math.Abs(got-f.conversation) > 0.00005 {
			t.Errorf("%s: got %.4f, want %.4f", f.name, got, f.conversation)
		}
	}
}

func TestGeneratedShape(t *testing.T) {
	var traces []*Trace
	for seed := range uint64(20) {
		traces = append(traces, Generate(Options{Seed: seed}))
	}
	for _, f := range shape {
		var values []float64
		sum := 0.0
		for seed, tr := range traces {
			got := f.of(tr)
			if math.Abs(got-f.conversation) > f.one {
				t.Errorf("seed %d, %s: got %.4f, want within %.4f of the conversation trace, %.4f", seed, f.name, got, f.one, f.conversation)
			}
			values = append(values, got)
			sum += got
		}
		mean := sum / float64(len(values))
		t.Logf("%-18s %8.4f  from %8.4f to %8.4f", f.name, mean, slices.Min(values), slices.Max(values))
		if math.Abs(mean-f.conversation) > f.mean {
			t.Errorf("mean of %s: got %.4f, want within %.4f of the conversation trace, %.4f", f.name, mean, f.mean, f.conversation)
		}
	}
}

func lru(part int) func(*Trace) float64 {
	return func(t *Trace) float64 { return lruHitRate(t, t.Stats().Distinct/part) }
}

// lruHitRate returns the hit rate, from 0 to 1, of a cache that holds the given number of blocks and drops the one used
// longest ago. The requests are played one after another, their blocks in order; a block that misses is put at once.
func lruHitRate(t *Trace, blocks int) float64 {
	if blocks <= 0 {
		return 0
	}
	var (
		recent     = list.New() // of BlockID, the latest in front
		cached     = make(map[BlockID]*list.Element)
		hits, refs int
	)
	for _, r := range t.Requests {
		refs += len(r.Blocks)
		for _, b := range r.Blocks {
			if e, ok := cached[b]; ok {
				hits++
				recent.MoveToFront(e)
				continue
			}
			if recent.Len() == blocks {
				delete(cached, recent.Remove(recent.Back()).(BlockID))
			}
			cached[b] = recent.PushFront(b)
		}
	}
	if refs == 0 {
		return 0
	}
	return float64(hits) / float64(refs)
}

// blocksAt returns the percentile of the blocks of a request.
func blocksAt(percent int) func(*Trace) float64 {
	return func(t *Trace) float64 {
		var blocks []int
		for _, r := range t.Requests {
			blocks = append(blocks, len(r.Blocks))
		}
		slices.Sort(blocks)
		return float64(blocks[(len(blocks)-1)*percent/100])
	}
}

func meanBlocks(t *Trace) float64 {
	s := t.Stats()
	return float64(s.References) / float64(s.Requests)
}

// newConversations is the share of requests that have no block but the system prompt in common with earlier ones.
func newConversations(t *Trace) float64 {
	seen := map[BlockID]bool{}
	fresh := 0
	for _, r := range t.Requests {
		if !seen[r.Blocks[1]] {
			fresh++
		}
		seen[r.Blocks[1]] = true
	}
	return float64(fresh) / float64(len(t.Requests))
}

// burstiness is the ratio of variance to mean of the number of requests in 30 s. It is 1 for arrivals at random.
func burstiness(t *Trace) float64 {
	const window = 30 * time.Second
	counts := make([]float64, t.Stats().Duration/window) // the last, shorter window is left out
	for _, r := range t.Requests {
		if i := int(r.At / window); i < len(counts) {
			counts[i]++
		}
	}
	var sum, squares float64
	for _, c := range counts {
		sum += c
		squares += c * c
	}
	mean := sum / float64(len(counts))
	return (squares/float64(len(counts)) - mean*mean) / mean
}

// secondHalf is the share of requests that arrive in the second half of the time.
func secondHalf(t *Trace) float64 {
	half := t.Stats().Duration / 2
	late := 0
	for _, r := range t.Requests {
		if r.At > half {
			late++
		}
	}
	return float64(late) / float64(len(t.Requests))
}
