package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
)

const (
	// settleTime is how long idle nodes may take until their states are equal.
	settleTime = 5 * time.Second
	// askPause is the pause between two comparisons, and askTimeout bounds each. A follower
	// that finds a difference soon loads a snapshot, and then the difference is gone.
	askPause   = 50 * time.Millisecond
	askTimeout = time.Second
	// dumpTimeout bounds the listing of a node's ranges. It is repeated while the state changes
	// meanwhile, as it does for a minute after the last removal or replaced put: each commit, also
	// one without changes, forgets the request ids that are a minute old (metadata.RequestsKept).
	dumpTimeout = 3 * time.Minute
)

// A Node is a living node.
type Node struct {
	Name    string
	Address string // host:port of its gRPC service
}

// A peer is a node that the judge asks.
type peer struct {
	Node
	admin pb.AdminServiceClient
}

func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(pb.DefaultMaxMessageBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: probeTimeout,
		}))
}

// judgeNodes compares the states of nodes, and checks the ranges of each.
func judgeNodes(ctx context.Context, nodes []Node, dead graves, t *tally) error {
	t.checked(S)
	var peers []peer
	for _, n := range nodes {
		conn, err := dial(n.Address)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		defer func() { _ = conn.Close() }()
		peers = append(peers, peer{n, pb.NewAdminServiceClient(conn)})
	}
	seq, found := settled(ctx, peers)
	differ(peers, found, t)
	for i, n := range peers {
		err := found[i].err
		if err != nil {
			t.add(S, "node %s has no digest for sequence %d within %v: %v", n.Name, seq, settleTime, err)
		} else if err = n.ranges(ctx, dead, t); err != nil {
			t.add(S, "node %s does not list its ranges: %v", n.Name, err)
		}
	}
	return ctx.Err()
}

// A digest is what a node has at a sequence.
type digest struct {
	*pb.DigestResponse
	err error
}

// digests asks all nodes at the same time for their digest at a sequence; 0 means their newest.
// It does not ask nodes again whose newest digest is known to be at that sequence.
func digests(ctx context.Context, peers []peer, seq uint64, newest []digest) []digest {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found := make([]digest, len(peers))
	var asking sync.WaitGroup
	for i, p := range peers {
		if newest != nil && newest[i].err == nil && newest[i].GetSequence() == seq {
			found[i] = newest[i]
			continue
		}
		asking.Go(func() { found[i].DigestResponse, found[i].err = p.admin.Digest(ctx, &pb.DigestRequest{Sequence: seq}) })
	}
	asking.Wait()
	return found
}

// settled asks all nodes for their digest at the newest sequence of any node, until all have
// answered or settleTime has passed.
func settled(ctx context.Context, peers []peer) (seq uint64, found []digest) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		newest := digests(ctx, peers, 0, nil)
		seq = 0
		for _, d := range newest {
			seq = max(seq, d.GetSequence())
		}
		found = digests(ctx, peers, seq, newest)
		if !slices.ContainsFunc(found, func(d digest) bool { return d.err != nil }) || clock.Sleep(ctx, askPause) != nil {
			return seq, found
		}
	}
}

// differ looks for nodes whose digest at one sequence differs from the others'.
func differ(peers []peer, found []digest, t *tally) {
	first := slices.IndexFunc(found, func(d digest) bool { return d.err == nil })
	for i, d := range found {
		if d.err == nil && d.GetDigest() != found[first].GetDigest() {
			t.add(S, "at sequence %d node %s has digest %s, node %s has %s", d.GetSequence(),
				peers[first].Name, found[first].GetDigest(), peers[i].Name, d.GetDigest())
		}
	}
}

// compareStates continuously compares the newest digest of each node with those of the others
// at the same sequence, until the context ends. It leaves out nodes that do not answer or have
// no digest at that sequence.
func (l *Load) compareStates(ctx context.Context) {
	for clock.Sleep(ctx, askPause) == nil {
		l.mu.Lock()
		peers := slices.Clone(l.peers)
		l.mu.Unlock()
		newest := digests(ctx, peers, 0, nil)
		for _, d := range newest {
			if d.GetSequence() > 0 {
				differ(peers, digests(ctx, peers, d.GetSequence(), newest), &l.seen)
			}
		}
	}
}

// ranges checks the ranges of a node. If the node's state changed during the dump, the list may
// mix states, so it is taken again.
func (n peer) ranges(ctx context.Context, dead graves, t *tally) error {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	for {
		before, err := n.admin.Digest(ctx, &pb.DigestRequest{})
		if err != nil {
			return err
		}
		look := inspection{node: n.Name, dead: dead, tally: t}
		if err := n.dump(ctx, look.run); err != nil {
			return err
		}
		after, err := n.admin.Digest(ctx, &pb.DigestRequest{})
		if err != nil {
			return err
		}
		if after.GetDigest() == before.GetDigest() {
			look.sequence = after.GetSequence()
			look.judge()
			return nil
		}
	}
}

func (n peer) dump(ctx context.Context, run func(*pb.DumpRangesResponse)) error {
	stream, err := n.admin.DumpRanges(ctx, &pb.DumpRangesRequest{})
	if err != nil {
		return err
	}
	for {
		next, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		run(next)
	}
}

// An inspection collects the ranges of one node, and checks them.
type inspection struct {
	node     string
	sequence uint64
	dead     graves
	tally    *tally
	segments []*inspected
	byID     map[string]*inspected
}

// An inspected is a segment with its ranges, in any order.
type inspected struct {
	*pb.Segment
	ranges []*pb.Range
}

func (i *inspection) run(m *pb.DumpRangesResponse) {
	s := i.byID[m.GetSegment().GetId()]
	if s == nil {
		s = &inspected{Segment: m.GetSegment()}
		if i.byID == nil {
			i.byID = make(map[string]*inspected)
		}
		i.byID[s.GetId()] = s
		i.segments = append(i.segments, s)
	}
	s.ranges = append(s.ranges, m.GetRanges()...)
}

func (i *inspection) judge() {
	for k, s := range i.segments {
		for _, o := range i.segments[:k] {
			if o.GetEndpoint() == s.GetEndpoint() && s.GetBase() < o.GetBase()+o.GetSize() && o.GetBase() < s.GetBase()+s.GetSize() {
				i.tally.add(A, "on node %s segments %s and %s are the same memory of %s", i.node, o.GetId(), s.GetId(), s.GetEndpoint())
			}
		}
		i.look(s)
	}
}

func (i *inspection) look(s *inspected) {
	slices.SortFunc(s.ranges, func(a, b *pb.Range) int { return cmp.Compare(a.GetOffset(), b.GetOffset()) })
	var last *pb.Range
	for _, r := range s.ranges {
		end := r.GetOffset() + r.GetLength()
		if end > s.GetSize() || end < r.GetOffset() {
			i.tally.add(A, "on node %s at sequence %d, %s lies outside segment %s of %d bytes", i.node, i.sequence, rangeText(r), s.GetId(), s.GetSize())
		}
		if last != nil && r.GetOffset() < last.GetOffset()+last.GetLength() {
			i.tally.add(A, "on node %s at sequence %d, in segment %s, %s and %s overlap", i.node, i.sequence, s.GetId(), rangeText(last), rangeText(r))
		}
		if r.GetState() != pb.RangeState_RANGE_STATE_QUARANTINED && i.dead.has(label(r.GetTenant(), r.GetKey()), client.ObjectID(r.GetObjectId())) {
			i.tally.add(X, "node %s still holds at sequence %d, although it was removed or replaced, %s", i.node, i.sequence, rangeText(r))
		}
		last = r
	}
}

func rangeText(r *pb.Range) string {
	if r.GetState() == pb.RangeState_RANGE_STATE_QUARANTINED {
		return fmt.Sprintf("[%d, +%d) in quarantine", r.GetOffset(), r.GetLength())
	}
	return fmt.Sprintf("[%d, +%d) of object %d (key %s)", r.GetOffset(), r.GetLength(), r.GetObjectId(), label(r.GetTenant(), r.GetKey()))
}
