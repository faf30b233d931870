package rpc_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/service/kvevents"
)

// newEventsNode starts a node whose feed has seen one commit.
func newEventsNode(t *testing.T) *node {
	feed := kvevents.New(16, func() string { return "h" })
	n := newNode(t, func(c *rpc.Config) { c.KVEvents = feed })
	feed.Applied(n.store, 1, 1, false)
	return n
}

func (n *node) follow(after *pb.KvPosition) (*pb.KvEventsResponse, error) {
	n.t.Helper()
	stream, err := n.objects.KvEvents(n.t.Context(), &pb.KvEventsRequest{After: after})
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// Who begins anew has no position until it has got all keys: with the one from before,
// another node that knows it would leave out the keys that were forgotten. No position
// that a caller makes up is taken for one of the journal.
func TestResyncTakesThePosition(t *testing.T) {
	n := newEventsNode(t)
	for _, after := range []*pb.KvPosition{
		nil, {}, {History: "h", Term: 1, Sequence: 2}, {History: "g", Term: 1, Sequence: 1}, {History: "h", Term: 1, Sequence: 1<<64 - 1},
		{History: "h", Term: 1<<32 + 1, Sequence: 1}, {Term: 1, Sequence: 1}, {History: "h", Sequence: 1},
	} {
		r, err := n.follow(after)
		if err != nil || !r.GetResync() || r.GetThrough() == nil || !proto.Equal(r.GetThrough(), new(pb.KvPosition)) {
			t.Errorf("after %v: got %v, %v; want a resync that sets the position to none", after, r, err)
		}
	}
	r, err := n.follow(&pb.KvPosition{History: "h", Term: 1, Sequence: 1})
	if err != nil || r.GetResync() {
		t.Errorf("after all there is: got %v, %v; want no resync", r, err)
	}
}

// One host leaves half of the places to others, however often it subscribes, and gets
// them back.
func TestSubscribersOfOneHost(t *testing.T) {
	n := newEventsNode(t)
	conn := n.dial()
	here := n.objects
	n.objects = pb.NewObjectServiceClient(conn)
	const half = 128
	for i := range half {
		if _, err := n.follow(nil); err != nil {
			t.Fatalf("subscriber %d of a host: got error %v, want %d of them taken", i, err, half)
		}
	}
	_, err := n.follow(nil)
	wantKind(t, "one too many", err, errs.Unavailable)
	_ = conn.Close()
	n.objects = here
	within(t, "places are free again", func() bool { _, err := n.follow(nil); return err == nil })
}

// A primary whose right to answer has lapsed sends nothing more: another one may serve, and
// who hears that nothing happens would stay here.
func TestNoEventsOfAFencedNode(t *testing.T) {
	n := newEventsNode(t)
	stream, err := n.objects.KvEvents(t.Context(), &pb.KvEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	n.fenced.Store(true)
	for range 5 { // the walk, and what was on its way
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	if from := wantKind(t, "in a stream", err, errs.NotLeader); from.Term != term {
		t.Errorf("got %+v, want term %d", from, term)
	}
	_, err = n.follow(nil)
	wantKind(t, "a new one", err, errs.NotLeader)
}
