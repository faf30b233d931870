package metadata_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

// A record is what a watcher saw, as text, and how far it may be believed.
type record struct {
	lines    []string
	at       metadata.Seq
	sweeping bool
}

func (r *record) MediaChanged(_ *metadata.Store, _ metadata.Seq, what *metadata.MediaChange) {
	line := fmt.Sprintf("%s %d>%d", what.Key, what.Before, what.After)
	if what.Evicted {
		line += " evicted"
	}
	r.lines = append(r.lines, line)
}

func (r *record) Applied(_ *metadata.Store, _ metadata.Term, at metadata.Seq, sweeping bool) {
	r.at, r.sweeping = at, sweeping
}

func (r *record) take() (lines []string) {
	lines, r.lines = r.lines, nil
	return lines
}

func newWatchedCluster(t *testing.T) (c *cluster, primary, follower *record) {
	t.Helper()
	primary, follower = new(record), new(record)
	c = &cluster{t: t, primary: metadata.New(metadata.Options{Watcher: primary}), follower: metadata.New(metadata.Options{Watcher: follower}), now: 1000}
	c.startTerm(params, 0)
	return c, primary, follower
}

// Watchers see an object when it becomes readable, and when it goes, whatever makes it
// go; primary and follower see the same.
func TestWatchersSeeWhatComesAndGoes(t *testing.T) {
	c, primary, follower := newWatchedCluster(t)
	want := func(what string, lines ...string) {
		t.Helper()
		for name, r := range map[string]*record{"primary": primary, "follower": follower} {
			if got := r.take(); !slices.Equal(got, lines) || r.at != c.seq {
				t.Errorf("%s: the watcher of the %s saw %q at %d, want %q at %d", what, name, got, r.at, lines, c.seq)
			}
		}
	}
	c.mount(1, "a", 1<<20)
	if err := c.putStart("k"); err != nil {
		t.Fatal(err)
	}
	want("a reservation")
	if err := c.putEnd("k"); err != nil {
		t.Fatal(err)
	}
	want("PutEnd", "k 0>1")
	c.read("k")
	c.scan()
	want("a renewal")
	if err := c.putStart("reserved"); err != nil {
		t.Fatal(err)
	}
	want("a reservation after it")
	if err := c.remove("k", true); err != nil {
		t.Fatal(err)
	}
	want("Remove", "k 1>0")

	c.put("old")
	c.pass(time.Hour)
	c.must(c.commit())
	want("a put", "old 0>1")
	if n := c.evict(eviction.Bounds{Objects: 1}); n != 1 {
		t.Fatalf("%d objects were evicted, want 1", n)
	}
	want("an eviction", "old 1>0 evicted")
}

// Watchers see the objects that an unmount removes when they are swept, each once. Until then
// they know that there is more to come.
func TestWatchersSeeTheSweep(t *testing.T) {
	c, primary, _ := newWatchedCluster(t)
	id := c.mount(1, "a", 1<<20)
	c.put("k1")
	c.put("k2")
	primary.take()
	c.unmount(id)
	if got := primary.take(); len(got) != 0 || !primary.sweeping {
		t.Errorf("after an unmount: %q, sweeping %v; want nothing yet, and a sweep", got, primary.sweeping)
	}
	c.mount(2, "b", 1<<20)
	c.put("k1") // replaces what the sweep has not found yet
	if got := primary.take(); !slices.Equal(got, []string{"k1 1>0", "k1 0>1"}) {
		t.Errorf("a put over an object that is gone: %q, want it to go and to come", got)
	}
	for c.primary.Sweep(64) {
	}
	if got := primary.take(); !slices.Equal(got, []string{"k2 1>0"}) || primary.sweeping {
		t.Errorf("the sweep: %q, sweeping %v; want the other object, and the end", got, primary.sweeping)
	}
}

// A store that is loaded from a snapshot reports none of the objects in it, and then the same
// changes as the others.
func TestWatchersOfLoadedStores(t *testing.T) {
	c, primary, _ := newWatchedCluster(t)
	c.mount(1, "a", 1<<20)
	c.put("k1")
	loaded := new(record)
	l := metadata.NewLoader(metadata.Options{Watcher: loaded})
	for i := range metadata.SnapshotParts {
		part, _ := c.primary.AppendSnapshotPart(nil, i)
		if err := l.Add(part); err != nil {
			t.Fatal(err)
		}
	}
	s, err := l.Finish()
	if err != nil {
		t.Fatal(err)
	}
	c.follower = s
	primary.take()
	if err := c.remove("k1", true); err != nil {
		t.Fatal(err)
	}
	c.put("k2")
	if got, want := loaded.take(), primary.take(); !slices.Equal(got, want) || len(got) != 2 {
		t.Errorf("the loaded store's watcher saw %q, want %q as the primary's", got, want)
	}
	present := 0
	for shard := range metadata.ShardCount {
		s.Present(shard, func(what *metadata.MediaChange) {
			if present++; what.Key != "k2" || what.After != metadata.InMemory {
				t.Errorf("present: %+v, want k2 in memory", what)
			}
		})
	}
	if present != 1 {
		t.Errorf("%d objects are present, want 1", present)
	}
}

// A count counts the commits and parts of sweeps that a watcher saw.
type count struct {
	record

	applied int
}

func (n *count) Applied(of *metadata.Store, term metadata.Term, at metadata.Seq, sweeping bool) {
	n.applied++
	n.record.Applied(of, term, at, sweeping)
}

// A sweep wakes those who wait for changes once a shard, however many parts a shard has.
func TestWatchersSeeASweepShardByShard(t *testing.T) {
	seen := new(count)
	s := metadata.New(metadata.Options{Watcher: seen})
	fillStore(t, s, 200_000)
	e := &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: s.SegmentNumbers()}
	seq := s.LastSeq() + 1
	if _, err := s.Apply(&metadata.Commit{Seq: seq, Term: 1, Time: metadata.Time(seq), Changes: []metadata.Change{e}}, nil); err != nil {
		t.Fatal(err)
	}
	seen.applied = 0
	for s.Sweep(1) {
	}
	if seen.applied != metadata.ShardCount || seen.sweeping {
		t.Errorf("the sweep: the watcher is called %d times, sweeping %v; want %d times, and the end", seen.applied, seen.sweeping, metadata.ShardCount)
	}
}
