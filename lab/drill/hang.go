package drill

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/lab/cluster"
)

// hangingObjects is how many objects lie in the memory of the client that waits.
const hangingObjects = 200

// hangPrimary stops the primary under a client that then waits for the answer to a
// Ping, for longer than clients live without one. It must not expire.
func hangPrimary(ctx context.Context, e *Env) {
	patience, ep := 30*time.Second, episode{} // what Mooncake's clients wait for, and the defaults of nodes
	if e.Short {
		patience = 6 * time.Second
		ep.Args = []string{"--client_ttl=2s", "--client-rpc-timeout=" + patience.String()}
	}
	e.rounds(ctx, ep, func(ctx context.Context) {
		p := e.ready(ctx)
		owner := newWaitingOwner(ctx, e.result.Rounds, p.primary)
		next, _ := e.failover(ctx, p.primary, p.term, "SIGSTOP of", p.primary.Pause)
		waits, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := owner.client.Ping(waits, &pb.PingRequest{ClientId: owner.id})
		e.result.check("the Ping hangs", err != nil && waits.Err() != nil, "its end after %v: %v", patience, err)
		e.did("a Ping waited for %v", patience)
		e.nothingLost(ctx, next, owner)
		do(p.primary.Resume())
		do(p.primary.UntilPromotable(ctx))
	})
}

// A waitingOwner lends memory, puts objects there, and calls one node only.
type waitingOwner struct {
	client   pb.ClientServiceClient
	id, name string
	keys     []string
}

func newWaitingOwner(ctx context.Context, number int, n *cluster.Node) *waitingOwner {
	o := &waitingOwner{client: pb.NewClientServiceClient(n.Conn), id: uuid.NewString(), name: fmt.Sprintf("waits-%d", number)}
	must(o.client.MountSegment(ctx, &pb.MountSegmentRequest{RequestId: 1, ClientId: o.id, Segment: &pb.Segment{
		Id: uuid.NewString(), Name: o.name, Base: 1 << 50, Size: 1 << 30, Endpoint: o.name + ":1", Protocol: "tcp",
	}}))
	must(o.client.Ping(ctx, &pb.PingRequest{ClientId: o.id}))
	objects := pb.NewObjectServiceClient(n.Conn)
	for i := range hangingObjects {
		key := fmt.Sprintf("%s/%d", o.name, i)
		request := uint64(2*i) + 1
		put := must(objects.PutStart(ctx, &pb.PutStartRequest{
			RequestId: request, ClientId: o.id, Key: key, Size: bulkSize, Config: &pb.PutConfig{PreferredSegments: []string{o.name}},
		}))
		must(objects.PutEnd(ctx, &pb.PutEndRequest{RequestId: request + 1, ClientId: o.id, Key: key, ObjectId: put.GetObject().GetObjectId()}))
		o.keys = append(o.keys, key)
	}
	return o
}

// nothingLost demands that a client is known, its memory mounted, and all of its
// objects there.
func (e *Env) nothingLost(ctx context.Context, n *cluster.Node, o *waitingOwner) {
	list := must(n.Admin.ListSegments(ctx, &pb.ListSegmentsRequest{Name: o.name})).GetSegments()
	known := must(pb.NewClientServiceClient(n.Conn).Ping(ctx, &pb.PingRequest{ClientId: o.id})).GetStatus() == pb.ClientStatus_CLIENT_STATUS_OK
	e.result.check("no client expired", len(list) == 1 && known,
		"%d segments of a client that waited for the answer to a Ping are mounted, want 1; it is known: %t", len(list), known)
	exist := must(pb.NewObjectServiceClient(n.Conn).BatchExistKey(ctx, &pb.BatchExistKeyRequest{Keys: o.keys})).GetExists()
	lost := len(exist) - len(slices.DeleteFunc(exist, func(there bool) bool { return !there }))
	e.result.violate("D", lost, fmt.Sprintf("%d of %d objects of a client that waited are lost", lost, len(o.keys)))
}
