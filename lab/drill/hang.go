package drill

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/segment"
)

// hangingObjects is how many objects are in the memory of the waiting client.
const hangingObjects = 200

// hangPrimary stops the primary. A client then waits for the answer to a Ping, for longer
// than the client TTL. The client must not expire.
func hangPrimary(ctx context.Context, e *Env) {
	patience, ep := 30*time.Second, episode{} // as long as Mooncake's clients wait, with nodes on defaults
	if e.Short {
		patience = 10 * time.Second
		ep.Args = []string{"--client_ttl=4s", "--client-rpc-timeout=" + patience.String()}
	}
	e.rounds(ctx, ep, func(ctx context.Context) {
		owner, p := e.newWaitingOwner(ctx)
		defer owner.close()
		next, _ := e.failover(ctx, p.primary, p.term, "SIGSTOP of", p.primary.Pause)
		waits, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := owner.ping(waits)
		e.result.check("the Ping hangs", err != nil && waits.Err() != nil, "its end after %v: %v", patience, err)
		e.did("a Ping waited for %v", patience)
		e.nothingLost(ctx, next, owner)
		do(p.primary.Resume())
		do(p.primary.UntilPromotable(ctx))
		e.compare(ctx)
	})
}

// A waitingOwner lends memory, puts objects there, and calls one node only.
type waitingOwner struct {
	name string
	keys []string
	waitingCalls
}

// waitingCalls are the calls of a waitingOwner, over one of the protocols.
type waitingCalls interface {
	turn(context.Context, *cluster.Node) // chooses the node to call
	mount(ctx context.Context, name string)
	put(ctx context.Context, key, name string)
	ping(context.Context) (known bool, err error)
	exist(ctx context.Context, keys []string) (there int)
	close()
}

// newWaitingOwner returns an owner whose objects are put, and the primary that it calls.
func (e *Env) newWaitingOwner(ctx context.Context) (*waitingOwner, pair) {
	o := &waitingOwner{name: fmt.Sprintf("waits-%d", e.result.Rounds), waitingCalls: &grpcOwner{id: uuid.NewString()}}
	if e.Access.Mooncake {
		o.waitingCalls = &mooncakeOwner{mover{id: segment.ClientID(uuid.New()), generation: e.Access.Speaks()}}
	}
	p := e.ready(ctx)
	o.turn(ctx, p.primary)
	o.mount(ctx, o.name)
	number := 0 // of a put; a put without an answer gets another key, as its own may be reserved
	patiently(ctx, func() { p = e.ready(ctx); o.turn(ctx, p.primary) }, func() {
		for len(o.keys) < hangingObjects {
			if number++; number%5 == 1 { // ping now and then: on a slow disk, all puts together take longer than the client TTL
				must(o.ping(ctx))
			}
			key := fmt.Sprintf("%s/%d", o.name, number)
			o.put(ctx, key, o.name)
			o.keys = append(o.keys, key)
		}
	})
	return o, p
}

// patiently runs steps, and after a failure runs again and then steps once more. A primary on
// a busy machine may answer nobody for a moment, and close connections of Mooncake's protocol.
func patiently(ctx context.Context, again, steps func()) {
	for try := 1; ; try++ {
		err := script(steps)
		if err == nil {
			return
		}
		if try == 10 || ctx.Err() != nil {
			do(err)
		}
		again()
	}
}

// nothingLost checks that a client is known, that its memory is mounted, and that all of its
// objects exist.
func (e *Env) nothingLost(ctx context.Context, n *cluster.Node, o *waitingOwner) {
	list := must(n.Admin.ListSegments(ctx, &pb.ListSegmentsRequest{Name: o.name})).GetSegments()
	known, there := false, 0
	o.turn(ctx, n)
	patiently(ctx, func() { n, _ = e.primary(ctx, 0); o.turn(ctx, n) }, func() {
		known = must(o.ping(ctx))
		there = o.exist(ctx, o.keys)
	})
	e.result.check("no client expired", len(list) == 1 && known,
		"%d segments of a client that waited for the answer to a Ping are mounted, want 1; it is known: %t", len(list), known)
	lost := len(o.keys) - there
	e.result.violate("D", lost, fmt.Sprintf("%d of %d objects of a client that waited are lost", lost, len(o.keys)))
}

type grpcOwner struct {
	id      string
	request uint64
	client  pb.ClientServiceClient
	objects pb.ObjectServiceClient
}

func (o *grpcOwner) turn(_ context.Context, n *cluster.Node) {
	o.client, o.objects = pb.NewClientServiceClient(n.Conn), pb.NewObjectServiceClient(n.Conn)
}

func (o *grpcOwner) next() uint64 { o.request++; return o.request }

func (o *grpcOwner) mount(ctx context.Context, name string) {
	must(o.client.MountSegment(ctx, &pb.MountSegmentRequest{RequestId: o.next(), ClientId: o.id, Segment: &pb.Segment{
		Id: uuid.NewString(), Name: name, Base: 1 << 50, Size: 1 << 30, Endpoint: name + ":1", Protocol: "tcp",
	}}))
	must(o.ping(ctx))
}

func (o *grpcOwner) put(ctx context.Context, key, name string) {
	put := must(o.objects.PutStart(ctx, &pb.PutStartRequest{
		RequestId: o.next(), ClientId: o.id, Key: key, Size: bulkSize, Config: &pb.PutConfig{PreferredSegments: []string{name}},
	}))
	must(o.objects.PutEnd(ctx, &pb.PutEndRequest{RequestId: o.next(), ClientId: o.id, Key: key, ObjectId: put.GetObject().GetObjectId()}))
}

func (o *grpcOwner) ping(ctx context.Context) (bool, error) {
	r, err := o.client.Ping(ctx, &pb.PingRequest{ClientId: o.id})
	return r.GetStatus() == pb.ClientStatus_CLIENT_STATUS_OK, err
}

func (o *grpcOwner) exist(ctx context.Context, keys []string) (there int) {
	for _, found := range must(o.objects.BatchExistKey(ctx, &pb.BatchExistKeyRequest{Keys: keys})).GetExists() {
		if found {
			there++
		}
	}
	return there
}

func (o *grpcOwner) close() {}

// A mooncakeOwner calls as Mooncake's own client does, over one connection.
type mooncakeOwner struct{ mover }

func (o *mooncakeOwner) turn(ctx context.Context, n *cluster.Node) { o.dial(ctx, n) }

func (o *mooncakeOwner) mount(ctx context.Context, name string) {
	o.mover.mount(ctx, 200, name, 1<<30)
	must(o.ping(ctx))
}

func (o *mooncakeOwner) put(ctx context.Context, key, name string) {
	how := mooncake.ReplicateConfig{Replicas: 1, Preferred: []string{name}}
	call(ctx, &o.mover, func(g *mooncake.Generation) mooncake.Call[mooncake.Result[mooncake.ObjectReplicas]] {
		return g.PutStart
	},
		mooncake.Args{Key: key, Size: bulkSize, Config: how})
	call(ctx, &o.mover, func(g *mooncake.Generation) mooncake.Call[mooncake.Done] { return g.PutEnd }, mooncake.Args{Item: mooncake.PutItem{Key: key}})
}

func (o *mooncakeOwner) ping(ctx context.Context) (bool, error) {
	var r mooncake.Result[mooncake.PingResult]
	_, err := mooncakeclient.Do(ctx, o.conn, o.conn.Generation.Ping, &mooncake.Args{Client: o.id}, &r)
	return r.Value.Status == mooncake.ClientOK, err
}

func (o *mooncakeOwner) exist(ctx context.Context, keys []string) (there int) {
	var list []mooncake.Result[bool]
	must(mooncakeclient.Do(ctx, o.conn, o.conn.Generation.BatchExistKey, &mooncake.Args{Keys: keys}, &list))
	for _, r := range list {
		if r.Value && r.Failure == 0 {
			there++
		}
	}
	return there
}

func (o *mooncakeOwner) close() { _ = o.conn.Close() }
