package metadata_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// claimed reports whether claims hold an object's memory until the end of its lease.
func claimed(o metadata.Object, claims []metadata.Claim) bool {
	for _, c := range claims {
		base := uint64(1) << 32 // of segment 1
		from := base + uint64(c.Range.Offset)
		if at := o.Replicas[0].Address; from <= at && at+o.Size <= from+uint64(c.Range.Length) && c.Until >= o.LeaseEnds {
			return true
		}
	}
	return false
}

// Readers go on while an unmount looks for leases, and those that they get are claimed too.
func TestLeasesWhileAnUnmountLooks(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	for _, key := range []string{"before", "meanwhile", "twice", "never"} {
		c.put(key)
	}
	c.read("before")
	c.read("twice")
	number, _ := c.primary.FindSegment(id)
	lookLate, _ := c.primary.BeginUnmountInSteps([]segment.Number{number}, c.now) // of a term that has ended
	look, hold := c.primary.BeginUnmountInSteps([]segment.Number{number}, c.now)
	look()
	c.pass(time.Second)
	c.read("meanwhile") // get fails the test when a reader has to wait
	c.read("twice")
	lookLate()
	claims, end := hold()
	defer end()
	for key, want := range map[string]bool{"before": true, "meanwhile": true, "twice": true, "never": false} {
		o, err := c.primary.Inspect(metadata.DefaultTenant, key)
		if err != nil {
			t.Fatalf("%s: got error %v, want none", key, err)
		}
		if got := claimed(o, claims); got != want {
			t.Errorf("L: the lease of %q until %d is claimed: %v, want %v; claims: %+v", key, o.LeaseEnds, got, want, claims)
		}
	}
}

// However readers and an unmount meet, it claims what they got, and then they wait.
func TestReadersMeetAnUnmount(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	keys := make([]string, 200)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
		c.put(keys[i])
	}
	number, _ := c.primary.FindSegment(id)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	for r := range 2 {
		readers.Go(func() {
			l := leases(c.primary)
			for n := r; ctx.Err() == nil; n++ {
				now := c.now + metadata.Time(n)
				if _, wait, _ := l.GetReplicaList(metadata.DefaultTenant, keys[n*7%len(keys)], now); wait != nil {
					<-wait
				}
			}
		})
	}
	for range 200 {
		claims, end := c.primary.BeginUnmount([]segment.Number{number}, c.now)
		for _, key := range keys {
			if o, err := c.primary.Inspect(metadata.DefaultTenant, key); err != nil || o.LeaseEnds > c.now && !claimed(o, claims) {
				t.Errorf("L: the lease of %q until %d, error %v, is not claimed, want all claimed", key, o.LeaseEnds, err)
			}
		}
		end()
		if t.Failed() {
			return
		}
	}
}

// An unmount amid the sweep that another one has caused is swept too.
func TestSweepAmidASweep(t *testing.T) {
	const objects = 200_000 // so that a shard has several parts
	s := metadata.New(metadata.Options{})
	fillStore(t, s, objects)
	seq := s.LastSeq()
	unmount := func(numbers ...segment.Number) {
		e := &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: numbers}
		seq++
		if _, err := s.Apply(&metadata.Commit{Seq: seq, Term: 1, Time: metadata.Time(seq), Changes: []metadata.Change{e}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	numbers := s.SegmentNumbers()
	unmount(numbers[0])
	if !s.Sweep(1) || s.Swept() != 0 {
		t.Fatalf("a part of a sweep: %d shards are swept, want 0, as each has several parts", s.Swept())
	}
	unmount(numbers[1:]...)
	for s.Sweep(100) {
	}
	if left := s.Records(); left != 0 {
		t.Errorf("%d objects are left behind the sweeps, want 0", left)
	}
}

// Readers whose lease lasts long enough already get none, and rely on it all the same: one who
// waits for the end of a put, under a policy that leases what was put, and one who meets an
// object that was moved here since another reader got a lease.
func TestReadersThatNeedNoLeaseWhileAnUnmountLooks(t *testing.T) {
	for name, arrive := range map[string]func(*cluster) (meanwhile func()){
		"put": func(c *cluster) func() {
			if err := c.putStart("k"); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := c.putEnd("k"); err != nil {
					t.Fatal(err)
				}
			}
		},
		"moved": func(c *cluster) func() {
			c.put("k", func(p *metadata.Put) { p.Preferred = []string{"b"} })
			return func() {
				c.read("k")
				move := &metadata.Transfer{Tenant: metadata.DefaultTenant, Key: "k", Client: client(2), Move: true, Source: "b", Targets: []string{"a"}}
				c.start(move)
				if _, err := c.endTransfer(move, true); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		life := params
		life.LeaseOnPutEnd = name == "put"
		c := newClusterWith(t, life)
		id := c.mount(1, "a", 1<<20)
		if name == "moved" {
			c.mount(2, "b", 1<<20)
		}
		meanwhile := arrive(c)
		number, _ := c.primary.FindSegment(id)
		look, hold := c.primary.BeginUnmountInSteps([]segment.Number{number}, c.now)
		look()
		called := c.now
		c.pass(10 * time.Millisecond)
		meanwhile()
		list, wait, err := leases(c.primary).GetReplicaList(metadata.DefaultTenant, "k", called)
		if wait != nil || err != nil || list.Replicas[0].Segment != "a" {
			t.Fatalf("%s: a read before readers are held: got %+v, error %v, want a replica on a at once", name, list, err)
		}
		claims, end := hold()
		o, err := c.primary.Inspect(metadata.DefaultTenant, "k")
		if err != nil {
			t.Fatal(err)
		}
		if !claimed(o, claims) {
			t.Errorf("L: %s: the lease until %d is not claimed: %+v", name, o.LeaseEnds, claims)
		}
		end()
	}
}

// An unmount whose term has ended while it looked does not hold, and so does not release, the
// readers that the unmount of the next term holds.
func TestLateUnmountHoldsNoReaders(t *testing.T) {
	c, number := withObject(t)
	lookLate, holdLate := c.primary.BeginUnmountInSteps([]segment.Number{number}, c.now)
	lookLate()
	_, end := c.primary.BeginUnmount([]segment.Number{number}, c.now)
	_, endLate := holdLate()
	endLate()
	if _, wait, err := leases(c.primary).GetReplicaList(metadata.DefaultTenant, "k", c.now); wait == nil {
		t.Errorf("L: a read while the next unmount is under way, and the late one has ended: got error %v at once, want to wait", err)
	}
	end()
}
