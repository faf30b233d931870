package metadata_test

import (
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// transferOf returns a copy of "k" from a to b, by client 1, unless changed.
func transferOf(change ...func(*metadata.Transfer)) *metadata.Transfer {
	t := &metadata.Transfer{Tenant: "default", Key: "k", Client: client(1), Source: "a", Targets: []string{"b"}}
	for _, f := range change {
		f(t)
	}
	return t
}

func mounted(n byte) segment.ID { return segment.ID{15: n} }

func moving(t *metadata.Transfer) { t.Move = true }

// start begins a transfer, which must be possible.
func (c *cluster) start(t *metadata.Transfer) *metadata.StartTransfer {
	c.t.Helper()
	e, wait, err := c.primary.PrepareTransfer(t)
	if err != nil || wait != nil {
		c.t.Fatalf("starting a transfer of %q: got %v, busy: %v; want no error, and not busy", t.Key, err, wait != nil)
	}
	c.must(c.commit(e))
	return e
}

func (c *cluster) endTransfer(t *metadata.Transfer, complete bool) (lost bool, err error) {
	c.t.Helper()
	e, wait, err := c.primary.PrepareTransferEnd(t, complete, c.now)
	if err != nil || wait != nil {
		return false, err
	}
	err = c.commit(e)[0]
	return e.Lost, err
}

// on returns the names of the segments that a key is readable on, in order.
func (c *cluster) on(key string) (names []string) {
	o, _ := c.primary.Inspect("default", key)
	for _, d := range o.Replicas {
		if d.Status == metadata.Complete && d.Kind == metadata.Memory {
			names = append(names, d.Segment)
		}
	}
	slices.Sort(names)
	return names
}

// newPair returns a cluster with segments a, b and c, and an object on a.
func newPair(t tester) *cluster {
	c := newCluster(t)
	for i, name := range []string{"a", "b", "c"} {
		c.mount(byte(i+1), name, 1<<20)
	}
	c.put("k", func(p *metadata.Put) { p.Preferred = []string{"a"} })
	c.pass(params.HoldTime() + time.Second)
	return c
}

// The outcome of a copy or a move is the same on every node, also if the primary changes in
// between.
func TestTransfers(t *testing.T) {
	for _, test := range []struct {
		name     string
		targets  []string
		move     bool
		before   func(c *cluster) // between start and end
		revoke   bool
		wantLost bool
		want     []string
	}{
		{name: "copy", targets: []string{"b"}, want: []string{"a", "b"}},
		{name: "copy to two, one of them named twice", targets: []string{"b", "c", "b"}, want: []string{"a", "b", "c"}},
		{name: "copy to where it is", targets: []string{"a"}, want: []string{"a"}},
		{name: "copy that is revoked", targets: []string{"b"}, revoke: true, want: []string{"a"}},
		{name: "copy without its source", targets: []string{"b"}, before: func(c *cluster) { c.unmount(mounted(1)) }, wantLost: true},
		{name: "copy without a target", targets: []string{"b", "c"}, before: func(c *cluster) { c.unmount(mounted(2)) }, wantLost: true, want: []string{"a", "c"}},
		{name: "move", move: true, targets: []string{"b"}, want: []string{"b"}},
		{name: "move that is revoked", move: true, targets: []string{"b"}, revoke: true, want: []string{"a"}},
		{name: "move without its source", move: true, targets: []string{"b"}, before: func(c *cluster) { c.unmount(mounted(1)) }, wantLost: true},
		{name: "move without its target", move: true, targets: []string{"b"}, before: func(c *cluster) { c.unmount(mounted(2)) }, wantLost: true, want: []string{"a"}},
	} {
		for _, failover := range []bool{false, true} {
			c := newPair(t)
			about := transferOf(func(t *metadata.Transfer) { t.Targets, t.Move = test.targets, test.move })
			e := c.start(about)
			if source, targets := e.Descriptors(); source.Segment != "a" || source.Status != metadata.Complete || len(targets) > 2 {
				t.Errorf("%s: got the source %+v and the targets %+v, want a complete one on a, and two targets at most",
					test.name, source, targets)
			}
			if got := c.on("k"); !slices.Equal(got, []string{"a"}) {
				t.Errorf("%s: readable on %v during the transfer, want a", test.name, got)
			}
			for what, s := range c.everywhere() {
				_, _, err := s.PrepareTransfer(about)
				wantKind(t, test.name+": a second transfer on "+what, err, errs.ObjectHasTask)
			}
			if test.before != nil {
				test.before(c)
			}
			if failover {
				c.takeOver(0)
			}
			_, err := c.endTransfer(transferOf(func(t *metadata.Transfer) { t.Client, t.Move = client(7), test.move }), true)
			wantKind(t, test.name+": a stranger's end", err, errs.IllegalClient)
			_, err = c.endTransfer(transferOf(func(t *metadata.Transfer) { t.Move = !test.move }), true)
			wantKind(t, test.name+": an end of the other kind", err, errs.InvalidParams)
			lost, err := c.endTransfer(about, !test.revoke)
			if err != nil || lost != test.wantLost {
				t.Errorf("%s: ended with %v, lost %v, want %v", test.name, err, lost, test.wantLost)
			}
			if got := c.on("k"); !slices.Equal(got, test.want) {
				t.Errorf("%s: readable on %v, want %v", test.name, got, test.want)
			}
			_, err = c.endTransfer(about, true)
			if kind := errs.KindOf(err); kind != errs.ObjectNoTask && (kind != errs.ObjectNotFound || len(test.want) > 0) {
				t.Errorf("%s: a second end: got %v, want ObjectNoTask, or ObjectNotFound where it is lost", test.name, err)
			}
			c.everywhere()
		}
	}
}

// What cannot be copied is refused, with the C++ master's errors.
func TestTransfersRefused(t *testing.T) {
	c := newPair(t)
	closed, err := c.primary.PrepareClose(client(3), mounted(3), c.now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	c.must(c.commit(closed))
	c.mount(4, "full", 104)
	c.put("fill", func(p *metadata.Put) { p.Preferred, p.Size = []string{"full"}, 100 })
	if err := c.putStart("writing", func(p *metadata.Put) { p.Preferred = []string{"a"} }); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*metadata.Transfer)
		want   errs.Kind
	}{
		{"an unknown target", func(t *metadata.Transfer) { t.Targets = []string{"b", "x"} }, errs.SegmentNotFound},
		{"a closed target", func(t *metadata.Transfer) { t.Targets = []string{"c"} }, errs.Unavailable},
		{"a full target", func(t *metadata.Transfer) { t.Targets = []string{"b", "full"} }, errs.NoAvailableHandle},
		{"an unknown key", func(t *metadata.Transfer) { t.Key = "x" }, errs.ObjectNotFound},
		{"a source without a replica", func(t *metadata.Transfer) { t.Source = "b" }, errs.ReplicaNotFound},
		{"a source in progress", func(t *metadata.Transfer) { t.Key = "writing" }, errs.ReplicaNotFound},
	} {
		busy := c.primary.Stats().Busy
		_, _, err := c.primary.PrepareTransfer(transferOf(test.change))
		wantKind(t, test.name, err, test.want)
		if got := c.primary.Stats().Busy; got != busy {
			t.Errorf("%s: %d bytes are busy, want %d", test.name, got, busy)
		}
	}
	_, err = c.endTransfer(transferOf(), true)
	wantKind(t, "the end of no transfer", err, errs.ObjectNoTask)
	_, err = c.endTransfer(transferOf(func(t *metadata.Transfer) { t.Key = "x" }), true)
	wantKind(t, "the end of a transfer of no object", err, errs.ObjectNotFound)

	old := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
	old.must(old.commit(&metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: 4}))
	_, _, err = old.primary.PrepareTransfer(transferOf())
	wantKind(t, "a transfer beside older nodes", err, errs.Unavailable)
}

// While a transfer is under way its object is not evicted, and not removed, not even by force.
// When the transfer has ended, evictions may take the object, but not with a cutoff that was
// chosen before.
func TestTransferProtectsItsSource(t *testing.T) {
	for _, move := range []bool{false, true} {
		c := newPair(t)
		about := transferOf(func(t *metadata.Transfer) {
			if t.Move = move; move {
				t.Targets = []string{"b"}
			}
		})
		c.start(about)
		if pass := eviction.Select(c.primary, eviction.Bounds{Objects: 10, IncludePinned: true}); pass != nil {
			t.Errorf("move %v: an eviction takes %d objects, want none", move, pass.Victims)
		}
		all := func(before metadata.Time) metadata.Change {
			return &eviction.Cutoff{Deadline: before - 1, ID: 1<<64 - 1, PinTime: before, IncludePinned: true}
		}
		begun := c.now
		c.must(c.commit(all(begun)))
		if got := c.on("k"); !slices.Equal(got, []string{"a"}) {
			t.Errorf("move %v: after a cutoff the object is on %v, want a", move, got)
		}
		for _, force := range []bool{false, true} {
			wantKind(t, "a removal", c.remove("k", force), errs.ReplicaNotReady)
		}
		for _, name := range []string{"", "a", "b"} {
			if drop, _ := c.primary.PrepareClear("default", "k", client(1), name, c.now); drop.Removal != nil || drop.Partial != nil {
				t.Errorf("move %v: clearing segment %q during the transfer: got %+v dropped, want nothing", move, name, drop)
			}
		}
		if _, err := c.endTransfer(about, true); err != nil {
			t.Fatal(err)
		}
		c.must(c.commit(all(begun)))
		if len(c.on("k")) == 0 {
			t.Errorf("move %v: after a cutoff chosen during the transfer: got the object gone, want it kept", move)
		}
		c.pass(params.LeaseTTL)
		c.must(c.commit(all(c.now)))
		if got := c.on("k"); len(got) != 0 {
			t.Errorf("move %v: after a later cutoff the object is on %v, want nothing", move, got)
		}
	}
	c := newPair(t)
	about := transferOf(moving, func(t *metadata.Transfer) { t.Targets = []string{"a"} }) // makes nothing new
	c.start(about)
	wantKind(t, "a removal during a transfer without new replicas", c.remove("k", true), errs.ObjectHasTask)
	lost, err := c.endTransfer(about, true)
	if got := c.on("k"); err != nil || !lost || !slices.Equal(got, []string{"a"}) {
		t.Errorf("a move of the only replica: %v, lost %v, on %v; want it lost, and the replica kept", err, lost, got)
	}
}

// Nobody else gets the bytes that a client may still write to: not when it gives the
// transfer up, not when it dies, and not when the object or the segment goes.
func TestTransfersHoldTheirTargets(t *testing.T) {
	fits := func(c *cluster) bool {
		e, _, _, err := c.primary.PreparePutStart(&metadata.Put{Tenant: "default", Key: "new", Client: client(1), Size: 100, Replicas: 1, Preferred: []string{"b"}}, c.now)
		if err != nil {
			return false
		}
		at := e.Descriptors()[0].Segment
		e.Abort(c.primary)
		return at == "b"
	}
	for name, end := range map[string]func(c *cluster){
		"revoked": func(c *cluster) {
			if _, err := c.endTransfer(transferOf(), false); err != nil {
				t.Fatal(err)
			}
		},
		"without its source": func(c *cluster) {
			c.unmount(mounted(1))
			if lost, err := c.endTransfer(transferOf(), true); err != nil || !lost {
				t.Fatal(lost, err)
			}
		},
		"replaced by a put": func(c *cluster) {
			c.unmount(mounted(1))
			c.pass(params.DiscardTimeout)
			c.mount(3, "c", 104)
			c.put("k", func(p *metadata.Put) { p.Preferred = []string{"c"}; p.Size = 100 })
		},
		"its segment mounted again": func(c *cluster) {
			c.unmount(mounted(2))
			c.mount(2, "b", 104)
		},
		"abandoned": func(c *cluster) {
			if list := c.primary.PrepareTransferTimeouts(c.now.Add(params.ReleaseTimeout-2*time.Second), 10); len(list) != 0 {
				t.Errorf("2s before the release timeout: got %d transfers ended, want none", len(list))
			}
		},
	} {
		c := newCluster(t)
		c.mount(1, "a", 104)
		c.mount(2, "b", 104)
		c.put("k", func(p *metadata.Put) { p.Preferred, p.Size = []string{"a"}, 100 })
		c.pass(params.HoldTime() + time.Second)
		begun := c.now
		c.start(transferOf())
		c.pass(time.Second)
		end(c)
		c.takeOver(0)
		c.now = begun.Add(params.ReleaseTimeout - 1)
		c.commit()
		if fits(c) {
			t.Errorf("A: %s: got the target's bytes given away before the release time, want them held: a client may write there",
				name)
		}
		c.pass(claimGrain)
		for _, e := range c.primary.PrepareTransferTimeouts(c.now, 10) {
			c.must(c.commit(e))
		}
		c.must(c.commit(&metadata.UseRules{Version: metadata.NewestRules}))
		if !fits(c) {
			t.Errorf("%s: got the target's bytes still held after the release time, want them free", name)
		}
		c.everywhere()
	}
}

// claimGrain is how much later than its exact time a claim may end.
const claimGrain = 2 * time.Second

// A reader's lease on the source of a move outlasts the move.
func TestMovedSourceWaitsForItsReaders(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 104)
	c.mount(2, "b", 104)
	c.put("k", func(p *metadata.Put) { p.Preferred, p.Size = []string{"a"}, 100 })
	c.pass(params.HoldTime() + time.Second)
	c.start(transferOf(moving))
	c.read("k")
	if _, err := c.endTransfer(transferOf(moving), true); err != nil {
		t.Fatal(err)
	}
	put := &metadata.Put{Tenant: "default", Key: "new", Client: client(1), Size: 100, Replicas: 1}
	c.pass(params.LeaseTTL)
	c.commit()
	_, _, _, err := c.primary.PreparePutStart(put, c.now)
	wantKind(t, "a put during the reader's lease", err, errs.NoAvailableHandle)
	c.pass(params.HoldTime())
	c.must(c.commit(&metadata.UseRules{Version: metadata.NewestRules}))
	if _, _, _, err = c.primary.PreparePutStart(put, c.now); err != nil {
		t.Errorf("a put after the reader's lease: got %v, want no error", err)
	}
}

// The writer's PutEnd and PutRevoke do not affect the replicas that a copy makes.
func TestTransferBesideItsWriter(t *testing.T) {
	c := newPair(t)
	c.start(transferOf())
	ref := metadata.PutRef{Tenant: "default", Key: "k", Client: client(1), Selector: metadata.SelectAll}
	if e, _, err := c.primary.PreparePutEnd(ref, nil); e != nil || err != nil {
		t.Errorf("a repeated PutEnd: %+v, %v; want nothing to do", e, err)
	}
	_, _, err := c.primary.PreparePutRevoke(ref)
	wantKind(t, "a PutRevoke", err, errs.InvalidWrite)
	_, _, _, err = c.primary.PreparePutStart(&metadata.Put{Tenant: "default", Key: "k", Client: client(1), Size: 1, Replicas: 1}, c.now)
	wantKind(t, "a PutStart", err, errs.ObjectExists)
	c.unmount(mounted(1))
	_, _, err = c.primary.PreparePutEnd(ref, nil)
	wantKind(t, "a PutEnd without the source", err, errs.InvalidWrite)
}
