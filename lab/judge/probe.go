package judge

import (
	"context"
	"slices"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

const (
	// maxProbes is how many nodes are probed at most. A drill that restarts nodes at new
	// addresses would otherwise probe more and more.
	maxProbes = 32
	// probeTimeout bounds one probe. So a node that was stopped and resumes finds no older
	// one.
	probeTimeout = 2 * time.Second
)

// A probe continuously asks one node for objects, whether it is primary or not. So it gets
// the answers that a replaced primary would give to a client that has not noticed.
type probe struct {
	*reader
	number  int // from -1 down
	address string
	service pb.ObjectServiceClient
}

// probe starts to probe the node at an address, until the load ends. It ignores an address
// that is already probed, or cannot be.
func (l *Load) probe(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.peers, func(p peer) bool { return p.Address == address }) || len(l.peers) == maxProbes || l.closed {
		return
	}
	conn, err := dial(address)
	if err != nil {
		return // clients report it
	}
	l.peers = append(l.peers, peer{Node{address, address}, pb.NewAdminServiceClient(conn)})
	number := -len(l.peers)
	p := &probe{reader: newReader(l, number), number: number, address: address, service: pb.NewObjectServiceClient(conn)}
	l.watching.Go(func() {
		defer func() { _ = conn.Close() }()
		for !l.full() {
			if p.ask(l.watch); clock.Sleep(l.watch, probeEvery) != nil {
				return
			}
		}
	})
}

// ask asks for one key. It records only answers of a primary, to keep the history short.
func (p *probe) ask(ctx context.Context) {
	k := p.load.ring.pick(p.rng)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	tenant := p.anyTenant()
	r := Record{Call: Get, Client: p.number, Key: label(tenant, k.name), Node: p.address, Start: p.load.Now(), Outcome: OK, Attempts: 1}
	resp, err := p.service.GetReplicaList(ctx, &pb.GetReplicaListRequest{Tenant: tenant, Key: k.name})
	r.End = p.load.Now()
	if err != nil {
		e, from := rpcerr.Parse(err)
		r.Outcome, r.Kind, r.Term = Failed, e.Kind, from.Term
		if from.NodeID != "" && r.answered() {
			p.load.add(r)
		}
		return
	}
	o := client.Object{ID: client.ObjectID(resp.GetObject().GetObjectId()), Size: resp.GetObject().GetSize()}
	for _, at := range resp.GetObject().GetReplicas() {
		if m := at.GetMemory(); m != nil {
			o.Replicas = append(o.Replicas, client.Replica{Kind: client.Memory, Endpoint: m.GetEndpoint(), Address: m.GetAddress()})
		} else if d := at.GetLocalDisk(); d != nil {
			o.Replicas = append(o.Replicas, client.Replica{Kind: client.LocalDisk, Endpoint: d.GetEndpoint()})
		}
	}
	r.Term, r.ID, r.Size = resp.GetHeader().GetTerm(), o.ID, o.Size
	ends := r.Start + time.Duration(resp.GetLeaseTtlMs())*time.Millisecond
	if inMemory(o) {
		r.Leased = ends
	}
	p.load.add(r)
	p.check(sight{o, r.Key, r.Start, ends})
}
