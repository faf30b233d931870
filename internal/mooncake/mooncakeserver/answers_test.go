package mooncakeserver_test

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
)

// putLong puts keys with a replica in each of so many segments whose endpoints are as long as
// can be.
func putLong(t *testing.T, c *mooncakeclient.Conn, segments byte, keys ...string) {
	t.Helper()
	for i := range segments {
		more := spec(10 + i)
		more.Name, more.Endpoint = fmt.Sprint("more ", i), strings.Repeat("e", metadata.MaxNameBytes)
		expect(t, "MountSegment", ask(t, c, c.Generation.MountSegment, mooncake.Args{Client: client(7), Segment: more}), errs.OK)
	}
	for _, key := range keys {
		start := mooncake.Args{Client: client(7), Key: key, Size: 1, Config: long(segments)}
		expect(t, "PutStart", ask(t, c, c.Generation.PutStart, start), errs.OK)
		expect(t, "PutEnd", ask(t, c, c.Generation.PutEnd, mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: key}}), errs.OK)
	}
}

// long is for a replica in each of the segments of putLong.
func long(segments byte) mooncake.ReplicateConfig {
	c := mooncake.ReplicateConfig{Replicas: uint64(segments)}
	for i := range segments {
		c.Preferred = append(c.Preferred, fmt.Sprint("more ", i))
	}
	return c
}

// A few KiB of keys cannot ask for more than the memory there is for answers; the connection
// goes on, and so does who asks for less.
func TestAnswersAreBounded(t *testing.T) {
	const segments, items = 8, 4_000 // 35 MB
	n := primary(t)
	c := n.dial(t, "head")
	g := c.Generation
	putLong(t, c, segments, "a")
	for _, r := range ask(t, c, g.BatchGetReplicaList, mooncake.Args{Keys: slices.Repeat([]string{"a"}, items)}) {
		if r.Failure != errs.InvalidParams.Number() {
			t.Fatalf("of %d keys one got %d, want INVALID_PARAMS", items, r.Failure)
		}
	}
	if log := n.log.String(); !strings.Contains(log, "more bytes than one host may take; ask for less at once") {
		t.Errorf("the log is %s; want why, and what to do", log)
	}
	for _, r := range ask(t, c, g.BatchGetReplicaList, mooncake.Args{Keys: slices.Repeat([]string{"a"}, 300)}) {
		if r.Failure != 0 || len(r.Value.Replicas) != segments {
			t.Fatalf("of 300 keys one got %d and %d replicas, want %d", r.Failure, len(r.Value.Replicas), segments)
		}
	}
}

// Reservations whose answer would be too large are given up: their client gets them when it
// asks for less.
func TestAnswersOfPutsAreBounded(t *testing.T) {
	const segments, items = 8, 4_000
	n := primary(t)
	c := n.dial(t, "head")
	g := c.Generation
	putLong(t, c, segments)
	puts := mooncake.Args{Client: client(7), Config: long(segments)}
	for i := range items {
		puts.Keys, puts.Sizes = append(puts.Keys, fmt.Sprint("k", i)), append(puts.Sizes, 1)
	}
	for _, r := range ask(t, c, g.BatchPutStart, puts) {
		if r.Failure != errs.InvalidParams.Number() {
			t.Fatalf("of %d puts one got %d, want INVALID_PARAMS", items, r.Failure)
		}
	}
	put(t, c, 7, "a")
	upserts := puts
	upserts.Keys, upserts.Sizes = append([]string{"a"}, puts.Keys...), append([]uint64{1}, puts.Sizes...)
	for _, r := range ask(t, c, g.BatchUpsertStart, upserts) { // of a nothing is left
		if r.Failure != errs.Unresolved.Number() {
			t.Fatalf("of %d upserts one got %d, want that its outcome is not known", items+1, r.Failure)
		}
	}
	puts.Keys, puts.Sizes = puts.Keys[:100], puts.Sizes[:100]
	for _, r := range ask(t, c, g.BatchPutStart, puts) {
		if r.Failure != 0 || len(r.Value.Replicas) != segments {
			t.Fatalf("of 100 puts one got %d and %d replicas, want %d", r.Failure, len(r.Value.Replicas), segments)
		}
	}
}

// An event loop makes no large answers, and looks up no more than some keys, while others
// wait for it.
func TestLargeBatchesHoldUpNobody(t *testing.T) {
	n := primary(t)
	c := n.dial(t, "head")
	putLong(t, c, 8, "a")
	var onLoop atomic.Bool // the newest lookup
	look := func() { onLoop.Store(strings.Contains(string(debug.Stack()), "(*Conn).turn(")) }
	for _, keys := range [][]string{slices.Repeat([]string{"absent"}, 140), slices.Repeat([]string{"a"}, 100)} {
		for range 10 {
			n.pause.Store(&look)
			ask(t, c, c.Generation.BatchGetReplicaList, mooncake.Args{Keys: keys})
			n.pause.Store(nil)
			if onLoop.Load() {
				t.Fatalf("%d keys %q: got them looked up on an event loop, want it elsewhere: others wait for the loop", len(keys), keys[0])
			}
		}
	}
}
