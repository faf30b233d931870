package metadata_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// fillQuarantine puts n ranges into quarantine until the same time, which it returns.
func (c *cluster) fillQuarantine(n int) metadata.Time {
	c.t.Helper()
	for _, key := range keys("q", n) {
		c.put(key)
	}
	c.takeOver(params.LeaseTTL)
	for _, key := range keys("q", n) {
		if err := c.remove(key, true); err != nil {
			c.t.Fatalf("removing %s: got %v, want no error", key, err)
		}
	}
	until := c.primary.GuardUntil()
	if st := c.primary.Stats(); st.Quarantined != uint64(104*n) || c.primary.Releasing() {
		c.t.Fatalf("%d bytes in quarantine, want %d, and none on their way out", st.Quarantined, 104*n)
	}
	return until
}

// Each commit frees a slice of the ranges whose quarantine has ended, the same on every
// node, also on one that loads a snapshot in between.
func TestQuarantineLeavesInSlices(t *testing.T) {
	c := newClusterOf(t, metadata.InSlices(10), params)
	c.mount(1, "a", 1<<20)
	c.now = c.fillQuarantine(35) - 1
	if c.commit(); c.primary.Stats().Quarantined != 35*104 {
		t.Fatalf("1ms before the end of quarantine: got %d bytes there, want %d", c.primary.Stats().Quarantined, 35*104)
	}
	c.pass(time.Millisecond)
	for i, want := range []uint64{25, 15, 5, 0, 0} {
		if c.primary.Releasing() != (0 < i && i < 4) {
			t.Errorf("before commit %d: got that more leaves quarantine: %v, want %v", i, c.primary.Releasing(), 0 < i && i < 4)
		}
		c.commit()
		st := c.primary.Stats()
		if st.Quarantined != want*104 || st.Busy != want*104 || st.LeavingSoon != want*104 {
			t.Errorf("after commit %d %d bytes are in quarantine, %d taken, %d leave soon; want %d", i, st.Quarantined, st.Busy, st.LeavingSoon, want*104)
		}
		loaded, err := c.load(c.snapshot())
		if err != nil {
			t.Fatal(err)
		}
		if got := loaded.Stats().LeavingSoon; got != want*104 || loaded.Releasing() != c.primary.Releasing() {
			t.Errorf("S: after commit %d a loaded node: got %d bytes leaving soon, more to leave: %v; want %d, as on the primary",
				i, got, loaded.Releasing(), want*104)
		}
		c.follower = loaded // c.commit compares it
	}
}

// A commit without changes has no record, so a node that reads only records does not see it.
// Such a commit frees nothing, except under older rules.
func TestCommitsWithoutRecordFreeNothing(t *testing.T) {
	for rules, want := range map[metadata.Rules]uint64{7: 25 * 104, 8: 35 * 104, metadata.NewestRules: 35 * 104} {
		c := newClusterOf(t, metadata.InSlices(10), params)
		c.rules = rules
		c.primary, c.follower = metadata.New(c.options), metadata.New(c.options)
		c.seq, c.term, c.log = 0, 0, nil
		c.startTerm(params, 0)
		c.mount(1, "a", 1<<20)
		c.now = c.fillQuarantine(35)
		c.seq++
		for _, s := range []*metadata.Store{c.primary, c.follower} {
			c.apply(s, &metadata.Commit{Seq: c.seq, Term: c.term, Time: c.now})
		}
		if got := c.primary.Stats().Quarantined; got != want || !c.primary.Releasing() {
			t.Errorf("rules %d: %d bytes in quarantine behind a commit without changes, want %d, with more on its way out: %v", rules, got, want, c.primary.Releasing())
		}
		c.commit(leasesync.NewFiller())
		if got := c.primary.Stats().Quarantined; got != want-10*104 {
			t.Errorf("rules %d: %d bytes behind the next one that changes nothing, want %d", rules, got, want-10*104)
		}
	}
}

// Where commits are far apart, each frees more: a slice for each two seconds that the first
// range is late, and at most sixteen.
func TestLateRangesLeaveInLargerSlices(t *testing.T) {
	c := newClusterOf(t, metadata.InSlices(10), params)
	c.mount(1, "a", 1<<20)
	c.now = c.fillQuarantine(300) + 1999
	for i, at := range []struct {
		pass time.Duration
		want uint64
	}{{0, 290}, {time.Millisecond, 270}, {2 * time.Second, 240}, {time.Hour, 80}, {time.Second, 0}} {
		c.pass(at.pass)
		c.commit()
		if st := c.primary.Stats(); st.Quarantined != at.want*104 || st.Busy != at.want*104 {
			t.Errorf("after commit %d: got %d bytes in quarantine, %d taken, want %d", i, st.Quarantined, st.Busy, at.want*104)
		}
	}
}

// Under older rules all ranges leave quarantine at once, as on nodes of older versions.
func TestQuarantineLeftAtOnce(t *testing.T) {
	c := newClusterOf(t, metadata.InSlices(10), params)
	c.rules = 6
	c.primary, c.follower = metadata.New(c.options), metadata.New(c.options)
	c.seq, c.term, c.log = 0, 0, nil
	c.startTerm(params, 0)
	c.mount(1, "a", 1<<20)
	c.now = c.fillQuarantine(35)
	if c.commit(); c.primary.Stats().Quarantined != 0 || c.primary.Releasing() {
		t.Errorf("%d bytes are still in quarantine, want none", c.primary.Stats().Quarantined)
	}
}

// The ranges of a segment that is gone do not count for a slice, since a node that has loaded a
// snapshot does not have them.
func TestSlicesWithoutWhatIsGone(t *testing.T) {
	c := newClusterOf(t, metadata.InSlices(10), params)
	gone := c.mount(1, "a", 20*104)
	c.mount(2, "b", 20*104)
	c.now = c.fillQuarantine(40) - 10
	c.unmount(gone)
	loaded, err := c.load(c.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	c.follower = loaded
	c.pass(time.Second)
	for _, want := range []uint64{10, 0} {
		if c.commit(); c.primary.Stats().Quarantined != want*104 {
			t.Errorf("%d bytes in quarantine, want %d", c.primary.Stats().Quarantined, want*104)
		}
	}
}

// An unmount drops all ranges of its segment in quarantine at once, so that no later commit has
// to visit them.
func TestUnmountDropsQuarantine(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	c.must([]error{c.putStart("open")})
	c.pass(params.ReleaseTimeout + time.Second)
	c.commit()
	c.takeOver(params.LeaseTTL)
	var discards []metadata.Change
	for _, e := range c.primary.PrepareDiscards(c.now, 10) {
		discards = append(discards, e)
	}
	c.must(c.commit(discards...))
	if st := c.primary.Stats(); st.DiscardedBytes != 104 || st.DiscardsFreed != 0 {
		t.Fatalf("discarded %d bytes, %d ranges freed; want 104 bytes that wait", st.DiscardedBytes, st.DiscardsFreed)
	}
	c.unmount(id)
	if st := c.primary.Stats(); st.DiscardedBytes != 0 || st.DiscardsFreed != 1 {
		t.Errorf("after the unmount: discarded %d bytes, %d ranges freed; want none to wait", st.DiscardedBytes, st.DiscardsFreed)
	}
}

// When each commit adds more than a slice, the backlog does not grow without bound, and a
// node that has loaded a snapshot frees the same ranges.
func TestQuarantineKeepsUp(t *testing.T) {
	t.Run("now", func(t *testing.T) { quarantineKeepsUp(t, metadata.NewestRules, 150) })
	t.Run("before", func(t *testing.T) { quarantineKeepsUp(t, 8, 2300) })
}

func quarantineKeepsUp(t *testing.T, rules metadata.Rules, most uint64) {
	const slice, perRound = 10, 60 // in two commits
	c := newClusterOf(t, metadata.InSlices(slice), params)
	c.rules = rules
	c.primary, c.follower = metadata.New(c.options), metadata.New(c.options)
	c.seq, c.term, c.log = 0, 0, nil
	c.startTerm(params, 0)
	gone := c.mount(1, "a", 1<<20)
	c.mount(2, "b", 1<<22)
	for round := range 200 {
		var starts, revokes []metadata.Change
		names := keys(fmt.Sprint(round, "-"), perRound)
		for _, key := range names {
			e, err := c.preparePut(key)
			if err != nil {
				t.Fatal(err)
			}
			starts = append(starts, e)
		}
		c.must(c.commit(starts...))
		for _, key := range names {
			r, _, err := c.primary.PreparePutRevoke(c.putRef(key))
			if err != nil {
				t.Fatal(err)
			}
			revokes = append(revokes, &deleteevents.Event{Type: deleteevents.PutRevoke, Removals: []*metadata.Removal{r.Removal}})
		}
		c.must(c.commit(revokes...))
		if c.pass(params.ReleaseTimeout / 2); round == 20 {
			c.unmount(gone)
		}
		if round%50 == 30 {
			loaded, err := c.load(c.snapshot())
			if err != nil {
				t.Fatal(err)
			}
			c.follower = loaded
		}
	}
	if got := c.primary.Stats().Quarantined / 104; got > most {
		t.Errorf("each commit adds more than a slice: got %d ranges that wait, want %d at most", got, most)
	}
}

// Many ranges that come within the lease TTL of their end at the same time are counted in
// slices. No range is counted twice, or for ever.
func TestHorizonMovesInSlices(t *testing.T) {
	c := newClusterOf(t, metadata.InSlices(10), params)
	c.mount(1, "a", 1<<20)
	for _, key := range keys("open", 35) {
		c.must([]error{c.putStart(key), c.revokeAs(c.putRef(key))})
	}
	c.pass(params.ReleaseTimeout - 5*time.Second)
	for i, want := range []uint64{10, 20, 30, 35, 35} {
		c.commit()
		if st := c.primary.Stats(); st.LeavingSoon != want*104 || st.Quarantined != 35*104 {
			t.Errorf("after commit %d %d of %d bytes leave soon, want %d", i, st.LeavingSoon, st.Quarantined, want*104)
		}
	}
	c.startTerm(metadata.Params{LeaseTTL: time.Second, DiscardTimeout: params.DiscardTimeout, ReleaseTimeout: params.ReleaseTimeout}, 0)
	if st := c.primary.Stats(); st.LeavingSoon != 0 {
		t.Errorf("with a TTL of a second %d bytes leave soon, want none", st.LeavingSoon)
	}
	c.pass(10 * time.Second)
	for range 4 {
		c.commit()
	}
	if st := c.primary.Stats(); st.LeavingSoon+st.Quarantined+st.Busy != 0 {
		t.Errorf("after the release time: got %+v, want nothing in quarantine or busy", st)
	}
}

// BenchmarkQuarantineExits reports how long the commits take that free a million ranges:
// the slowest commit, and all of them.
func BenchmarkQuarantineExits(b *testing.B) {
	const n, chunk = 1_000_000, 10_000
	for b.Loop() {
		b.StopTimer()
		s, names := fill(b, n)
		p := s.Position()
		now := p.Time
		commit := func(changes ...metadata.Change) time.Duration {
			p.Seq++
			begun := time.Now()
			if _, err := s.Apply(&metadata.Commit{Seq: p.Seq, Term: 2, Time: now, Changes: changes}, nil); err != nil {
				b.Fatal(err)
			}
			return time.Since(begun)
		}
		commit(&metadata.TermStart{Term: 2, Params: params, Guard: time.Minute}, &metadata.UseRules{Version: metadata.NewestRules})
		for at := 0; at < n; at += chunk {
			var removes []metadata.Change
			for _, name := range names[at : at+chunk] {
				e, _, err := deleteevents.Prepare(s, deleteevents.Request{Tenant: "default", Key: name}, now)
				if err != nil {
					b.Fatal(err)
				}
				removes = append(removes, e)
			}
			commit(removes...)
		}
		now = s.GuardUntil()
		b.StartTimer()
		commits, worst := 0, time.Duration(0)
		for s.Stats().Quarantined > 0 {
			worst = max(worst, commit(leasesync.NewFiller()))
			commits++
		}
		b.ReportMetric(float64(worst)/1e6, "ms/worst-commit")
		b.ReportMetric(float64(commits), "commits")
	}
}

// BenchmarkLastSnapshotPart reports for how long commits wait while the last part of
// a snapshot is made, with a million ranges in quarantine.
func BenchmarkLastSnapshotPart(b *testing.B) {
	c := newCluster(b)
	c.mount(1, "a", 1<<30)
	for i := range 100 {
		c.put(fmt.Sprint(i))
	}
	s := metadata.QuarantineOf(c.primary, 1_000_000)
	var worst time.Duration
	for b.Loop() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.AppendSnapshotPart(nil, metadata.SnapshotParts-1)
		}()
		for waiting := true; waiting; {
			begun := time.Now()
			s.Position() // takes the lock that commits take
			worst = max(worst, time.Since(begun))
			select {
			case <-done:
				waiting = false
			default:
			}
		}
	}
	b.ReportMetric(float64(worst)/1e6, "ms/worst-wait")
}

// BenchmarkMountBesideQuarantine reports the slowest commit that replaces a segment with little
// in quarantine, while another segment has a million ranges there.
func BenchmarkMountBesideQuarantine(b *testing.B) {
	c := newCluster(b)
	c.mount(1, "a", 1<<30)
	s := metadata.QuarantineOf(c.primary, 1_000_000)
	seq, worst := s.Position().Seq, time.Duration(0)
	commit := func(changes ...metadata.Change) {
		seq++
		begun := time.Now()
		if _, err := s.Apply(&metadata.Commit{Seq: seq, Term: c.term, Time: c.now, Changes: changes}, nil); err != nil {
			b.Fatal(err)
		}
		worst = max(worst, time.Since(begun))
	}
	for n := byte(0); b.Loop(); n++ {
		spec := segment.Spec{ID: segment.ID{99, n}, Name: "b", Base: 1 << 40, Size: 1 << 20, Endpoint: "b:1", Client: client(n)}
		mount, err := s.PrepareMount(spec)
		if err != nil {
			b.Fatal(err)
		}
		commit(mount)
		start, _, _, err := s.PreparePutStart(&metadata.Put{Tenant: metadata.DefaultTenant, Key: "k", Client: client(1), Size: 100, Replicas: 1, Preferred: []string{"b"}}, c.now)
		if err != nil {
			b.Fatal(err)
		}
		commit(start)
		revoke, _, err := s.PreparePutRevoke(c.putRef("k"))
		if err != nil {
			b.Fatal(err)
		}
		commit(&deleteevents.Event{Type: deleteevents.PutRevoke, Removals: []*metadata.Removal{revoke.Removal}})
	}
	b.ReportMetric(float64(worst)/1e6, "ms/worst-commit")
}

// BenchmarkUnmountOfQuarantine reports how long a commit takes that takes away a segment
// with a million ranges in quarantine.
func BenchmarkUnmountOfQuarantine(b *testing.B) {
	var took time.Duration
	for range b.N {
		c := newCluster(b)
		number, _ := c.primary.FindSegment(c.mount(1, "a", 1<<30))
		s := metadata.QuarantineOf(c.primary, 1_000_000)
		unmount := &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{number}}
		begun := time.Now()
		if _, err := s.Apply(&metadata.Commit{Seq: s.Position().Seq + 1, Term: c.term, Time: c.now, Changes: []metadata.Change{unmount}}, nil); err != nil {
			b.Fatal(err)
		}
		took += time.Since(begun)
	}
	b.ReportMetric(float64(took)/1e6/float64(b.N), "ms/unmount")
}
