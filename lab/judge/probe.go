package judge

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpcerr"
)

const (
	// maxProbes is how many nodes are asked, so that a drill which starts nodes
	// again and again at new addresses does not ask all of them for ever.
	maxProbes = 32
	// probeTimeout bounds one question. A node that was stopped, and wakes, finds
	// one that is at most so old.
	probeTimeout = 2 * time.Second
)

// A probe asks one node for objects, again and again, without knowing who leads:
// it hears what a replaced primary would say to a client that has not noticed.
type probe struct {
	*reader
	number  int // from -1 down
	address string
	service pb.ObjectServiceClient
	admin   pb.AdminServiceClient
	log     *log
}

// probe begins to ask the node at an address, until the load ends. An address
// that is asked already, or cannot be, is left alone.
func (l *Load) probe(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.probed[address]; known || len(l.probed) == maxProbes || l.closed {
		return
	}
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: probeTimeout,
		}))
	if err != nil {
		return // clients say so
	}
	l.probed[address] = struct{}{}
	number := -len(l.probed)
	p := &probe{
		reader: newReader(l, l.rng(number)), number: number, address: address,
		service: pb.NewObjectServiceClient(conn), admin: pb.NewAdminServiceClient(conn), log: new(log),
	}
	l.logs, l.peers = append(l.logs, p.log), append(l.peers, p)
	l.watching.Go(func() {
		defer func() { _ = conn.Close() }()
		p.run(l.watch)
	})
}

func (p *probe) run(ctx context.Context) {
	tick := time.NewTicker(p.load.config.ProbeEvery)
	defer tick.Stop()
	for !p.load.full() {
		p.ask(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ask asks for one key. What is no answer of a primary is not recorded: there
// would be no end of it.
func (p *probe) ask(ctx context.Context) {
	k := p.load.ring.pick(p.rng)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	r := Record{Call: Get, Client: p.number, Key: k.name, Node: p.address, Start: p.load.Now(), Attempts: 1}
	sent := p.load.clock()
	resp, err := p.service.GetReplicaList(ctx, &pb.GetReplicaListRequest{Key: k.name})
	r.End = p.load.Now()
	if err != nil {
		e, from := rpcerr.Parse(err)
		r.Outcome, r.Kind, r.Term = Failed, e.Kind, from.Term
		if from.NodeID != "" && r.answered() {
			p.record(r)
		}
		return
	}
	o := resp.GetObject()
	r.Outcome, r.Term, r.Size = OK, resp.GetHeader().GetTerm(), o.GetSize()
	r.ID = client.ObjectID(o.GetObjectId())
	p.record(r)
	p.check(sight{
		key: k.name, id: o.GetObjectId(), size: o.GetSize(), places: placesOfMessage(o.GetReplicas()), asked: r.Start,
		lease: rawLease{p.load.clock, sent + time.Duration(resp.GetLeaseTtlMs())*time.Millisecond},
	})
}

func (p *probe) record(r Record) {
	p.log.add(r)
	p.load.calls.Add(1)
}

// A rawLease runs from before its request was sent.
type rawLease struct {
	now  clock.Clock
	ends time.Duration
}

// Valid reports whether the lease still holds.
func (l rawLease) Valid() bool { return l.Remaining() > 0 }

// Remaining returns how long the lease still holds.
func (l rawLease) Remaining() time.Duration { return l.ends - l.now() }
