package judge

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

const (
	// compareEvery is how often the states of nodes are compared while a load
	// works: a follower that finds itself different soon loads a snapshot, and
	// then nothing is to be seen any more.
	compareEvery = 50 * time.Millisecond
	// compareTimeout bounds one comparison.
	compareTimeout = time.Second
)

// compareStates asks all nodes for their state, again and again, until the
// context ends.
func (l *Load) compareStates(ctx context.Context) {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		peers := slices.Clone(l.peers)
		l.mu.Unlock()
		l.compareOnce(ctx, peers)
	}
}

// compareOnce compares the newest state of each node with what the others have
// at that sequence. Nodes that do not answer, or do not know, are left out.
func (l *Load) compareOnce(ctx context.Context, peers []*probe) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	for _, newest := range digests(ctx, peers, 0) {
		if newest.GetSequence() == 0 {
			continue
		}
		for i, s := range digests(ctx, peers, newest.GetSequence()) {
			if s != nil && s.GetDigest() != newest.GetDigest() {
				l.seen.add(S, "%v: at sequence %d node %s has digest %s, the one at %s has %s", seconds(l.Now()),
					newest.GetSequence(), newest.GetHeader().GetNodeId(), newest.GetDigest(), peers[i].address, s.GetDigest())
			}
		}
	}
}

// digests asks all nodes at once for their digest at a sequence, 0 for their
// newest. Who does not answer has none.
func digests(ctx context.Context, peers []*probe, seq uint64) []*pb.DigestResponse {
	found := make([]*pb.DigestResponse, len(peers))
	var asking sync.WaitGroup
	for i, p := range peers {
		asking.Go(func() {
			if resp, err := p.admin.Digest(ctx, &pb.DigestRequest{Sequence: seq}); err == nil {
				found[i] = resp
			}
		})
	}
	asking.Wait()
	return found
}
