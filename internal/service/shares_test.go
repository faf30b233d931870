package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// lent is memory of a client, at the place of all others of the same base.
func lent(client, id, base byte) segment.Spec {
	return segment.Spec{ID: segment.ID{id}, Name: "b", Base: uint64(base) << 32, Size: 1 << 20, Endpoint: "b:1", Client: owner(client)}
}

// A client that is alive keeps its memory, whoever mounts there. One that is silent loses
// it to a process that starts in its place, which waits for that; with another identity only
// when the client has expired. Under its own id a client gets its place at once.
func TestPlaceOfALivingClient(t *testing.T) {
	for name, tc := range map[string]struct {
		by    service.Caller // the owner is x
		alive bool
		takes time.Duration
		want  errs.Kind
	}{
		"the owner pings":                      {service.Caller{Peer: "x"}, true, 3 * time.Second, errs.Unavailable},
		"the owner is silent":                  {service.Caller{Peer: "x"}, false, 3 * time.Second, errs.OK},
		"the owner pings, with identities":     {service.Caller{Peer: "y", Identified: true}, true, 10 * time.Second, errs.Unavailable},
		"the owner is silent, with identities": {service.Caller{Peer: "y", Identified: true}, false, 10 * time.Second, errs.OK},
		"the owner pings, of one identity":     {service.Caller{Peer: "x", Identified: true}, true, 3 * time.Second, errs.Unavailable},
		"the owner is silent, of one identity": {service.Caller{Peer: "x", Identified: true}, false, 3 * time.Second, errs.OK},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, running)
				from := service.From(t.Context(), service.Caller{Peer: "x", Identified: tc.by.Identified})
				want(t, "the first mount", f.MountSegment(from, lent(2, 2, 5)), errs.OK)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					for tc.alive && clock.Sleep(ctx, time.Second) == nil {
						_, _ = f.Ping(ctx, owner(2))
					}
				}()
				began := time.Now()
				err := f.MountSegment(service.From(ctx, tc.by), lent(3, 3, 5))
				took := time.Since(began)
				want(t, "the mount in its place", err, tc.want)
				if took < tc.takes || took > tc.takes+time.Second {
					t.Errorf("it took %v, want about %v", took, tc.takes)
				}
				if _, there := f.Store.FindSegment(segment.ID{2}); there == (tc.want == errs.OK) {
					t.Errorf("the first segment, after a mount in its place: got it there: %t, want %t", there, tc.want != errs.OK)
				}
				if tc.alive && !strings.Contains(err.Error(), owner(2).String()) {
					t.Errorf("a mount in a living client's place: got error %v, want it to name the client %v", err, owner(2))
				}
				cancel()
				began = time.Now()
				other := lent(2, 4, 6)
				want(t, "another mount of a living client", f.MountSegment(t.Context(), other), errs.OK)
				other.ID = segment.ID{5}
				want(t, "one in its place, under its own id", f.MountSegment(t.Context(), other), errs.OK)
				if took := time.Since(began); took != 0 {
					t.Errorf("a client's mount in its own place: got it after %v, want it at once", took)
				}
			})
		})
	}
}

// A caller who cannot wait until a living client would count as dead learns at once who has
// the place: after its deadline it would learn nothing.
func TestNoVainWaitForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, running)
		want(t, "the first mount", f.MountSegment(t.Context(), lent(2, 2, 5)), errs.OK)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		err := f.MountSegment(ctx, lent(3, 3, 5))
		want(t, "the mount in its place", err, errs.Unavailable)
		if took := time.Since(began); took != 0 || !strings.Contains(err.Error(), owner(2).String()) {
			t.Errorf("got %v after %v, want the owner's name at once", err, took)
		}
	})
}

// One peer has its share of segments, whatever client ids it uses, and leaves others
// theirs. What is unmounted can be mounted again.
func TestSegmentsAreShared(t *testing.T) {
	f := newFixture(t, func(c *service.Master) {
		c.Shares.Segments = share.Rule{What: "segments", Setting: "max-segments", Total: 16, Peer: 8, Few: 2}
	})
	mount := func(peer string, n byte) error {
		s := lent(n, n, n)
		return f.MountSegment(service.From(t.Context(), service.Caller{Peer: peer}), s)
	}
	for n := range byte(8) {
		want(t, "a mount of the first peer", mount("a", 10+n), errs.OK)
	}
	err := mount("a", 30)
	if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "--max-segments") {
		t.Errorf("one too many: got %v, want Unavailable, and what helps", err)
	}
	want(t, "mounted already", mount("a", 17), errs.OK)
	want(t, "a mount of another peer", mount("b", 31), errs.OK)
	want(t, "unmounting", f.UnmountSegment(t.Context(), segment.ID{17}, nil), errs.OK)
	want(t, "a mount in place of that", mount("a", 30), errs.OK)
}

// What a peer has unmounted counts as long as somebody may still write to it: one that goes
// from endpoint to endpoint leaves others theirs.
func TestClaimedEndpointsAreShared(t *testing.T) {
	f := newFixture(t, func(c *service.Master) {
		c.Shares.Segments = share.Rule{What: "segments", Setting: "max-segments", Total: 16, Peer: 8, Few: 2}
	})
	mount := func(peer string, n byte) error {
		s := lent(n, n, n)
		s.Name = "h" + string(rune('a'+n))
		s.Endpoint = s.Name + ":1"
		return f.MountSegment(service.From(t.Context(), service.Caller{Peer: peer}), s)
	}
	unmount := func(n byte) {
		t.Helper()
		want(t, "unmounting", f.UnmountSegment(t.Context(), segment.ID{n}, nil), errs.OK)
	}
	for n := byte(10); n < 18; n++ {
		want(t, "a mount of the first peer", mount("a", n), errs.OK)
		put := start(n)
		put.Config.Preferred = []string{"h" + string(rune('a'+n))}
		_, err := f.PutStart(t.Context(), put, service.PutItem{Key: string(rune('a' + n)), Size: 100})
		want(t, "a writer", err, errs.OK)
		unmount(n)
	}
	err := mount("a", 30)
	if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "--max-segments") || !strings.Contains(err.Error(), "reservations there have ended") {
		t.Errorf("one endpoint too many: got %v, want Unavailable, and what helps", err)
	}
	want(t, "at an endpoint where it was", mount("a", 17), errs.OK)
	unmount(17)
	want(t, "a mount of another peer", mount("b", 31), errs.OK)
	f.p.Pass(params.ReleaseTimeout + 2*time.Second)
	want(t, "a mount of another peer", mount("b", 32), errs.OK) // a commit, with which claims end
	want(t, "when the writers have gone", mount("a", 30), errs.OK)
}

// Hosts that restart come back to their endpoints, however much of its share their peer has.
func TestClaimsKeepNoHostFromItsEndpoint(t *testing.T) {
	f := newFixture(t, func(c *service.Master) {
		c.Shares.Segments = share.Rule{What: "segments", Setting: "max-segments", Total: 16, Peer: 8, Few: 2}
	})
	mount := func(n byte, instance uint64) error {
		s := lent(n, n, n)
		s.Name = "h" + string(rune('a'+n))
		s.Endpoint, s.Instance = s.Name+":1", instance
		return f.MountSegment(service.From(t.Context(), service.Caller{Peer: "a"}), s)
	}
	for n := byte(10); n < 17; n++ {
		want(t, "a mount", mount(n, 1), errs.OK)
		put := start(n)
		put.Config.Preferred = []string{"h" + string(rune('a'+n))}
		_, err := f.PutStart(t.Context(), put, service.PutItem{Key: string(rune('a' + n)), Size: 100})
		want(t, "a writer", err, errs.OK)
	}
	for n := byte(10); n < 17; n++ {
		want(t, "a mount after a restart", mount(n, 2), errs.OK)
	}
	if all, own := f.Store.Use("a"); own.Segments != 7 || own.Claimed != 7 || all.Claimed != 7 {
		t.Errorf("got %+v, and %+v of the peer; want 7 segments, and claims at 7 endpoints", all, own)
	}
}

// Who takes memory away from others by mounting is reported: in the place of another client,
// or under a client's id from elsewhere. A client that starts anew is not.
func TestMountsThatDisplaceAreReported(t *testing.T) {
	var reported []string
	f := newFixture(t, func(c *service.Master) {
		c.Displaced = func(by service.Caller, client segment.ClientID, from metadata.Lender) {
			reported = append(reported, fmt.Sprintf("%s for %d took from %d of %s", by.Peer, client[0], from.Client[0], from.Peer))
		}
	})
	mount := func(peer string, n, id byte, base, instance uint64) error {
		spec := segment.Spec{ID: segment.ID{id}, Name: "h", Base: base << 32, Size: 1 << 20, Endpoint: "h:1", Client: owner(n), Instance: instance}
		return f.MountSegment(service.From(t.Context(), service.Caller{Peer: peer}), spec)
	}
	expect := func(what string, lines ...string) {
		t.Helper()
		if !slices.Equal(reported, lines) {
			t.Errorf("%s: got %q, want %q", what, reported, lines)
		}
		reported = nil
	}
	want(t, "a mount", mount("a", 10, 10, 1, 1), errs.OK)
	want(t, "another one", mount("a", 10, 11, 2, 1), errs.OK)
	want(t, "a client that starts anew", mount("a", 10, 12, 1, 2), errs.OK)
	expect("a client that starts anew")
	want(t, "a stranger under its id", mount("b", 10, 13, 7, 3), errs.OK)
	expect("a stranger under its id", "b for 10 took from 10 of a")
	want(t, "in its place, under its id", mount("c", 10, 14, 7, 0), errs.OK)
	expect("in its place, under its id", "c for 10 took from 10 of b")
	f.clock.Store(int64(5 * time.Second)) // its owner is silent
	want(t, "another client", mount("c", 11, 15, 7, 0), errs.OK)
	expect("another client", "c for 11 took from 10 of c")
}

// So it has its share of the memory that can be mounted at all, however large it says that its
// segments are: others can mount beside it.
func TestMountedMemoryIsShared(t *testing.T) {
	f := newFixture(t, func(c *service.Master) {
		c.Shares.Mounted = share.NewRule("MiB of mounted memory", "", int64(metadata.MaxMounted>>20), 0.5, 64<<20)
	})
	mount := func(peer string, n byte, size uint64) error {
		s := lent(n, n, n)
		s.Base, s.Size = 1, size
		s.Endpoint = string(rune('a' + n))
		return f.MountSegment(service.From(t.Context(), service.Caller{Peer: peer}), s)
	}
	want(t, "less than half of all", mount("a", 10, 1<<61), errs.OK)
	err := mount("a", 11, segment.MaxSize)
	if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "MiB of mounted memory") {
		t.Errorf("more than half: got %v, want Unavailable, and of what", err)
	}
	want(t, "half of all", mount("a", 11, 1<<61-1<<30), errs.OK)
	want(t, "another peer", mount("b", 12, 1<<60), errs.OK)
	want(t, "unmounting", f.UnmountSegment(t.Context(), segment.ID{10}, nil), errs.OK)
	want(t, "in place of that", mount("a", 13, 1<<61), errs.OK)
}

// So it has its share of the bytes of names: all segments are encoded in one piece.
func TestNamesOfSegmentsAreShared(t *testing.T) {
	f := newFixture(t, func(c *service.Master) {
		c.Shares.Names = share.NewRule("bytes of names of segments", "max-segments", 8<<10, 0.5, 1<<10)
	})
	mount := func(peer string, n byte, length int) error {
		s := lent(n, n, n)
		s.Endpoint, s.Protocol, s.HostID = string(rune('a'+n)), "", ""
		s.Name = string(rune('a'+n)) + strings.Repeat("x", length-2)
		return f.MountSegment(service.From(t.Context(), service.Caller{Peer: peer}), s)
	}
	for n := byte(10); n < 14; n++ {
		want(t, "half of all", mount("a", n, 1000), errs.OK)
	}
	err := mount("a", 14, 1000)
	if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "bytes of names of segments") {
		t.Errorf("more than half: got %v, want Unavailable, and of what", err)
	}
	want(t, "another peer", mount("b", 15, 1000), errs.OK)
	want(t, "unmounting", f.UnmountSegment(t.Context(), segment.ID{10}, nil), errs.OK)
	want(t, "in place of that", mount("a", 16, 1000), errs.OK)
	if all, own := f.Store.Use("a"); own.Names != 4000 || all.Names < 5000 {
		t.Errorf("the peer has %d bytes of names of %d, want 4000 of 5000 and what was there", own.Names, all.Names)
	}
}

// A put that was made is answered as before, though its peer has no room for new keys by then.
func TestARepeatedPutIsNotRefused(t *testing.T) {
	f := newFixture(t, func(c *service.Master) {
		c.Shares.KeyBytes = share.Rule{What: "key bytes", Setting: "max-key-bytes", Total: 16 * metadata.KeyBytes("k-1"), Peer: metadata.KeyBytes("k-1"), Few: 1}
	})
	r := start(1)
	r.Peer, r.Request = "a", 77
	first, err := f.PutStart(t.Context(), r, service.PutItem{Key: "k-1", Size: 100})
	want(t, "all that the peer may have", err, errs.OK)
	again, err := f.PutStart(t.Context(), r, service.PutItem{Key: "k-1", Size: 100})
	if err != nil || again.ID != first.ID {
		t.Errorf("the same call again: got %v, %v, want the reservation %v that was made (V)", again.ID, err, first.ID)
	}
	r.Request = 78
	_, err = f.PutStart(t.Context(), r, service.PutItem{Key: "k-2", Size: 100})
	want(t, "another key", err, errs.NoAvailableHandle)
}

// Keys count for the peer that put them, under whatever client id, until they are gone.
func TestKeysAreShared(t *testing.T) {
	bytes := metadata.KeyBytes("k-00")
	f := newFixture(t, func(c *service.Master) {
		c.Shares.KeyBytes = share.Rule{What: "key bytes", Setting: "max-key-bytes", Total: 16 * bytes, Peer: 8 * bytes, Few: 2 * bytes}
	})
	keys := func(from int, n int) (items []service.PutItem) {
		for i := range n {
			items = append(items, service.PutItem{Key: "k-" + string(rune('a'+from)) + string(rune('a'+i)), Size: 100})
		}
		return items
	}
	put := func(peer string, client byte, items []service.PutItem) error {
		r := start(client)
		r.Peer = peer
		_, failed, err := f.BatchPutStart(t.Context(), r, items)
		return errors.Join(append(failed, err)...)
	}
	want(t, "half of all", put("a", 1, keys(1, 4)), errs.OK)
	want(t, "under another client id", put("a", 2, keys(2, 4)), errs.OK)
	err := put("a", 3, keys(3, 1))
	if errs.KindOf(err) != errs.NoAvailableHandle || !strings.Contains(err.Error(), "--max-key-bytes") {
		t.Errorf("one too many: got %v, want NoAvailableHandle, and what helps", err)
	}
	if n := f.failed.Load(); n != 1 {
		t.Errorf("%d evictions were asked for, want 1: a peer that is alone makes room for itself", n)
	}
	want(t, "another peer", put("b", 4, keys(4, 6)), errs.OK)
	want(t, "one too many, beside others", put("a", 3, keys(3, 1)), errs.NoAvailableHandle)
	if n := f.failed.Load(); n != 1 {
		t.Errorf("%d evictions were asked for, want no other; objects of others must not go for one peer's keys", n)
	}
	want(t, "past what is kept for those with few", put("b", 4, keys(5, 1)), errs.NoAvailableHandle)
	if n := f.failed.Load(); n != 2 {
		t.Errorf("%d evictions were asked for, want 2: all keys together are too many", n)
	}
	want(t, "a peer with few", put("c", 5, keys(6, 2)), errs.OK)
	if _, err := f.RemoveAll(t.Context(), service.RemoveRequest{Tenant: "default", Force: true}); err != nil {
		t.Fatal(err)
	}
	for _, it := range keys(1, 4) {
		want(t, "revoking", f.PutRevoke(t.Context(), update(1), service.UpdateItem{Key: it.Key}), errs.OK)
	}
	want(t, "in place of what is gone", put("a", 3, keys(3, 2)), errs.OK)
}

// What clients had before a takeover counts for their peers from their first ping on, so
// that one peer gets no second share with each new primary.
func TestSharesAfterATakeover(t *testing.T) {
	f := newFixture(t, func(c *service.Master) {
		c.Shares.Segments = share.Rule{What: "segments", Setting: "max-segments", Total: 16, Peer: 2, Few: 1}
		c.Shares.KeyBytes = share.Rule{What: "key bytes", Setting: "max-key-bytes", Total: 16 * metadata.KeyBytes("k"), Peer: 2 * metadata.KeyBytes("k"), Few: 1}
	})
	from := func(peer string) context.Context { return service.From(t.Context(), service.Caller{Peer: peer}) }
	put := func(peer, key string) error {
		r := start(2)
		r.Peer = peer
		_, err := f.PutStart(t.Context(), r, service.PutItem{Key: key, Size: 100})
		return err
	}
	for n := range byte(2) { // without a peer, as a node that follows applies them
		want(t, "a mount before the takeover", f.MountSegment(t.Context(), lent(2, 20+n, 20+n)), errs.OK)
		want(t, "a put before it", put("", string('a'+rune(n))), errs.OK)
	}
	next := *f.Master // of the next term
	next.Liveness = service.NewLiveness(10*time.Second, 0, func() time.Duration { return 0 }, f.p.Store)
	next.Liveness.Share(share.Rule{What: "clients", Setting: "max-clients", Total: 16, Peer: 1, Few: 1})
	f.Master = service.NewMaster(next)
	for _, peer := range []string{"a", "b"} { // what counts for the first one does not change hands
		if known, err := f.Ping(from(peer), owner(2)); !known || err != nil {
			t.Errorf("a ping of a known client, by peer %s: got known %v, error %v, want it known", peer, known, err)
		}
	}
	all, own := f.p.Store.Use("a")
	if own.Mounted == 0 || own.Mounted >= all.Mounted {
		t.Errorf("the peer has mounted %d bytes of %d, want two segments of three", own.Mounted, all.Mounted)
	}
	own.Mounted = 0
	if own != (metadata.Use{Segments: 2, Names: 2 * metadata.NameBytes(lent(2, 2, 2)), KeyBytes: 2 * metadata.KeyBytes("k")}) || all.Segments != 3 || all.KeyBytes != own.KeyBytes {
		t.Errorf("the peer has %+v of %+v, want two segments and keys; one segment is of the fixture", own, all)
	}
	if _, b := f.p.Store.Use("b"); b != (metadata.Use{}) {
		t.Errorf("another peer that pinged has %+v, want nothing", b)
	}
	want(t, "one segment too many", f.MountSegment(from("a"), lent(2, 30, 30)), errs.Unavailable)
	want(t, "one key too many", put("a", "c"), errs.NoAvailableHandle)
	want(t, "one client too many", f.Liveness.Add(service.Caller{Peer: "a"}, owner(9)), errs.Unavailable)
	want(t, "another peer", f.MountSegment(from("b"), lent(3, 31, 31)), errs.OK)
	want(t, "unmounting", f.UnmountSegment(t.Context(), segment.ID{20}, nil), errs.OK)
	want(t, "in place of that", f.MountSegment(from("a"), lent(2, 32, 32)), errs.OK)
}
