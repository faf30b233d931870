package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A call that repeats a removal while it is applied waits for it, or finds its request id. It
// never finds neither the object nor the id.
func TestRemovalRepeatedWhileItIsApplied(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	for i := range 500 {
		c.put("k")
		r := deleteevents.Request{Tenant: metadata.DefaultTenant, Key: "k", ID: uint64(1 + i)}
		first, _, err := deleteevents.Prepare(c.primary, r, c.now)
		if err != nil {
			t.Fatal(err)
		}
		begun, done := make(chan struct{}), make(chan error)
		go func() {
			_, wait, err := deleteevents.Prepare(c.primary, r, c.now)
			for close(begun); wait != nil; _, wait, err = deleteevents.Prepare(c.primary, r, c.now) {
			}
			done <- err
		}()
		<-begun
		c.must(c.commit(first))
		if err := <-done; err != nil {
			t.Fatalf("round %d: a removal repeated while it is applied: got %v, want no error", i, err)
		}
	}
}

// A revocation that leaves other replicas can be repeated as well, if the caller names the object
// by its id.
func TestPartialRevokeRepeated(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	if err := c.putStart("k", func(p *metadata.Put) { p.DiskPath = "/x/k" }); err != nil {
		t.Fatal(err)
	}
	o, err := c.primary.Inspect(metadata.DefaultTenant, "k")
	if err != nil {
		t.Fatal(err)
	}
	ref := c.putRef("k")
	ref.Request, ref.Selector, ref.ID = 77, metadata.SelectMemory, o.ID
	wantKind(t, "the call", c.revokeAs(ref), errs.OK)
	wantKind(t, "the same call repeated", c.revokeAs(ref), errs.OK)
	ref.Request, ref.ID = 0, 0
	wantKind(t, "one that cannot be told from a first one", c.revokeAs(ref), errs.InvalidWrite)
}

// A writer does not get memory that was unmounted before its put was applied, since somebody else
// may have it.
func TestWritersAreNotSentToSegmentsThatHaveGone(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.mount(2, "b", 1<<20)
	e, err := c.preparePut("k", func(p *metadata.Put) { p.Replicas = 2 })
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.primary.PrepareMount(segment.Spec{ID: segment.ID{15: 9}, Name: "a", Base: 1 << 32, Size: 1 << 20, Endpoint: "a:1", Protocol: "tcp", Client: client(1)})
	if err != nil || len(m.Replaces) != 1 {
		t.Fatal(m, err)
	}
	c.must(c.commit(m))
	c.must(c.commit(e))
	if list := e.Descriptors(); len(list) != 1 || list[0].Segment != "b" {
		t.Errorf("the segment a went before the put was applied: got the replicas %v, want the one on b", list)
	}
}

// As long as the guard of an empty start lasts, earlier readers may hold leases on memory that is
// mounted, also in a later term.
func TestGuardOfAnEmptyStartOutlivesItsTerm(t *testing.T) {
	c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000}
	c.term++
	c.primary.StartIDs(c.term)
	c.must(c.commit(&metadata.TermStart{Term: c.term, Params: params, Guard: 10 * time.Second, Empty: true}))
	c.pass(time.Second)
	c.startTerm(params, 0)
	c.mount(1, "a", 1<<20)
	wantKind(t, "a put in the guard", c.putStart("k"), errs.NoAvailableHandle)
	c.pass(10 * time.Second)
	c.commit()
	wantKind(t, "a put behind it", c.putStart("k"), errs.OK)
	c.startTerm(params, 0)
	c.mount(2, "b", 1<<20)
	wantKind(t, "on memory that is mounted behind it", c.putStart("l", func(p *metadata.Put) { p.Preferred = []string{"b"} }), errs.OK)
}

// Parameters are whole milliseconds, as in the journal, so that nodes do not differ in fractions.
func TestParamsAreWholeMilliseconds(t *testing.T) {
	for _, p := range []metadata.Params{
		{LeaseTTL: 10*time.Second + 1, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second},
		{LeaseTTL: 10 * time.Second, DiscardTimeout: 30*time.Second + 500*time.Microsecond, ReleaseTimeout: 600 * time.Second},
		{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600*time.Second + 1},
	} {
		if p.Validate() == nil {
			t.Errorf("%+v: got no error, want fractions of a millisecond refused", p)
		}
	}
}

// A removal that is repeated after very many others gets the answer of the first call. An object
// that was put under the key since stays.
func TestRemovalRepeatedAfterManyOthers(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<30)
	request := func(key string, id uint64) (*deleteevents.Event, error) {
		e, _, err := deleteevents.Prepare(c.primary, deleteevents.Request{Tenant: metadata.DefaultTenant, Key: key, ID: id}, c.now)
		return e, err
	}
	remove := func(key string, id uint64) {
		t.Helper()
		e, err := request(key, id)
		if err != nil || e == nil {
			t.Fatalf("preparing the removal of %s: got %v, %v, want a removal", key, e, err)
		}
		c.must(c.commit(e))
	}
	c.put("x")
	remove("x", 1<<40)
	for i := range uint64(132) {
		var starts, ends, removals []metadata.Change
		for _, key := range keys("other", 1000) {
			e, err := c.preparePut(key)
			c.must([]error{err})
			starts = append(starts, e)
		}
		c.must(c.commit(starts...))
		for _, key := range keys("other", 1000) {
			e := c.primary.Lock(metadata.DefaultTenant, key)
			ends = append(ends, &metadata.PutEnd{Ref: e.Ref(), Selector: metadata.SelectMemory})
			removals = append(removals, deleteevents.Of(deleteevents.Remove, &metadata.Removal{
				Ref: e.Ref(), Request: 1 + 3*(1000*i+uint64(len(removals))),
			}))
			e.Unlock()
		}
		c.must(append(c.commit(ends...), c.commit(removals...)...))
	}
	c.put("x")
	if e, err := request("x", 1<<40); e != nil || err != nil {
		t.Errorf("X: a removal repeated after many others: got %v, %v, want nothing to remove: a later object has the key", e, err)
	}
	c.follower = reload(t, c.primary)
	c.pass(time.Duration(metadata.RequestsKept) * time.Millisecond)
	c.commit()
	remove("x", 1<<40)
}

// The requests of a batch, which follow one another, are remembered as one.
func TestRequestsOfABatch(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	var batch []metadata.Change
	for i, key := range keys("k", 1000) {
		c.put(key)
		e, _, _ := deleteevents.Prepare(c.primary, deleteevents.Request{Tenant: metadata.DefaultTenant, Key: key, ID: uint64(500 + i)}, c.now)
		batch = append(batch, e)
	}
	c.must(c.commit(batch...))
	for id, want := range map[uint64]bool{499: false, 500: true, 777: true, 1499: true, 1500: false} {
		if got, err := c.primary.Applied(id); got != want || err != nil {
			t.Errorf("request %d was applied: got %v, %v, want %v", id, got, err, want)
		}
	}
	part, _ := c.primary.AppendSnapshotPart(nil, metadata.SnapshotParts-1)
	if len(part) > 100 {
		t.Errorf("1000 requests in a row: got %d bytes in the last part of a snapshot, want 100 at most", len(part))
	}
	reload(t, c.primary)
}

// A soft pin begins once, with the first replica that is complete, even if that is lost before
// another one is complete.
func TestSoftPinBeginsOnce(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	if err := c.putStart("k", softPin, func(p *metadata.Put) { p.DiskPath = "/d/k" }); err != nil {
		t.Fatal(err)
	}
	c.must([]error{c.putEnd("k")})
	c.unmount(id)
	c.pass(time.Minute)
	ref := c.putRef("k")
	ref.Selector = metadata.SelectDisk
	c.must([]error{c.putEndAs(ref)})
	c.pass(29*time.Minute - time.Millisecond)
	c.commit()
	if o, err := c.primary.Inspect(metadata.DefaultTenant, "k"); err != nil || !o.SoftPin {
		t.Errorf("1ms before the soft pin ends: got %+v, %v, want it pinned", o, err)
	}
	c.pass(time.Millisecond)
	c.commit()
	if o, err := c.primary.Inspect(metadata.DefaultTenant, "k"); err != nil || o.SoftPin {
		t.Errorf("30 minutes after the first complete replica: got %+v, %v, want the soft pin ended", o, err)
	}
}

// A call that repeats a put which was made and then replaced does not make it again. Nor does it
// answer that nothing was changed.
func TestPutRepeatedAfterItWasReplaced(t *testing.T) {
	numbered := func(p *metadata.Put) { p.Request = 77 }
	for name, first := range map[string][]func(*metadata.Put){
		"a put":     {numbered},
		"an upsert": {numbered, upsert},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.mount(1, "a", 1<<20)
			c.must([]error{c.putStart("k", first...)})
			c.must([]error{c.putStart("k", by(2), upsert)})
			repeat := func(when string, want errs.Kind) {
				t.Helper()
				wantKind(t, "repeated "+when, c.putStart("k", first...), want)
			}
			repeat("while the other put goes on", errs.ObjectNotFound)
			c.takeOver(0)
			repeat("behind a takeover", errs.ObjectNotFound)
			c.pass(30 * time.Second)
			c.must([]error{c.putStart("k", by(3))}) // the one by client 2 is given up
			repeat("when that one is replaced, too", errs.ObjectNotFound)
			c.pass(30*time.Second - time.Millisecond)
			c.commit()
			repeat("1 ms before it is forgotten", errs.ObjectNotFound)
			c.pass(time.Millisecond)
			c.commit()
			repeat("a minute later", errs.OK)
		})
	}
	t.Run("by the rules before", func(t *testing.T) {
		c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000}
		c.term++
		c.primary.StartIDs(c.term)
		c.must(c.commit(&metadata.TermStart{Term: 1, Params: params}, &metadata.UseRules{Version: 5}))
		c.mount(1, "a", 1<<20)
		c.must([]error{c.putStart("k", numbered)})
		c.must([]error{c.putStart("k", by(2), upsert)})
		wantKind(t, "repeated", c.putStart("k", numbered), errs.ObjectExists)
	})
}

// A put may replace a reservation whose memory was unmounted in between. Nodes sweep such a
// reservation at different times, and a node that loads a snapshot never has it. So no node
// remembers its request.
func TestPutReplacesAReservationThatWasUnmounted(t *testing.T) {
	for name, without := range map[string]func(*cluster){
		"a node that swept it":             func(c *cluster) { sweepAll(c.follower) },
		"a node that loaded a snapshot":    func(c *cluster) { c.follower = reload(t, c.primary) },
		"a primary that swept it":          func(c *cluster) { sweepAll(c.primary) },
		"nodes that all have it in memory": func(*cluster) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			a := c.mount(1, "a", 1<<20)
			c.mount(2, "b", 1<<20)
			first := func(p *metadata.Put) { p.Request, p.Preferred = 77, []string{"a"} }
			c.must([]error{c.putStart("k", first)})
			e, err := c.preparePut("k", by(2), upsert, func(p *metadata.Put) { p.Preferred = []string{"b"} })
			c.must([]error{err})
			c.unmount(a)
			without(c)
			c.must(c.commit(e)) // fails if the nodes differ
			for what, s := range c.everywhere() {
				if known, err := s.Applied(77); known || err != nil {
					t.Errorf("%s: the request of a reservation that went: got it known: %v, %v, want it unknown on every node",
						what, known, err)
				}
			}
		})
	}
}

func sweepAll(s *metadata.Store) {
	for s.Sweep(metadata.ShardCount) {
	}
}
