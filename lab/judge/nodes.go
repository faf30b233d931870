package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpcerr"
)

const (
	// settleTime is how long nodes may take to be equal, with nothing to do.
	settleTime = 5 * time.Second
	// askPause is between two rounds of questions, of which each is bounded.
	askPause   = 50 * time.Millisecond
	askTimeout = time.Second
	// dumpTimeout bounds the listing of a node's ranges.
	dumpTimeout = time.Minute
)

// An examinee is a node that the judge asks.
type examinee struct {
	Node
	admin  pb.AdminServiceClient
	seq    uint64
	digest string
	err    *errs.Error
}

// judgeNodes compares the states of nodes, and looks through the ranges of each.
func judgeNodes(ctx context.Context, nodes []Node, dead graves, t *tally) error {
	list := make([]*examinee, len(nodes))
	for i, n := range nodes {
		conn, err := grpc.NewClient(n.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(pb.DefaultMaxMessageBytes)))
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		defer func() { _ = conn.Close() }()
		list[i] = &examinee{Node: n, admin: pb.NewAdminServiceClient(conn)}
	}
	compare(ctx, list, t)
	for _, n := range list {
		if n.err != nil {
			continue // it does not answer, which is counted
		}
		if err := n.ranges(ctx, dead, t); err != nil {
			t.add(S, "node %s does not list its ranges: %v", n.Name, err)
		}
	}
	return ctx.Err()
}

// compare asks all nodes for their digest at one sequence, the newest of any. A
// primary knows only its newest one, so they are asked until all have answered.
func compare(ctx context.Context, list []*examinee, t *tally) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	tick := time.NewTicker(askPause)
	defer tick.Stop()
	var seq uint64
	for {
		if seq = round(ctx, list); !slices.ContainsFunc(list, func(n *examinee) bool { return n.err != nil }) {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	var first *examinee
	for _, n := range list {
		switch {
		case n.err != nil:
			t.add(S, "node %s has no digest for sequence %d within %v: %v", n.Name, seq, settleTime, n.err)
		case first == nil:
			first = n
		case n.digest != first.digest:
			t.add(S, "at sequence %d node %s has digest %s, node %s has %s", seq, first.Name, first.digest, n.Name, n.digest)
		}
	}
}

// round asks all nodes once, and returns the sequence that they were asked for.
func round(ctx context.Context, list []*examinee) (seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	each(list, func(n *examinee) { n.ask(ctx, 0) })
	for _, n := range list {
		seq = max(seq, n.seq)
	}
	each(list, func(n *examinee) {
		if n.seq != seq {
			n.ask(ctx, seq)
		}
	})
	return seq
}

// each visits all nodes at once.
func each(list []*examinee, visit func(*examinee)) {
	var running sync.WaitGroup
	for _, n := range list {
		running.Go(func() { visit(n) })
	}
	running.Wait()
}

// ask asks for the digest at a sequence, 0 for the newest.
func (n *examinee) ask(ctx context.Context, seq uint64) {
	resp, err := n.admin.Digest(ctx, &pb.DigestRequest{Sequence: seq})
	n.seq, n.digest, n.err = resp.GetSequence(), resp.GetDigest(), nil
	if err != nil {
		n.err, _ = rpcerr.Parse(err)
	}
}

// ranges looks through what a node holds.
func (n *examinee) ranges(ctx context.Context, dead graves, t *tally) error {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	stream, err := n.admin.DumpRanges(ctx, &pb.DumpRangesRequest{})
	if err != nil {
		return err
	}
	look := inspection{node: n.Name, dead: dead, tally: t}
	for {
		run, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		look.run(run)
	}
}

// An inspection goes through the ranges of one node, in their order.
type inspection struct {
	node     string
	dead     graves
	tally    *tally
	segments []*pb.Segment
	last     *pb.Range // of the newest segment
}

// run looks at some ranges of a segment.
func (i *inspection) run(m *pb.DumpRangesResponse) {
	if n := len(i.segments); n == 0 || i.segments[n-1].GetId() != m.GetSegment().GetId() {
		i.segment(m.GetSegment())
	}
	segment := i.segments[len(i.segments)-1]
	for _, r := range m.GetRanges() {
		end := r.GetOffset() + r.GetLength()
		if end > segment.GetSize() || end < r.GetOffset() {
			i.tally.add(A, "on node %s at sequence %d, %s lies outside segment %s of %d bytes", i.node, m.GetSequence(), rangeText(r), segment.GetId(), segment.GetSize())
		}
		if i.last != nil && r.GetOffset() < i.last.GetOffset()+i.last.GetLength() {
			i.tally.add(A, "on node %s at sequence %d, in segment %s, %s and %s overlap", i.node, m.GetSequence(), segment.GetId(), rangeText(i.last), rangeText(r))
		}
		if r.GetState() != pb.RangeState_RANGE_STATE_QUARANTINED && i.dead.has(r.GetKey(), client.ObjectID(r.GetObjectId())) {
			i.tally.add(X, "node %s still holds at sequence %d, although it was removed or replaced, %s", i.node, m.GetSequence(), rangeText(r))
		}
		i.last = r
	}
}

// segment begins a new one, which must not be memory of one before.
func (i *inspection) segment(s *pb.Segment) {
	for _, o := range i.segments {
		if o.GetEndpoint() == s.GetEndpoint() && s.GetBase() < o.GetBase()+o.GetSize() && o.GetBase() < s.GetBase()+s.GetSize() {
			i.tally.add(A, "on node %s segments %s and %s are the same memory of %s", i.node, o.GetId(), s.GetId(), s.GetEndpoint())
		}
	}
	i.segments, i.last = append(i.segments, s), nil
}

func rangeText(r *pb.Range) string {
	if r.GetState() == pb.RangeState_RANGE_STATE_QUARANTINED {
		return fmt.Sprintf("[%d, +%d) in quarantine", r.GetOffset(), r.GetLength())
	}
	return fmt.Sprintf("[%d, +%d) of object %d (key %s)", r.GetOffset(), r.GetLength(), r.GetObjectId(), r.GetKey())
}
