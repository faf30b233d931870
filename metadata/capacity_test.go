package metadata_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func (c *cluster) setCapacity(n byte, bytes uint64) {
	c.t.Helper()
	e, err := c.primary.PrepareSetCapacity(client(n), bytes)
	c.must([]error{err})
	if e != nil {
		c.must(c.commit(e))
	}
}

// The capacity of an SSD is part of the state, until the SSD is unmounted.
func TestCapacitiesOfSSDs(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	_, err := c.primary.PrepareSetCapacity(client(1), 1000)
	wantKind(t, "no SSD", err, errs.SegmentNotFound)
	c.mountDisk(1, true)
	c.setCapacity(1, 500)
	c.setCapacity(1, 1000)
	c.mountDisk(1, false)
	e, err := c.primary.PrepareSetOffloading(client(1), true)
	c.must([]error{err})
	c.must(c.commit(e))
	c.put("k")
	c.must([]error{c.copyTo(1, "k")})
	loaded, err := c.load(c.snapshot())
	c.must([]error{err})
	c.takeOver(time.Second)
	for what, s := range map[string]*metadata.Store{"the new primary": c.primary, "a standby": c.follower, "a snapshot": loaded} {
		if got, _ := s.FindLocalDisk(client(1)); got.Capacity != 1000 || got.Used != 100 || !got.Offloading || s.Stats().SSDCapacity != 1000 {
			t.Errorf("%s: got %+v, want 1000 bytes, of which 100 are used", what, got)
		}
	}
	if e, err := c.primary.PrepareSetCapacity(client(1), 1000); e != nil || err != nil {
		t.Errorf("the same capacity: got %v, %v; want nothing to do", e, err)
	}
	info, _ := c.primary.FindLocalDisk(client(1))
	c.must(c.commit(&metadata.WipeDisks{Number: info.Number}))
	if got, _ := c.primary.FindLocalDisk(client(1)); got.Capacity != 1000 || got.Used != 0 {
		t.Errorf("after its files were deleted: got %+v, want 1000 bytes, all free", got)
	}
	c.setCapacity(1, 0)
	c.setCapacity(1, 1000)
	c.unmountDisk(1)
	c.mountDisk(1, true)
	if got := c.primary.Stats().SSDCapacity; got != 0 {
		t.Errorf("mounted anew: got %d bytes, want none until they are reported", got)
	}
}

// Capacities are not journaled under older rules, since older nodes could not read them.
func TestCapacitiesWaitForTheirRules(t *testing.T) {
	c := &cluster{t: t, primary: metadata.New(metadata.Options{}), follower: metadata.New(metadata.Options{}), now: 1000, term: 1}
	c.must(c.commit(&metadata.TermStart{Term: 1, Params: params}))
	c.must(c.commit(&metadata.UseRules{Version: 5}))
	c.mountDisk(1, true)
	if e, err := c.primary.PrepareSetCapacity(client(1), 1000); e != nil || err != nil {
		t.Errorf("rules 5: got %v, %v; want nothing to do", e, err)
	}
	_, err := c.load(c.snapshot())
	c.must([]error{err})
	c.must(c.commit(&metadata.UseRules{Version: metadata.NewestRules}))
	c.setCapacity(1, 1000)
	_, err = c.load(c.snapshot())
	c.must([]error{err})
}

// With SSDFreeRatioFirst memory is taken where the owner's SSD is emptiest.
func TestMemoryByTheOwnersSSD(t *testing.T) {
	options := metadata.Options{Strategy: segment.SSDFreeRatioFirst, Random: rand.New(rand.NewPCG(1, 2)).IntN}
	c := &cluster{t: t, primary: metadata.New(options), follower: metadata.New(metadata.Options{}), now: 1000}
	c.startTerm(params, 0)
	for n := range byte(4) {
		c.mount(n+1, string('a'+rune(n)), 1<<20)
		c.mountDisk(n+1, true)
		c.setCapacity(n+1, 2000)
	}
	on := make(map[string]int)
	for i := range 40 {
		key := fmt.Sprint(i)
		c.put(key)
		o, err := c.primary.Inspect("default", key)
		c.must([]error{err})
		name := o.Replicas[0].Segment
		if on[name]++; name != "d" {
			c.must([]error{c.copyTo(name[0]-'a'+1, key)})
		}
	}
	if on["d"] < 20 {
		t.Errorf("got %v objects, want most where the SSD is empty", on)
	}
}

// The sum of the sizes of all segments does not overflow, however they are mounted.
func TestMountedMemoryIsBounded(t *testing.T) {
	huge := func(n byte, size uint64) segment.Spec {
		return segment.Spec{
			ID: segment.ID{15: n}, Name: fmt.Sprint(n), Base: 1 << 32, Size: size, Endpoint: fmt.Sprint(n, ":1"), Client: client(n),
		}
	}
	c := newCluster(t)
	mount := func(specs ...segment.Spec) (int, error) {
		t.Helper()
		list, decided, err := c.primary.PrepareMounts(specs)
		changes := make([]metadata.Change, len(list))
		for i, e := range list {
			changes[i] = e
		}
		c.must(c.commit(changes...))
		return decided, err
	}
	specs := make([]segment.Spec, 5)
	for i := range specs {
		specs[i] = huge(byte(i+1), segment.MaxSize)
	}
	decided, err := mount(specs...)
	if decided != 2 || err != nil {
		t.Errorf("five of the largest: got %d mounted and %v, want 2", decided, err)
	}
	_, err = mount(specs[2:]...)
	wantKind(t, "a third", err, errs.InvalidParams)
	rest := metadata.MaxMounted - 2*segment.MaxSize
	_, err = mount(huge(3, rest+1))
	wantKind(t, "one byte more than there can be", err, errs.InvalidParams)
	_, err = mount(huge(3, rest))
	wantKind(t, "what there can be", err, errs.OK)
	if got := c.primary.QuotaCapacity(); got != metadata.MaxMounted {
		t.Errorf("got a capacity of %d bytes, want %d", got, metadata.MaxMounted)
	}
	if st := c.primary.Stats(); st.Capacity < 2*segment.MaxSize || st.Capacity > metadata.MaxMounted {
		t.Errorf("got %d bytes in the figures, want as much as is mounted", st.Capacity)
	}

	// What a mount replaces goes, once.
	halves := []segment.Spec{huge(1, segment.MaxSize/2), huge(1, segment.MaxSize/2)}
	halves[0].ID, halves[1].ID = segment.ID{15: 11}, segment.ID{15: 12}
	halves[1].Base += halves[1].Size
	if decided, err := mount(append(halves, huge(4, 1<<20))...); decided != 2 || err != nil {
		t.Errorf("two halves in place of one: got %d mounted and %v, want 2", decided, err)
	}
	if got := c.primary.QuotaCapacity(); got != metadata.MaxMounted {
		t.Errorf("got a capacity of %d bytes, want %d", got, metadata.MaxMounted)
	}
	_, err = mount(huge(4, 1<<20))
	wantKind(t, "more", err, errs.InvalidParams)
	c.unmount(specs[1].ID)
	_, err = mount(huge(4, 1<<20))
	wantKind(t, "when one is unmounted", err, errs.OK)
}

// A mount replaces only a bounded number of segments, since it removes them in one change, and
// others wait while it looks for them.
func TestReplacedSegmentsAreBounded(t *testing.T) {
	spec := func(n int, size uint64) segment.Spec {
		return segment.Spec{
			ID: segment.ID{1, byte(n >> 8), byte(n)}, Name: "a", Base: 1<<32 + uint64(n)<<12, Size: size, Endpoint: "a:1", Client: client(1),
		}
	}
	c := newCluster(t)
	for n := range metadata.MaxReplaced + 1 {
		e, err := c.primary.PrepareMount(spec(n, 1<<12))
		if err != nil {
			t.Fatal(err)
		}
		c.must(c.commit(e))
	}
	over := func(segments int) segment.Spec {
		s := spec(0, uint64(segments)<<12)
		s.ID = segment.ID{2}
		return s
	}
	half := over(metadata.MaxReplaced / 2)
	other := spec(metadata.MaxReplaced/2, (metadata.MaxReplaced/2+1)<<12)
	other.ID = segment.ID{3}
	if list, decided, err := c.primary.PrepareMounts([]segment.Spec{half, other}); len(list) != 1 || decided != 1 || err != nil {
		t.Errorf("two over one more than the bound together: got %d mounts, %d decided and %v, want the first", len(list), decided, err)
	}
	_, err := c.primary.PrepareMount(over(metadata.MaxReplaced + 1))
	wantKind(t, "over one more than the bound", err, errs.Unavailable)
	e, err := c.primary.PrepareMount(over(metadata.MaxReplaced))
	wantKind(t, "over as many", err, errs.OK)
	c.must(c.commit(e))
	if got := c.primary.Stats().Segments; got != 2 {
		t.Errorf("got %d segments, want the new one and the one beside it", got)
	}
}
