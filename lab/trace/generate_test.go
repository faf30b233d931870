package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// A change of this sum is a change of every generated trace: measure again and correct the figures in shape_test.go.
func TestGenerateIsFixedByItsSeed(t *testing.T) {
	const want = "7e61a01e024916defeccb5fa2709b3fc1a9981d27370501c06aabd79b3896470"
	sum := sha256.Sum256(written(t, Generate(Options{Seed: 1, Requests: 500})))
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestGenerate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{Seed: rapid.Uint64().Draw(rt, "seed"), Requests: rapid.IntRange(1, 400).Draw(rt, "requests")}
		tr := Generate(o)
		if !reflect.DeepEqual(tr, Generate(o)) {
			rt.Errorf("two traces of %+v differ, want them equal", o)
		}
		if len(tr.Requests) != o.Requests || tr.Requests[0].At != 0 {
			rt.Errorf("got %d requests from %v on, want %d from 0 on", len(tr.Requests), tr.Requests[0].At, o.Requests)
		}
		requireShared(rt, tr)
		previous := tr.Requests[0]
		for i, r := range tr.Requests {
			if r.At < previous.At || r.At%tick != 0 {
				rt.Errorf("request %d: got an arrival at %v after %v, want a multiple of %v that is not before", i, r.At, previous.At, tick)
			}
			if want := int(r.InputTokens+BlockTokens-1) / BlockTokens; len(r.Blocks) != want || r.InputTokens > maxInput {
				rt.Errorf("request %d: got %d blocks for %d tokens, want %d blocks and at most %d tokens", i, len(r.Blocks), r.InputTokens, want, maxInput)
			}
			previous = r
		}
	})
}

func TestGenerateDefaults(t *testing.T) {
	for _, requests := range []int{0, -1} {
		if got := len(Generate(Options{Requests: requests}).Requests); got != DefaultRequests {
			t.Errorf("%d requests: got %d, want %d", requests, got, DefaultRequests)
		}
	}
	if reflect.DeepEqual(Generate(Options{Seed: 1}), Generate(Options{Seed: 2})) {
		t.Error("seeds 1 and 2: got equal traces, want different ones")
	}
}

// requireShared checks what block ids mean: equal ids stand behind equal prefixes, a request's new blocks come after all
// that it shares, and blocks are numbered as they appear.
func requireShared(t rapid.TB, tr *Trace) {
	t.Helper()
	const none = BlockID(1<<64 - 1)
	before := map[BlockID]BlockID{}
	for i, r := range tr.Requests {
		previous := none
		for _, b := range r.Blocks {
			want, seen := before[b]
			if !seen {
				if b != BlockID(len(before)) {
					t.Errorf("request %d: got new block %d, want %d", i, b, len(before))
				}
				want = previous
				before[b] = previous
			}
			if previous != want {
				t.Errorf("request %d: block %d: got %d before it, want %d as earlier", i, b, previous, want)
			}
			previous = b
		}
	}
}
