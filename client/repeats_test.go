package client_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/metadata"
)

// ahead returns a client whose clock the test moves on.
func ahead(t *testing.T, addresses ...string) (*client.Client, *atomic.Int64) {
	t.Helper()
	by := new(atomic.Int64)
	c, err := client.NewAhead(client.Config{Addresses: addresses, PingInterval: time.Hour}, by)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, by
}

// Nodes forget request ids. The client does not repeat a call whose id may be forgotten, since
// it could affect a later object.
func TestRepeatsEndBeforeNodesForgetTheRequest(t *testing.T) {
	cl := newCluster(t, 1)
	f := newFront(t, cl.lead(0).address)
	c, by := ahead(t, f.address)
	mountMemory(t, c)
	kept := time.Duration(metadata.RequestsKept) * time.Millisecond
	for _, tc := range []struct {
		name  string
		after time.Duration // of the first attempt, the second would be made
		asked int
	}{{"long before", kept / 2, 2}, {"shortly before", kept * 3 / 4, 1}, {"after", kept * 2, 1}} {
		put(t, c, "k")
		before := len(f.asked("Remove"))
		lost := false
		f.answering(func(method string, _, resp proto.Message, err error) (proto.Message, error) {
			if method != "Remove" || lost {
				return resp, err
			}
			lost = true
			by.Add(int64(tc.after))
			return nil, errLost
		})
		err := c.Remove(soon(t, 10*time.Minute), "k", client.Removal{})
		if tc.asked == 1 {
			wantUnresolved(t, tc.name, err)
			if err != nil && !strings.Contains(err.Error(), "forget") {
				t.Errorf("%s: %v does not say why: want \"forget\" in it", tc.name, err)
			}
		} else {
			wantKind(t, tc.name, err, errs.OK)
		}
		if n := len(f.asked("Remove")) - before; n != tc.asked {
			t.Errorf("%s: asked %d times, want %d", tc.name, n, tc.asked)
		}
	}
}

// Items that one run of a batch leaves open stay open, even if a later run fails for another
// reason.
func TestRepeatsOfABatchEndBeforeNodesForgetTheRequest(t *testing.T) {
	cl := newCluster(t, 1)
	f := newFront(t, cl.lead(0).address)
	c, by := ahead(t, f.address)
	asked := 0
	f.answering(func(method string, _, resp proto.Message, err error) (proto.Message, error) {
		r, ok := resp.(*pb.BatchRemoveResponse)
		if !ok || err != nil {
			return resp, err
		}
		switch asked++; asked {
		case 1: // all keys: the second one has an outcome
			r.Errors = []*pb.ItemError{{Index: 0, Kind: pb.Kind_KIND_UNAVAILABLE_IN_CURRENT_STATUS}, {Index: 2, Kind: pb.Kind_KIND_UNAVAILABLE_IN_CURRENT_STATUS}}
			r.Succeeded = 1
		case 2:
			r.Errors, r.Succeeded = []*pb.ItemError{{Index: 0, Kind: pb.Kind_KIND_RPC_TIMEOUT}}, 0
		case 3:
			by.Add(2 * int64(metadata.RequestsKept) * int64(time.Millisecond))
			return nil, rpcerr.Status(errs.Unavailable, method, rpcerr.Source{Term: r.Header.Term, ClusterID: r.Header.ClusterId, NodeID: r.Header.NodeId}).Err()
		}
		return resp, err
	})
	removed, err := c.BatchRemove(soon(t, 10*time.Minute), []string{"x", "y", "z"}, client.Removal{})
	wantKinds(t, "removals", removed, err, errs.Unresolved, errs.OK, errs.Unavailable)
	if asked != 3 {
		t.Errorf("asked %d times, want 3: nodes may have forgotten the request", asked)
	}
}

// An attempt that hangs ends in time too, and so does the wait for a primary.
func TestAttemptsEndBeforeNodesForgetTheRequest(t *testing.T) {
	cl := newCluster(t, 1)
	f := newFront(t, cl.lead(0).address)
	c, by := ahead(t, f.address)
	mountMemory(t, c)
	for name, second := range map[string]func(release <-chan struct{}){
		"a repeat that hangs": func(release <-chan struct{}) { <-release },
		"nobody serves":       func(<-chan struct{}) { cl.rest() },
	} {
		cl.lead(0)
		put(t, c, "k")
		release := make(chan struct{})
		attempts := 0
		f.answering(func(method string, _, resp proto.Message, err error) (proto.Message, error) {
			if method != "Remove" {
				return resp, err
			}
			if attempts++; attempts == 1 {
				by.Add(int64(39_500 * time.Millisecond))
			}
			if attempts == 2 {
				second(release)
			}
			return nil, errLost
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		wantUnresolved(t, name, c.Remove(ctx, "k", client.Removal{}))
		if ctx.Err() != nil {
			t.Errorf("%s: it took until the deadline, want the end before the request is forgotten", name)
		}
		cancel()
		close(release)
		f.answering(nil)
	}
}

// A call that hangs at a primary that has refused another call also goes on at the next primary.
func TestCallAtAReplacedLeader(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 2)
	f := newFront(t, cl.nodes[0].address)
	cl.nodes[0].hint = f.address
	cl.lead(0)
	c := connect(t, client.Config{Addresses: []string{f.address, cl.nodes[1].address}, PingInterval: time.Hour})
	mountMemory(t, c)
	put(t, c, "k")
	hanging, release := make(chan struct{}), make(chan struct{})
	hangs := sync.OnceFunc(func() { close(hanging) })
	defer close(release)
	f.answering(func(method string, _, resp proto.Message, err error) (proto.Message, error) {
		if method == "GetReplicaList" {
			hangs()
			<-release
		}
		return resp, err
	})
	done := make(chan error, 1)
	ctx := soon(t, 20*time.Second)
	go func() { _, err := c.GetReplicaList(ctx, "k"); done <- err }()
	<-hanging
	cl.rest()
	other := make(chan error, 1)
	go func() { _, err := c.ExistKey(ctx, "k"); other <- err }()
	asked := cl.nodes[1].asked.Load()
	within(t, "the other call to look for a leader", func() bool { return cl.nodes[1].asked.Load() > asked })
	cl.lead(1)
	wantKind(t, "the call that was turned away", <-other, errs.OK)
	wantKind(t, "the call that hangs", <-done, errs.OK)
}

// A connection that a router has silently dropped is replaced before the server expires the
// client.
func TestForgottenConnection(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 1)
	n := cl.lead(0)
	router, err := netfault.Listen(n.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(router.Close)
	n.hint = router.Addr()
	c := connect(t, client.Config{Addresses: []string{router.Addr()}})
	mountMemory(t, c)
	put(t, c, "k")
	router.LoseBusiest()
	begun := time.Now()
	_, err = c.ExistKey(soon(t, 20*time.Second), "k")
	wantKind(t, "afterwards", err, errs.OK)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v, want less than the 10 s after which the server forgets the client", took)
	}
}
