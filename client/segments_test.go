package client_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// pinging returns a client of all nodes that pings often, and what it sees.
func (c *cluster) pinging() (*client.Client, *witness) {
	c.t.Helper()
	w := new(witness)
	return connect(c.t, client.Config{Addresses: c.addresses(), PingInterval: 5 * time.Millisecond, Observer: w}), w
}

// answered returns how many calls of a method have succeeded.
func (w *witness) answered(method string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if c.method == method && c.kind == errs.OK {
			n++
		}
	}
	return n
}

// mounted returns the ids of the segments that the server knows, sorted.
func (c *cluster) mounted() (list []string) {
	for _, s := range c.store.Segments() {
		list = append(list, uuid.UUID(s.ID).String())
	}
	slices.Sort(list)
	return list
}

func ids(segments ...client.Segment) (list []string) {
	for _, s := range segments {
		list = append(list, s.ID.String())
	}
	slices.Sort(list)
	return list
}

// forget makes the server lose a client: it is expired, and a new term begins
// that does not know it.
func (c *cluster) forget(id uuid.UUID) {
	c.t.Helper()
	c.expire(c.nodes[0], id)
	c.lead(0)
}

// A client whose segments the server has forgotten mounts exactly those again that it still
// lends.
func TestRemountsWhenTold(t *testing.T) {
	cl := newCluster(t, 1)
	cl.lead(0)
	c, w := cl.pinging()
	keep, back, under := memory(1<<32), memory(1<<40), memory(1<<50)
	over := memory(1<<50 + 1<<20) // the same memory, in part
	for _, s := range []client.Segment{keep, back, under, over} {
		if err := c.MountSegment(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.UnmountSegment(t.Context(), back.ID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "unmounting once more", c.UnmountSegment(t.Context(), back.ID), errs.OK)
	if got, want := cl.mounted(), ids(keep, over); !slices.Equal(got, want) {
		t.Fatalf("mounted are %v, want %v", got, want)
	}
	for range 3 {
		before := len(w.remounted())
		cl.forget(c.ID())
		within(t, "the remount", func() bool { return len(w.remounted()) > before })
		if err := w.remounted()[before]; err != nil {
			t.Fatal(err)
		}
		if got, want := cl.mounted(), ids(keep, over); !slices.Equal(got, want) {
			t.Errorf("mounted again are %v, want %v", got, want)
		}
	}
	w.mu.Lock()
	if want := []int{2, 2, 2}; !slices.Equal(w.lent, want) {
		t.Errorf("remounts of %v segments, want %v", w.lent, want)
	}
	w.mu.Unlock()
	put(t, c, "k")
	// Known again, it is left in peace.
	n, pings := len(w.remounted()), w.answered("Ping")
	within(t, "further pings", func() bool { return w.answered("Ping") > pings+5 })
	if again := len(w.remounted()); again != n {
		t.Errorf("a client that is known again: got %d more remounts, want none", again-n)
	}
}

// A remount that is refused is tried again.
func TestRemountThatFails(t *testing.T) {
	cl := newCluster(t, 1)
	f := newFront(t, cl.lead(0).address)
	w := new(witness)
	c := connect(t, client.Config{Addresses: []string{f.address}, PingInterval: 5 * time.Millisecond, Observer: w})
	s := mountMemory(t, c)
	f.answering(func(method string, _, resp proto.Message, err error) (proto.Message, error) {
		if method == "ReMountSegment" && len(f.asked(method)) < 3 {
			return nil, status.Error(codes.Internal, "not today")
		}
		if r, ok := resp.(*pb.PingResponse); ok && len(f.asked("ReMountSegment")) < 3 {
			r.Status = pb.ClientStatus_CLIENT_STATUS_NEED_REMOUNT
		}
		return resp, err
	})
	within(t, "the third attempt", func() bool { return len(w.remounted()) == 3 })
	for i, err := range w.remounted() {
		want := errs.Internal
		if i == 2 {
			want = errs.OK
		}
		wantKind(t, "a remount", err, want)
	}
	if got := cl.mounted(); !slices.Equal(got, ids(s)) {
		t.Errorf("mounted are %v, want %v", got, ids(s))
	}
}

// Pings go on at the next primary, and begin with the first segment.
func TestKeepsPinging(t *testing.T) {
	cl := newCluster(t, 2)
	cl.lead(0)
	c, w := cl.pinging()
	for range 10 {
		if _, err := c.ExistKey(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.answered("Ping"); n != 0 {
		t.Errorf("%d pings without any segment, want 0", n)
	}
	s := mountMemory(t, c)
	for i := range 4 {
		n := w.answered("Ping")
		within(t, "pings", func() bool { return w.answered("Ping") > n+3 })
		cl.lead((i + 1) % 2)
	}
	if err := w.remounted(); len(err) > 0 {
		t.Errorf("after failovers that kept the segments: got %d remounts, %v, want none", len(err), err)
	}
	if err := c.UnmountSegment(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
}

// Changes of segments wait for one another, at most until their deadline.
func TestOneChangeOfSegmentsAtATime(t *testing.T) {
	cl := newCluster(t, 1)
	cl.lead(0)
	c := cl.connectAll()
	release := make(chan struct{})
	entered := make(chan struct{}, 1)
	cl.log.refusing(func() error {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-release
		return nil
	})
	var first sync.WaitGroup
	first.Go(func() { wantKind(t, "the first mount", c.MountSegment(context.Background(), memory(1<<32)), errs.OK) })
	<-entered
	err := c.MountSegment(soon(t, 50*time.Millisecond), memory(1<<40))
	wantKind(t, "a mount meanwhile", err, errs.Unavailable)
	close(release)
	first.Wait()
	if n := len(cl.mounted()); n != 1 {
		t.Errorf("%d segments are mounted, want 1", n)
	}
}

// A segment whose unmount gets no turn, as a remount is under way, is not mounted once more.
func TestUnmountDuringARemount(t *testing.T) {
	cl := newCluster(t, 1)
	f := newFront(t, cl.lead(0).address)
	w := new(witness)
	c := connect(t, client.Config{Addresses: []string{f.address}, PingInterval: 5 * time.Millisecond, Observer: w})
	back := mountMemory(t, c)
	keep := memory(1 << 40)
	if err := c.MountSegment(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	release, entered := make(chan struct{}), make(chan struct{}, 100)
	f.answering(func(method string, _, resp proto.Message, err error) (proto.Message, error) {
		if method == "ReMountSegment" {
			entered <- struct{}{}
			<-release
		}
		return resp, err
	})
	cl.forget(c.ID())
	<-entered
	err := c.UnmountSegment(soon(t, 50*time.Millisecond), back.ID)
	wantKind(t, "an unmount meanwhile", err, errs.Unavailable)
	if err == nil || !strings.Contains(err.Error(), "repeat the unmount") {
		t.Errorf("%v does not say what to do: want \"repeat the unmount\" in it", err)
	}
	close(release)
	within(t, "the remount", func() bool { return len(w.remounted()) > 0 })
	cl.forget(c.ID())
	within(t, "the next remount", func() bool { return len(w.remounted()) > 1 })
	if got, want := cl.mounted(), ids(keep); !slices.Equal(got, want) {
		t.Errorf("mounted are %v, want %v", got, want)
	}
}
