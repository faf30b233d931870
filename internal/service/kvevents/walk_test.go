package kvevents_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/internal/service/kvevents"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A writer is a store whose changes a feed keeps.
type writer struct {
	t     *testing.T
	feed  *kvevents.Feed
	store *metadata.Store
	at    metadata.Seq
	keys  map[string]bool
}

func newWriter(t *testing.T, capacity int) *writer {
	w := &writer{t: t, feed: kvevents.New(capacity, func() string { return "h" }), keys: map[string]bool{}}
	w.store = metadata.New(metadata.Options{Watcher: w.feed})
	w.store.StartIDs(1)
	w.commit(&metadata.TermStart{Term: 1, Params: metadata.Params{LeaseTTL: 1}}, nil)
	w.commit(w.store.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 40, Size: 1 << 30, Endpoint: "a:1", Client: segment.ClientID{1}}))
	return w
}

func (w *writer) commit(c metadata.Change, err error) {
	w.t.Helper()
	if err == nil {
		w.at++
		_, err = w.store.Apply(&metadata.Commit{Seq: w.at, Term: 1, Time: metadata.Time(w.at), Changes: []metadata.Change{c}}, nil)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) put(key string) {
	w.t.Helper()
	start, _, _, err := w.store.PreparePutStart(&metadata.Put{Tenant: "default", Key: key, Client: segment.ClientID{1}, Size: 64, Replicas: 1}, metadata.Time(w.at))
	w.commit(start, err)
	end, _, err := w.store.PreparePutEnd(metadata.PutRef{Tenant: "default", Key: key, Client: segment.ClientID{1}, Selector: metadata.SelectMemory}, nil)
	w.commit(end, err)
	w.keys[key] = true
}

func (w *writer) remove(key string) {
	w.t.Helper()
	e, _, err := deleteevents.Prepare(w.store, deleteevents.Request{Tenant: "default", Key: key}, metadata.Time(w.at))
	w.commit(e, err)
	delete(w.keys, key)
}

// A subscriber that begins anew gets all keys, and in the end knows those that there are,
// even if far more changes while it is sent them than the feed keeps.
func TestChangesDuringAWalk(t *testing.T) {
	w := newWriter(t, 16)
	const n = 400
	for i := range n {
		w.put(fmt.Sprint("k", i))
	}
	s := w.feed.Subscribe(kvevents.Checkpoint{})
	defer s.Close()
	known := map[string]bool{}
	for round := 0; ; round++ {
		b, err := s.Next(t.Context(), time.Millisecond)
		if err != nil {
			t.Fatalf("a walk, after %d answers: got error %v, want the next answer", round, err)
		}
		for _, e := range b.Events {
			if e.After != 0 {
				known[e.Key] = true
			} else {
				delete(known, e.Key)
			}
		}
		if round < n/2 {
			w.remove(fmt.Sprint("k", round))
			w.put(fmt.Sprint("new", round))
			if b.Through != (kvevents.Checkpoint{}) {
				t.Fatalf("answer %d, amid all keys: got position %+v, want none before the end", round, b.Through)
			}
		} else if !b.Resync && len(b.Events) == 0 && b.Through.Seq == w.at {
			break
		}
	}
	if !maps.Equal(known, w.keys) {
		t.Errorf("a subscriber after a walk: got %d keys, want the %d that there are", len(known), len(w.keys))
	}
	if got := w.feed.Counts(); got.Resyncs != 1 || got.Dropped != 0 {
		t.Errorf("counts %+v, want one resync and none dropped", got)
	}
}
