package service_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/segment"
)

// A mounting is a master whose commits wait until they are let through. It must
// be used in a bubble.
type mounting struct {
	*fixture
	log    *heldLog
	answer chan error
}

type call func(context.Context) error

// running has clients be heard by a clock that runs.
func running(c *service.Master) {
	c.Liveness = service.NewLiveness(10*time.Second, 0, clock.Runtime(), c.Store)
}

func newMounting(t *testing.T, change ...func(*service.Master)) *mounting {
	log := &heldLog{begun: make(chan struct{}), goOn: make(chan struct{})}
	change = append([]func(*service.Master){func(c *service.Master) { held(t, c, log) }}, change...)
	return &mounting{newFixture(t, change...), log, make(chan error)}
}

// leave makes a call whose caller goes while it is being written.
func (m *mounting) leave(t *testing.T, f call) {
	t.Helper()
	ctx, gone := context.WithCancel(t.Context())
	go func() { m.answer <- f(ctx) }()
	<-m.log.begun
	gone()
	want(t, "the call that was left", <-m.answer, errs.Unresolved)
}

// begin makes a call that comes as far as it can with all commits waiting.
func (m *mounting) begin(t *testing.T, f call) {
	go func() { m.answer <- f(t.Context()) }()
	synctest.Wait()
}

// finish lets all commits through, and returns the first error of the n calls
// that were begun, when nothing goes on any more.
func (m *mounting) finish(n int) (failed error) {
	m.log.goOn <- struct{}{}
	for patience := 10; ; {
		synctest.Wait()
		select {
		case <-m.log.begun:
			m.log.goOn <- struct{}{}
		case err := <-m.answer:
			if n--; failed == nil {
				failed = err
			}
		default:
			if n != 0 && patience > 0 { // a mount waits for the silence of an owner
				patience--
				time.Sleep(time.Second)
				continue
			}
			if n != 0 {
				return fmt.Errorf("got %d calls without an answer, want 0", n)
			}
			return failed
		}
	}
}

// other is a segment beside the one that held mounts.
func other() segment.Spec {
	return segment.Spec{ID: segment.ID{2}, Name: "b", Base: 2 << 32, Size: 1 << 20, Endpoint: "b:1", Client: owner(2)}
}

func (m *mounting) mount(spec segment.Spec) call {
	return func(ctx context.Context) error { return m.MountSegment(ctx, spec) }
}

// Memory must not be mounted twice, or two objects come to lie in one place: not
// by a caller that gives up while etcd is slow, and mounts again,
func TestMountRepeatedWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounting(t)
		m.leave(t, m.mount(other()))
		m.begin(t, m.mount(other()))
		want(t, "the repeated call", m.finish(1), errs.OK)
		if n := m.Store.Stats().Segments; n != 2 {
			t.Errorf("%d segments, want 2", n)
		}
	})
}

// nor by the one that takes its place when its owner has fallen silent,
func TestMountTakesThePlaceOfOneThatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounting(t, running)
		m.leave(t, m.mount(other()))
		restarted := other()
		restarted.ID, restarted.Client = segment.ID{3}, owner(3)
		m.begin(t, m.mount(restarted))
		want(t, "the restarted client", m.finish(1), errs.OK)
		if _, ok := m.Store.FindSegment(other().ID); ok || m.Store.Stats().Segments != 2 {
			t.Errorf("%d segments, want 2; the first mount is there: %t", m.Store.Stats().Segments, ok)
		}
	})
}

// and a mount that was acknowledged does not go with an unmount from before.
func TestMountBehindAnUnmountThatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounting(t)
		m.leave(t, func(ctx context.Context) error { return m.UnmountSegment(ctx, segment.ID{1}, nil) })
		again := segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 20, Endpoint: "a:1", Client: owner(1)}
		m.begin(t, m.mount(again))
		want(t, "the mount", m.finish(1), errs.OK)
		if _, ok := m.Store.FindSegment(again.ID); !ok {
			t.Error("a mount that was acknowledged: got no segment, want it there: an earlier unmount must not take it")
		}
	})
}

// Who cannot be looked after must not lend memory.
func TestMountOfOneClientTooMany(t *testing.T) {
	f := newFixture(t)
	f.Liveness.Share(share.Rule{What: "clients", Total: 16, Peer: 16, Few: 16})
	for i := range byte(16) {
		if err := f.Liveness.Add(service.Caller{}, segment.ClientID{9, i}); err != nil {
			break
		}
	}
	want(t, "the mount", f.MountSegment(t.Context(), other()), errs.Unavailable)
	if _, ok := f.Store.FindSegment(other().ID); ok {
		t.Error("a refused mount: got the segment, want none")
	}
}

// The memory of a client that died while it mounted is looked after.
func TestOwnersAreWatchedFromTheirMountOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounting(t)
		m.leave(t, m.mount(other()))
		want(t, "what was left", m.finish(0), errs.OK)
		if _, ok := m.Store.FindSegment(other().ID); !ok {
			t.Fatal("a mount whose caller left: got no segment, want it mounted")
		}
		if !m.Liveness.Watches(owner(2)) {
			t.Error("the owner of a segment whose mount was left: got it unwatched, want it to expire when silent")
		}
	})
}

// A client whose heartbeat was left gets objects to copy from the next one on.
func TestHeartbeatRepeatedWhileItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounting(t, offloading(100))
		m.begin(t, func(ctx context.Context) error { return m.MountLocalDisk(ctx, owner(1), false) })
		<-m.log.begun
		want(t, "the SSD", m.finish(1), errs.OK)
		beat := func(ctx context.Context) error {
			_, err := m.OffloadHeartbeat(ctx, owner(1), true)
			return err
		}
		m.leave(t, beat)
		want(t, "what was left", m.finish(0), errs.OK)
		want(t, "the next heartbeat", beat(t.Context()), errs.OK)
		m.begin(t, func(context.Context) error { m.put(t, "k"); return nil })
		<-m.log.begun
		want(t, "a put", m.finish(1), errs.OK)
		wantKeys(t, "given", tasks(t, m.Master), "k")
	})
}

// Of two clients that went silent one is still mounted when both come back: it
// is not unmounted behind its own return.
func TestClientsThatReturnWhileOthersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMounting(t, running)
		m.begin(t, m.mount(other()))
		<-m.log.begun
		want(t, "the mount", m.finish(1), errs.OK)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = m.WatchClients(ctx, zerolog.Nop()) }()
		caller := time.NewTicker(time.Second) // so that this node does not take itself to be cut off
		defer caller.Stop()
		for expiring := false; !expiring; {
			select {
			case <-caller.C:
				_, _ = m.ExistKey(ctx, "default", "k")
			case <-m.log.begun:
				if expiring = !m.Liveness.Watches(owner(1)); !expiring {
					m.log.goOn <- struct{}{} // a heartbeat of the journal
				}
			}
		}
		specs := []segment.Spec{{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 20, Endpoint: "a:1", Client: owner(1)}, other()}
		for _, spec := range specs {
			m.begin(t, func(ctx context.Context) error { return m.ReMountSegment(ctx, spec.Client, []segment.Spec{spec}) })
		}
		want(t, "the returns", m.finish(len(specs)), errs.OK)
		for _, spec := range specs {
			known, _ := m.Ping(ctx, spec.Client)
			if _, mounted := m.Store.FindSegment(spec.ID); !known || !mounted {
				t.Errorf("segment %s: mounted %t, its owner known %t; want both", spec.Name, mounted, known)
			}
		}
	})
}

// remounting has clients of two peers mount segments, and notes which peers are done.
type remounting struct {
	*mounting
	done []string
	fail []error
	ends sync.WaitGroup
	mu   sync.Mutex
}

func newRemounting(t *testing.T) *remounting { return &remounting{mounting: newMounting(t)} }

// call begins a call of a peer, as far as it comes with all commits waiting.
func (r *remounting) call(t *testing.T, peer string, f call) {
	ctx := service.From(t.Context(), service.Caller{Peer: peer})
	r.ends.Go(func() {
		err := f(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done, r.fail = append(r.done, peer), append(r.fail, err)
	})
	synctest.Wait()
}

// all lets all commits through, until all calls are done.
func (r *remounting) all(t *testing.T) {
	t.Helper()
	ended := make(chan struct{})
	go func() { r.ends.Wait(); close(ended) }()
	for {
		select {
		case <-r.log.begun:
			r.log.goOn <- struct{}{}
			continue
		case <-ended:
		}
		break
	}
	for i, err := range r.fail {
		want(t, r.done[i], err, errs.OK)
	}
}

func (r *remounting) remount(specs []segment.Spec) call {
	return func(ctx context.Context) error { return r.ReMountSegment(ctx, owner(2), specs) }
}

// far is a segment that no other one touches.
func far() segment.Spec {
	return segment.Spec{ID: segment.ID{7}, Name: "far", Base: 7 << 40, Size: 1 << 20, Endpoint: "far:1", Client: owner(7)}
}

// A peer whose clients mount very many segments, again and again, holds up the mount of
// another by no more than two of them,
func TestMountsTakeTurnsByPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemounting(t)
		r.call(t, "many", r.remount(manySegments(5000)))
		<-r.log.begun
		for range 20 {
			r.call(t, "many", r.remount(manySegments(1000))) // in one turn
			r.call(t, "many", r.remount(manySegments(5000)))
		}
		r.call(t, "one", r.mount(far()))
		r.log.goOn <- struct{}{}
		r.all(t)
		if before := slices.Index(r.done, "one"); before > 2 {
			t.Errorf("a mount waits for %d calls of another peer, want at most 2", before)
		}
	})
}

// and a single call holds it up by no more than its turn.
func TestMountBesideARemount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemounting(t)
		r.call(t, "many", r.remount(manySegments(5000)))
		<-r.log.begun
		r.call(t, "one", r.mount(far()))
		r.log.goOn <- struct{}{}
		r.all(t)
		if !slices.Equal(r.done, []string{"one", "many"}) {
			t.Errorf("%v are done in this order, want the mount first", r.done)
		}
		if n := len(r.Store.SegmentsOf(owner(2))); n != 5000 {
			t.Errorf("%d segments are mounted, want 5000", n)
		}
	})
}

// When it is answered all segments are mounted, whatever was unmounted meanwhile.
func TestUnmountBesideARemount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemounting(t)
		specs := manySegments(5000)
		r.call(t, "many", r.remount(specs))
		<-r.log.begun
		unmounted := false
		r.call(t, "one", func(ctx context.Context) error {
			err := r.UnmountSegment(ctx, specs[0].ID, nil)
			_, there := r.Store.FindSegment(specs[0].ID)
			unmounted = !there
			return err
		})
		r.log.goOn <- struct{}{}
		r.all(t)
		if missing := r.Store.NotMounted(specs); !unmounted || len(missing) != 0 {
			t.Errorf("one was unmounted meanwhile: %t; after it %d are not mounted, want true and 0", unmounted, len(missing))
		}
	})
}

// A caller that goes leaves the turns behind to others; when it calls again, it goes on.
func TestRemountThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemounting(t)
		specs := manySegments(5000)
		r.leave(t, r.remount(specs))
		r.log.goOn <- struct{}{}
		r.call(t, "one", r.mount(far()))
		r.all(t)
		if n := len(r.Store.NotMounted(specs)); n == 0 || n == len(specs) {
			t.Errorf("%d of %d segments are not mounted when the turn has ended, want some", n, len(specs))
		}
		if r.Liveness.Ping(owner(2)) {
			t.Error("a ping after half a remount: got the client known, want it asked for the missing segments")
		}
		r.call(t, "many", r.remount(specs))
		r.all(t)
		if n := len(r.Store.NotMounted(specs)); n != 0 {
			t.Errorf("after the next call %d segments are not mounted, want 0", n)
		}
		if !r.Liveness.Ping(owner(2)) {
			t.Error("after the next call a Ping asks for segments, want none")
		}
	})
}
