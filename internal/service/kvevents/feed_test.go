package kvevents_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service/kvevents"
	"github.com/understudy-store/understudy/metadata"
)

// A node is a feed with a store that applies what the test makes up.
type node struct {
	*kvevents.Feed
	store   *metadata.Store
	history string
	term    metadata.Term
	seq     metadata.Seq

	sweeping bool
}

func newNode(capacity int) *node {
	n := &node{store: metadata.New(metadata.Options{}), history: "h", term: 1}
	n.Feed = kvevents.New(capacity, func() string { return n.history })
	n.commit()
	return n
}

// commit applies a commit in which keys come, or go if they begin with "-".
func (n *node) commit(keys ...string) {
	n.seq++
	n.see(keys...)
	n.Applied(n.store, n.term, n.seq, n.sweeping)
}

func (n *node) see(keys ...string) {
	for _, key := range keys {
		what := &metadata.MediaChange{Key: strings.TrimPrefix(key, "-"), After: metadata.InMemory}
		if strings.HasPrefix(key, "-") {
			what.Before, what.After = metadata.InMemory, 0
		}
		n.MediaChanged(n.store, n.seq, what)
	}
}

// next reads until nothing comes any more, and returns the keys, "!" for a resync.
func next(t *testing.T, s *kvevents.Subscription) (keys []string, through kvevents.Checkpoint) {
	t.Helper()
	for {
		b, err := s.Next(t.Context(), time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if b.Resync {
			keys = append(keys, "!")
		}
		for _, e := range b.Events {
			sign := ""
			if e.After == 0 {
				sign = "-"
			}
			keys = append(keys, sign+e.Key)
		}
		if !b.Resync && len(b.Events) == 0 && b.Through != (kvevents.Checkpoint{}) {
			return keys, b.Through
		}
	}
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// start subscribes without a position, which begins with a resync.
func (n *node) start(t *testing.T) (*kvevents.Subscription, kvevents.Checkpoint) {
	t.Helper()
	s := n.Subscribe(kvevents.Checkpoint{})
	t.Cleanup(s.Close)
	keys, through := next(t, s)
	want(t, "a first subscription", keys, "!")
	return s, through
}

func (n *node) resume(t *testing.T, p kvevents.Checkpoint) []string {
	t.Helper()
	s := n.Subscribe(p)
	defer s.Close()
	keys, _ := next(t, s)
	return keys
}

// A subscriber gets whole commits, in order, and goes on where it stood, on another node
// too.
func TestResume(t *testing.T) {
	a, b := newNode(100), newNode(100)
	both := func(keys ...string) { a.commit(keys...); b.commit(keys...) }
	both()
	s, _ := a.start(t)
	both("k1", "k2")
	keys, at := next(t, s)
	want(t, "a commit", keys, "k1", "k2")
	if at != (kvevents.Checkpoint{History: "h", Term: 1, Seq: 3}) {
		t.Errorf("the position is %+v, want that of commit 3", at)
	}
	a.seq++
	a.see("half")
	keys, _ = next(t, s)
	want(t, "half a commit", keys)
	a.seq--

	b.commit("-k1", "k3")
	b.term = 2
	b.commit("k4")
	want(t, "on another node, two commits and a term later", b.resume(t, at), "-k1", "k3", "k4")
	want(t, "nothing missed", b.resume(t, kvevents.Checkpoint{History: "h", Term: 2, Seq: 5}))
}

// Who may have missed something begins anew: behind what is kept, in a term in which the
// sequence was not written, ahead of this node, or in another journal.
func TestResyncs(t *testing.T) {
	n := newNode(3)
	n.commit("k1")
	n.commit("k2", "k3")
	n.commit("k4")
	n.term = 2
	n.commit("k5") // gives up k2: positions before commit 3 are too old
	for what, p := range map[string]kvevents.Checkpoint{
		"too old":      {History: "h", Term: 1, Seq: 2},
		"other term":   {History: "h", Term: 1, Seq: 5},
		"ahead":        {History: "h", Term: 2, Seq: 6},
		"other":        {History: "g", Term: 2, Seq: 5},
		"no history":   {Term: 2, Seq: 5},
		"no position":  {},
		"huge numbers": {History: "h", Term: 1<<32 - 1, Seq: 1 << 62},
	} {
		want(t, what, n.resume(t, p), "!")
	}
	want(t, "kept", n.resume(t, kvevents.Checkpoint{History: "h", Term: 1, Seq: 3}), "k4", "k5")
	if got := n.Counts(); got.Resyncs != 7 || got.Subscribers != 0 {
		t.Errorf("counts %+v, want 7 resyncs and no subscriber", got)
	}

	s, _ := n.start(t)
	n.history = "new" // the journal was founded anew under a living subscriber
	n.commit("k6")
	keys, _ := next(t, s)
	want(t, "another journal", keys, "!")
	n.store = metadata.New(metadata.Options{}) // a snapshot replaced the state
	n.commit("k7")
	keys, _ = next(t, s)
	want(t, "another store", keys, "!")
}

// A subscriber that does not read is dropped; it never gets what follows a gap.
func TestSlowSubscriber(t *testing.T) {
	n := newNode(4)
	s, at := n.start(t)
	n.commit("k1", "k2", "k3", "k4")
	n.commit("k5")
	if _, err := s.Next(t.Context(), time.Millisecond); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("a subscriber that has missed an event: %v, want it dropped", err)
	}
	want(t, "and when it comes back", n.resume(t, at), "!")
	if got := n.Counts(); got.Dropped != 1 {
		t.Errorf("counts %+v, want one dropped", got)
	}
}

// What is kept is bounded in bytes too: a key may have 64 KiB.
func TestNamesAreBounded(t *testing.T) {
	n := newNode(1 << 20)
	s, at := n.start(t)
	long := strings.Repeat("k", 64<<10)
	for range 1100 {
		n.commit(long)
	}
	if _, err := s.Next(t.Context(), time.Millisecond); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("more than 64 MiB of keys later: %v, want the subscriber dropped", err)
	}
	want(t, "and when it comes back", n.resume(t, at), "!")
}

// While a node has not seen all that an unmount took along, nobody stands behind the
// unmount: another node may have seen it before, and does not send it again.
func TestPositionDuringASweep(t *testing.T) {
	a, b := newNode(100), newNode(100)
	for _, n := range []*node{a, b} {
		n.commit("k1", "k2")
	}
	s, _ := a.start(t)
	for _, n := range []*node{a, b} {
		n.sweeping = true
		n.commit() // the unmount
	}
	sweep := func(n *node, more bool, keys ...string) {
		n.see(keys...)
		n.sweeping = more
		n.Applied(n.store, n.term, n.seq, more)
	}
	sweep(b, false, "-k1", "-k2") // b is quick
	a.commit("k3")
	b.commit("k3")
	sweep(a, true, "-k1")
	keys, at := next(t, s)
	want(t, "amid the sweep", keys, "k3", "-k1")
	want(t, "and then on the other node", b.resume(t, at), "-k1", "-k2", "k3")
	sweep(a, false, "-k2")
	keys, at = next(t, s)
	want(t, "after the sweep", keys, "-k2")
	want(t, "and then on the other node", b.resume(t, at))
}

// Readers and a writer at once: each subscriber sees an unbroken sequence, or is dropped.
func TestConcurrentSubscribers(t *testing.T) {
	n := newNode(64)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		s := n.Subscribe(kvevents.Checkpoint{History: "h", Term: 1, Seq: 1})
		readers.Go(func() {
			defer s.Close()
			for expected := 0; ; {
				b, err := s.Next(ctx, time.Minute)
				if err != nil {
					if ctx.Err() == nil && errs.KindOf(err) != errs.Unavailable {
						t.Errorf("got %v, want the events, or to be dropped", err)
					}
					return
				}
				for _, e := range b.Events {
					if e.Key != fmt.Sprint(expected) {
						t.Errorf("got event %s, want %d", e.Key, expected)
						return
					}
					expected++
				}
			}
		})
	}
	for i := range 5000 {
		n.commit(fmt.Sprint(i))
	}
	cancel()
	readers.Wait()
}

// A publisher that takes over amid a commit of more events than are kept waits for its end.
func TestSubscribeAmidALargeCommit(t *testing.T) {
	n := newNode(2)
	n.seq++
	n.see("k1", "k2", "k3")
	for name, s := range map[string]*kvevents.Subscription{"kept": n.SubscribeKept(1), "anew": n.Subscribe(kvevents.Checkpoint{})} {
		for range 3 { // the resync, the empty store, and nothing
			b, err := s.Next(t.Context(), time.Millisecond)
			if err != nil || len(b.Events) > 0 {
				t.Errorf("%s: got %+v, %v; want nothing of half a commit", name, b, err)
			}
		}
		began := time.Now()
		if _, err := s.Next(t.Context(), 20*time.Millisecond); err != nil || time.Since(began) < 20*time.Millisecond {
			t.Errorf("%s: got %v after %v, want it to wait", name, err, time.Since(began))
		}
		s.Close()
	}
}
