package service_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func TestClientsAndSegments(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	if known, err := f.Ping(ctx, owner(1)); !known || err != nil {
		t.Errorf("the owner of a segment from before this term: known %v, %v; want true", known, err)
	}
	if known, _ := f.Ping(ctx, owner(2)); known {
		t.Error("the Ping of a stranger: got known, want that it must remount")
	}
	spec := segment.Spec{ID: segment.ID{2}, Name: "b", Base: 1 << 33, Size: 1 << 20, Endpoint: "b:1", Client: owner(2)}
	if err := f.ReMountSegment(ctx, owner(2), []segment.Spec{spec, spec}); err != nil {
		t.Fatal(err)
	}
	if known, _ := f.Ping(ctx, owner(2)); !known {
		t.Error("the Ping of a client that has remounted: got unknown, want known")
	}
	if st := f.Store.Stats(); st.Segments != 2 || f.Liveness.Active() != 2 {
		t.Errorf("got %+v, %d clients; want Segments 2 and Active 2", st, f.Liveness.Active())
	}
	f.put(t, "k")
	if err := f.UnmountSegment(ctx, segment.ID{99}, nil); err != nil {
		t.Errorf("unmounting a segment that is not mounted: got %v, want no error", err)
	}
	if err := f.UnmountSegment(ctx, segment.ID{1}, nil); err != nil {
		t.Error(err)
	}
	if err := f.ReMountSegment(ctx, owner(3), nil); err != nil {
		t.Error(err)
	}
	if known, _ := f.Ping(ctx, owner(3)); !known {
		t.Error("a client that remounted no segments: got a ping that does not know it, want it known")
	}
}

func TestSilentClientsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *service.Master) {
			c.Liveness = service.NewLiveness(10*time.Second, 0, clock.Runtime(), c.Store)
		})
		f.put(t, "k")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = f.WatchClients(ctx, zerolog.Nop()) }()
		time.Sleep(5 * time.Second)
		if known, _ := f.Ping(ctx, owner(1)); !known {
			t.Fatal("a client silent for half its TTL: got it unknown, want it known")
		}
		time.Sleep(9500 * time.Millisecond)
		if st := f.Store.Stats(); st.Segments != 1 {
			t.Fatalf("a client silent for 9.5 s of 10: got %d segments, want 1: its TTL is not over", st.Segments)
		}
		time.Sleep(2 * time.Second)
		if st := f.Store.Stats(); st.Segments != 0 {
			t.Error("the segment of a client silent for its TTL is still mounted, want it unmounted")
		}
		if ok, _ := f.ExistKey(ctx, "default", "k"); ok {
			t.Error("the objects of a client silent for its TTL still exist, want them gone")
		}
		if known, _ := f.Ping(ctx, owner(1)); known {
			t.Error("an expired client's ping: got it known, want it to remount")
		}
	})
}

// What a client has published is deleted when it expires, unless a process that
// started again in its place uses the name: that one publishes only once.
func TestNameOfAnExpiredClient(t *testing.T) {
	for successor, want := range map[string][]string{"h": nil, "other": {"h"}} {
		synctest.Test(t, func(t *testing.T) {
			forgotten := make(chan []string, 1)
			f := newFixture(t, func(c *service.Master) {
				c.Liveness = service.NewLiveness(10*time.Second, 0, clock.Runtime(), c.Store)
				c.Expired = func(_ context.Context, names []string) { forgotten <- names }
			})
			f.mountNamed(t, 2, "h")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = f.WatchClients(ctx, zerolog.Nop()) }()
			time.Sleep(5 * time.Second)
			f.mountNamed(t, 3, successor)
			for f.Liveness.Watches(owner(2)) {
				time.Sleep(time.Second)
				_, _ = f.Ping(ctx, owner(1))
				_, _ = f.Ping(ctx, owner(3))
			}
			synctest.Wait()
			var got []string
			select {
			case got = <-forgotten:
			default:
			}
			if !slices.Equal(got, want) {
				t.Errorf("beside segment %q, the names %q are forgotten, want %q", successor, got, want)
			}
		})
	}
}

// A client of very many segments is mounted again with one call, in a time that
// grows with their number and not with its square. They go as one, and a single
// one of them is still found.
func TestReMountOfManySegments(t *testing.T) {
	const segments = 20_000
	f := newFixture(t)
	specs := make([]segment.Spec, segments)
	for i := range specs {
		specs[i] = segment.Spec{
			ID: segment.ID{2, byte(i >> 16), byte(i >> 8), byte(i)}, Name: fmt.Sprint("s", i%(segments/2)), Base: 1<<40 + uint64(i)<<20,
			Size: 1 << 20, Endpoint: "b:1", Client: owner(2),
		}
	}
	for range 2 { // a repeated call changes nothing
		want(t, "mounting all", f.ReMountSegment(t.Context(), owner(2), specs), errs.OK)
	}
	if got := len(f.p.Store.SegmentsOf(owner(2))); got != segments {
		t.Errorf("%d segments are mounted, want %d", got, segments)
	}
	before := f.p.Store.Position().Seq
	f.clock.Add(int64(4 * time.Second)) // their owner is silent
	overlap := specs[7]
	overlap.ID, overlap.Client, overlap.Base, overlap.Size = segment.ID{9}, owner(3), overlap.Base+1, 1<<20
	want(t, "mounting over two of them", f.MountSegment(t.Context(), overlap), errs.OK)
	if got := len(f.p.Store.SegmentsOf(owner(2))); got != segments-2 {
		t.Errorf("%d segments are left of them, want %d", got, segments-2)
	}
	want(t, "unmounting one", f.UnmountSegment(t.Context(), specs[3].ID, nil), errs.OK)
	n, err := f.ExpireClient(t.Context(), owner(2), never)
	if n != segments-3 || err != nil {
		t.Errorf("%d segments went with their client, %v; want %d", n, err, segments-3)
	}
	if got := len(f.p.Store.Segments()); got != 2 || f.p.Store.Position().Seq > before+40 {
		t.Errorf("%d segments are left, after %d commits; want 2 after at most 40", got, f.p.Store.Position().Seq-before)
	}
}

// Segments whose names are as long as they may be are mounted together too.
func TestReMountOfLongNames(t *testing.T) {
	f := newFixture(t)
	long := func(i int) string { return fmt.Sprintf("%0*d", metadata.MaxNameBytes, i) }
	specs := make([]segment.Spec, metadata.MaxMounts)
	for i := range specs {
		specs[i] = segment.Spec{
			ID: segment.ID{3, byte(i)}, Client: owner(3), Name: long(i), Endpoint: long(i), Protocol: long(i), HostID: long(i),
			Base: 1 << 32, Size: 1 << 20,
		}
	}
	if err := f.ReMountSegment(t.Context(), owner(3), specs); err != nil {
		t.Fatal(err)
	}
	if got := len(f.Store.SegmentsOf(owner(3))); got != len(specs) {
		t.Errorf("%d segments are mounted, want %d", got, len(specs))
	}
}

// An owner that went silent and comes back, and a mount over its memory, get what
// a reader has a lease on back only when that has ended.
func TestLeasesOutliveTheMount(t *testing.T) {
	f := newFixture(t)
	f.put(t, "x")
	if _, err := f.GetReplicaList(t.Context(), "default", "x"); err != nil {
		t.Fatal(err)
	}
	spec := segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 20, Endpoint: "a:1", Client: owner(1)}
	if n, err := f.ExpireClient(t.Context(), owner(1), never); n != 1 || err != nil {
		t.Fatalf("%d segments, %v; want 1", n, err)
	}
	want(t, "mounting again", f.MountSegment(t.Context(), spec), errs.OK)
	if got := f.Store.Stats().Quarantined; got != 104 {
		t.Errorf("%d bytes are in quarantine, want those of the lease", got)
	}
	f.p.Pass(12 * time.Second)
	f.put(t, "y")
	if _, err := f.GetReplicaList(t.Context(), "default", "y"); err != nil {
		t.Fatal(err)
	}
	spec.ID, spec.Client = segment.ID{2}, owner(2)
	f.clock.Add(int64(4 * time.Second)) // its owner is silent
	want(t, "mounting over it", f.MountSegment(t.Context(), spec), errs.OK)
	if got := f.Store.Stats().Quarantined; got != 104 {
		t.Errorf("after a mount over it %d bytes are in quarantine, want 104", got)
	}
}

// A process that starts anew under its client's id has none of the memory that
// the one before it lent, at the same address or another; in one process a
// repeated mount keeps its objects.
func TestMountOfAnotherInstance(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	mount := func(id byte, base, instance uint64) {
		t.Helper()
		spec := segment.Spec{ID: segment.ID{id}, Name: "h", Base: base << 32, Size: 1 << 20, Endpoint: "h:1", Client: owner(9), Instance: instance}
		want(t, "mount", f.MountSegment(ctx, spec), errs.OK)
	}
	objects := func(what string, want int) {
		t.Helper()
		if n := f.p.Alive("x", "y"); n != want {
			t.Errorf("%s: %d objects are left, want %d", what, n, want)
		}
	}
	onlyThere := func(p *metadata.Put) { p.Preferred = []string{"h"} }
	mount(8, 5, 1)
	mount(9, 6, 1)
	f.p.Put(onlyThere, "x", "y")
	mount(8, 5, 1)
	objects("mounted again", 2)
	mount(8, 5, 0)
	objects("mounted again by who does not say its instance", 2)
	mount(8, 5, 2)
	objects("mounted by another process", 0)
	if _, there := f.Store.FindSegment(segment.ID{9}); there {
		t.Error("a mount by another process: got the segment of the one before it, want it gone")
	}
	f.p.Put(onlyThere, "x", "y")
	want(t, "remount", f.ReMountSegment(ctx, owner(9), []segment.Spec{{ID: segment.ID{7}, Name: "h", Base: 7 << 32, Size: 1 << 20, Endpoint: "h:1", Client: owner(9), Instance: 3}}), errs.OK)
	objects("remounted by another process", 0)
}

// When another client mounts memory at an endpoint, the one before it is gone 3 s
// after it was heard last, and not after its TTL; unless it still pings, or has another
// identity.
func TestEndpointBelongsToOneProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		by   [3]service.Caller // of clients 2 to 4
		left int               // of their segments
	}{
		"without identities":   {[3]service.Caller{{Peer: "x"}, {Peer: "y"}, {}}, 2},
		"of one identity":      {[3]service.Caller{{Peer: "x", Identified: true}, {Peer: "x", Identified: true}, {Peer: "x", Identified: true}}, 2},
		"of other identities":  {[3]service.Caller{{Peer: "x", Identified: true}, {Peer: "y", Identified: true}, {Peer: "z", Identified: true}}, 3},
		"an owner without one": {[3]service.Caller{{}, {Peer: "y", Identified: true}, {Peer: "z", Identified: true}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, running)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _ = f.WatchClients(ctx, zerolog.Nop()) }()
				for i, by := range tc.by {
					n := byte(2 + i)
					spec := segment.Spec{ID: segment.ID{n}, Name: "h", Base: uint64(n) << 32, Size: 1 << 20, Endpoint: "h:1", Client: owner(n)}
					want(t, "mount", f.MountSegment(service.From(ctx, by), spec), errs.OK)
				}
				for range 8 { // client 2 is silent
					time.Sleep(500 * time.Millisecond)
					for n := byte(3); n <= 4; n++ {
						_, _ = f.Ping(ctx, owner(n))
					}
				}
				if left := f.Store.Stats().Segments - 1; left != tc.left || f.Liveness.Watches(owner(2)) != (tc.left == 3) { // one is of the fixture
					t.Errorf("after 4 s %d segments are mounted, want %d; the silent client counts as alive: %t", left, tc.left, f.Liveness.Watches(owner(2)))
				}
			})
		})
	}
}

// never is the answer of a client that is not back.
func never() bool { return false }

// manySegments are segments of one client, each at a host of its own.
func manySegments(n int) []segment.Spec {
	specs := make([]segment.Spec, n)
	for i := range specs {
		specs[i] = segment.Spec{
			ID: segment.ID{2, byte(i >> 16), byte(i >> 8), byte(i)}, Name: fmt.Sprintf("s%06d", i), Base: 1 << 40, Size: 1 << 20,
			Endpoint: fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), Client: owner(2),
		}
	}
	return specs
}

// The addresses of a client with many are all found, and nobody looks on for a caller that
// has gone.
func TestAddressesOfManySegments(t *testing.T) {
	const segments = 3000
	f := newFixture(t)
	want(t, "mounting all", f.ReMountSegment(t.Context(), owner(2), manySegments(segments)), errs.OK)
	clients := []segment.ClientID{owner(2), owner(1), owner(2), owner(9)}
	ips, err := f.BatchQueryIp(t.Context(), clients)
	if list := ips[owner(2)]; err != nil || len(ips) != 2 || len(list) != segments || list[0] != "10.0.0.0" || list[257] != "10.0.1.1" {
		t.Errorf("got %d clients, one with %d addresses, %v; want 2 and %d, in the order of the mounts", len(ips), len(list), err, segments)
	}
	ctx, gone := context.WithCancel(t.Context())
	gone()
	_, err = f.BatchQueryIp(ctx, clients)
	want(t, "a caller that has gone", err, errs.Unavailable)
}

// For others at an endpoint is looked once, however many segments are mounted there, and in
// whatever order; and for none if all were mounted already. To look takes allocations, and
// time in proportion to the segments there.
func TestOwnersAreLookedForOnce(t *testing.T) {
	f := newFixture(t)
	const segments = 1000
	remount := func(client byte, endpoints int) (specs []segment.Spec, again float64) {
		for i := range segments {
			specs = append(specs, segment.Spec{
				ID: segment.ID{client, byte(i), byte(i >> 8)}, Name: "b", Base: uint64(i+1) << 20, Size: 1, Endpoint: fmt.Sprint("e", client, i%endpoints), Client: owner(client),
			})
		}
		again = testing.AllocsPerRun(1, func() { // after a first one, which mounts them
			want(t, "ReMountSegment", f.ReMountSegment(t.Context(), owner(client), specs), errs.OK)
		})
		return specs, again
	}
	_, one := remount(2, 1)
	specs, two := remount(3, 2)
	if two > one+segments/2 {
		t.Errorf("to mount %d segments again takes %v allocations where two endpoints alternate, want about the %v of one endpoint", segments, two, one)
	}
	if got := testing.AllocsPerRun(1, func() { f.LookForOwners(specs) }); got > segments/2 {
		t.Errorf("to look for others at two endpoints takes %v allocations, want a few", got)
	}
}
