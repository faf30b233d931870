package service

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// Among many keys that are read once, those that are read often are found, with their share.
func TestHotKeys(t *testing.T) {
	h, random := &HotKeys{}, rand.New(rand.NewPCG(1, 2))
	for i := range 100_000 {
		key := fmt.Sprintf("cold/%d/block", i)
		switch n := random.IntN(100); {
		case n < 10:
			key = "hot/a"
		case n < 15:
			key = "hot/b"
		}
		h.countLocked("default", key, 1)
	}
	keys, prefixes := h.Top(20, 1)
	if len(keys) < 2 || keys[0].Key != "hot/a" || keys[1].Key != "hot/b" || keys[0].Share < 0.09 || keys[0].Share > 0.11 || keys[1].Share < 0.04 || keys[1].Share > 0.06 {
		t.Fatalf("got %+v, want hot/a with 10 %% of the reads and hot/b with 5 %%", keys)
	}
	if len(keys) > 2 && keys[2].Share > 0.01 {
		t.Errorf("a key that was read once: got %+v, want a share of at most 0.01", keys[2])
	}
	if len(prefixes) == 0 || prefixes[0].Key != "hot/" || prefixes[0].Share < 0.14 || prefixes[0].Share > 0.16 {
		t.Errorf("got %+v, want hot/ with 15 %% of the reads", prefixes)
	}
	if n := len(h.keys.place); n != ranked {
		t.Errorf("%d keys are told apart, want %d", n, ranked)
	}
}

// What is not read any more cools down, and another history begins anew.
func TestHotKeysCoolDown(t *testing.T) {
	h, minute := &HotKeys{}, metadata.Time(time.Minute.Milliseconds())
	for range 64 {
		h.countLocked("t", "old", minute)
	}
	for range 64 {
		h.countLocked("t", "new", 4*minute)
	}
	if keys, _ := h.Top(9, 4*minute); len(keys) != 2 || keys[0].Key != "new" || keys[1].Share > 0.2 {
		t.Errorf("got %+v, want new first, and little of old", keys)
	}
	if keys, _ := h.Top(9, 20*minute); len(keys) != 0 {
		t.Errorf("an hour later: got %+v, want none", keys)
	}
	h.countLocked("t", "a", 3)
	h.countLocked("t", "a", 3)
	if keys, _ := h.Top(9, 3); len(keys) != 1 || keys[0].Key != "a" {
		t.Errorf("after the cluster time went back: got %+v, want a", keys)
	}
}

// Reads are counted by chance; without a sketch, and with a key that is too long, never.
func TestHotKeysSample(t *testing.T) {
	h := &HotKeys{}
	for range 64_000 {
		h.read("t", "key", 1)
	}
	if h.samples < 800 || h.samples > 1200 {
		t.Errorf("%d of 64,000 reads were counted, want about 1,000", h.samples)
	}
	before := h.samples
	for range 4000 {
		h.read("t", strings.Repeat("x", maxHotKey+1), 1)
		(*HotKeys)(nil).read("t", "key", 1)
	}
	if h.samples != before {
		t.Errorf("reads of keys that are too long: got %d counted, want none", h.samples-before)
	}
}

func BenchmarkHotKeysRead(b *testing.B) {
	h := &HotKeys{}
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprintf("model-x/run-%d/block-%d", i%7, i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.Int(); pb.Next(); i++ {
			h.read("default", keys[i%len(keys)], 1)
		}
	})
}
