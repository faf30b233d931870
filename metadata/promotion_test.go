package metadata_test

import (
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/metadata"
)

// newOnSSD returns a cluster with an object of 100 bytes that is on the SSD of client
// 1 alone, and room for one such object in segment a.
func newOnSSD(t tester) *cluster {
	c := newCluster(t)
	c.mount(1, "a", 104)
	c.mountDisk(1, true)
	c.put("k", func(p *metadata.Put) { p.Size = 100 })
	c.must([]error{c.copyTo(1, "k")})
	c.pass(params.HoldTime() + time.Second)
	c.commit()
	c.evict(eviction.Bounds{Objects: 1})
	c.wantReplicas("to begin with", "k", "LOCAL_DISK 1 at ssd-1:1, 100 bytes")
	return c
}

func (c *cluster) promotion(change ...func(*metadata.Promotion)) *metadata.Promotion {
	o, _ := c.primary.Inspect("default", "k")
	p := &metadata.Promotion{Tenant: "default", Key: "k", ID: o.ID, Client: client(1), Size: 100}
	for _, f := range change {
		f(p)
	}
	return p
}

func (c *cluster) promote() *metadata.StartTransfer {
	c.t.Helper()
	e, wait, err := c.primary.PreparePromotion(c.promotion())
	if err != nil || wait != nil {
		c.t.Fatalf("preparing a promotion: got %v, busy: %v; want no error, and not busy", err, wait != nil)
	}
	c.must(c.commit(e))
	return e
}

func promoting(t *metadata.Transfer) { t.Promotion = true }

// A promoted object becomes readable in memory when its client reports the copy, and no earlier,
// on every node, also if the primary changed in between.
func TestPromotion(t *testing.T) {
	const onSSD, inMemory = "LOCAL_DISK 1 at ssd-1:1, 100 bytes", "MEMORY"
	for _, test := range []struct {
		name     string
		before   func(c *cluster) // between start and end
		revoke   bool
		wantLost bool
		want     []string
	}{
		{name: "complete", want: []string{onSSD, inMemory}},
		{name: "given up", revoke: true, want: []string{onSSD}},
		{name: "without its target", before: func(c *cluster) { c.unmount(mounted(1)) }, wantLost: true, want: []string{onSSD}},
		{name: "without its source", before: func(c *cluster) { c.unmountDisk(1) }, wantLost: true, want: []string{"OBJECT_NOT_FOUND"}},
	} {
		for _, failover := range []bool{false, true} {
			c := newOnSSD(t)
			e := c.promote()
			if source, targets := e.Descriptors(); source.Kind != metadata.LocalDisk || len(targets) != 1 || targets[0].Segment != "a" {
				t.Errorf("%s: from %+v to %+v; want from the SSD to a", test.name, source, targets)
			}
			if got := c.on("k"); len(got) != 0 {
				t.Errorf("%s: got it readable on %v during the promotion, want nowhere in memory", test.name, got)
			}
			for what, s := range c.everywhere() {
				_, _, err := s.PreparePromotion(c.promotion())
				wantKind(t, test.name+": a second promotion on "+what, err, errs.ReplicaNotReady)
			}
			if n := c.evict(eviction.Bounds{Objects: 1}); n != 0 {
				t.Errorf("%s: got %d objects evicted during the promotion, want none", test.name, n)
			}
			if test.before != nil {
				test.before(c)
			}
			if failover {
				c.takeOver(0)
			}
			for what, about := range map[string]*metadata.Transfer{
				"a stranger's":      transferOf(promoting, func(t *metadata.Transfer) { t.Client = client(7) }),
				"a copy's":          transferOf(),
				"another object's":  transferOf(promoting, func(t *metadata.Transfer) { t.ID = e.ID + 1 }),
				"a move's":          transferOf(moving),
				"a stranger's copy": transferOf(func(t *metadata.Transfer) { t.Client = client(7) }),
			} {
				if _, err := c.endTransfer(about, true); err == nil {
					t.Fatalf("%s: %s end: got no error, want it refused", test.name, what)
				}
			}
			lost, err := c.endTransfer(transferOf(promoting, func(t *metadata.Transfer) { t.ID = e.ID }), !test.revoke)
			if err != nil || lost != test.wantLost {
				t.Errorf("%s: ended with %v, lost %v, want %v", test.name, err, lost, test.wantLost)
			}
			c.wantReplicas(test.name, "k", test.want...)
			c.everywhere()
		}
	}
}

// What cannot be promoted is refused.
func TestPromotionsRefused(t *testing.T) {
	c := newOnSSD(t)
	refused := func(what string, want errs.Kind, change ...func(*metadata.Promotion)) {
		t.Helper()
		_, _, err := c.primary.PreparePromotion(c.promotion(change...))
		wantKind(t, what, err, want)
	}
	refused("of an object before", errs.ObjectNotFound, func(p *metadata.Promotion) { p.ID-- })
	refused("of no object", errs.ObjectNotFound, func(p *metadata.Promotion) { p.Key = "other" })
	refused("by a client without an SSD", errs.SegmentNotFound, func(p *metadata.Promotion) { p.Client = client(2) })
	refused("of another size", errs.InvalidParams, func(p *metadata.Promotion) { p.Size = 99 })
	c.mountDisk(2, true)
	refused("by a client whose SSD has no copy", errs.ReplicaNotFound, func(p *metadata.Promotion) { p.Client = client(2) })
	c.put("full", func(p *metadata.Put) { p.Size = 100 })
	refused("without room", errs.NoAvailableHandle)
	c.must([]error{c.remove("full", true)})
	c.promote()
	if _, err := c.endTransfer(transferOf(promoting), true); err != nil {
		t.Fatal(err)
	}
	refused("of what is in memory", errs.ReplicaNotReady)

	old := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
	old.must(old.commit(&metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: 5}))
	_, _, err := old.primary.PreparePromotion(c.promotion())
	wantKind(t, "before the sixth rules", err, errs.Unavailable)
}

// Nobody else gets the bytes that the client of a promotion may still write to.
func TestPromotionsHoldTheirTargets(t *testing.T) {
	for name, end := range map[string]func(c *cluster){
		"given up": func(c *cluster) {
			if _, err := c.endTransfer(transferOf(promoting), false); err != nil {
				t.Fatal(err)
			}
		},
		"without its SSD": func(c *cluster) {
			c.unmountDisk(1)
			if lost, err := c.endTransfer(transferOf(promoting), true); err != nil || !lost {
				t.Fatal(lost, err)
			}
		},
		"its segment mounted again": func(c *cluster) {
			c.unmount(mounted(1))
			c.mount(1, "a", 104)
		},
		"abandoned": func(c *cluster) {
			if list := c.primary.PrepareTransferTimeouts(c.now.Add(params.ReleaseTimeout-2*time.Second), 10); len(list) != 0 {
				t.Errorf("2s before the release timeout: got %d promotions ended, want none", len(list))
			}
		},
	} {
		c := newOnSSD(t)
		fits := func() bool {
			return c.primary.CouldHold(100, 1) && c.putStart("new", func(p *metadata.Put) { p.Size = 100 }) == nil
		}
		begun := c.now
		c.promote()
		c.pass(time.Second)
		end(c)
		c.takeOver(0)
		c.now = begun.Add(params.ReleaseTimeout - 1)
		c.commit()
		if fits() {
			t.Errorf("A: %s: got the target's bytes given away before the release time, want them held: a client may write there",
				name)
		}
		c.pass(claimGrain)
		for _, e := range c.primary.PrepareTransferTimeouts(c.now, 10) {
			c.must(c.commit(e))
		}
		c.commit()
		if !fits() {
			t.Errorf("%s: got the target's bytes still held after the release time, want them free", name)
		}
		c.everywhere()
	}
}

// A late end of a promotion does not affect an object that was put under the key since.
func TestLateEndOfAPromotion(t *testing.T) {
	c := newOnSSD(t)
	e := c.promote()
	c.unmountDisk(1)
	c.pass(params.DiscardTimeout)
	c.mount(2, "b", 1000)
	c.put("k", func(p *metadata.Put) { p.Size = 100 })
	before := c.replicas("k")
	for _, id := range []metadata.ObjectID{e.ID, 0} {
		if _, err := c.endTransfer(transferOf(promoting, func(t *metadata.Transfer) { t.ID = id }), true); err == nil {
			t.Errorf("the late end, with the id %v: got no error, want it refused", id)
		}
	}
	late := &metadata.EndTransfer{Ref: e.Ref, Complete: true}
	wantKind(t, "the late end in the journal", c.commit(late)[0], errs.ObjectNotFound)
	if got := c.replicas("k"); !slices.Equal(got, before) {
		t.Errorf("the new object has %v, want %v", got, before)
	}
	c.everywhere()
}
