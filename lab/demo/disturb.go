package demo

import (
	"context"
	"fmt"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/promote"
)

// disturbance waits for half of the load and takes the primary away, without telling the
// clients.
func (r *run) disturbance(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.half:
	}
	if !r.disturb {
		return nil
	}
	primary, standby := r.primary(), r.standby()
	if err := r.compare(ctx, primary, standby); err != nil {
		return err
	}
	before, err := primary.Status(ctx)
	if err != nil {
		return fmt.Errorf("asking the primary before the end: %w", err)
	}
	r.objects.Old = before.GetState().GetObjects()
	r.began = r.player.Now()
	r.switched = r.player.Taken()
	if err := r.takeAway(ctx, primary, before.GetState().GetTerm()); err != nil {
		return err
	}
	after, err := standby.UntilServes(ctx)
	if err != nil {
		return err
	}
	r.objects.New = after.GetState().GetObjects()
	// Both nodes have counted every eviction since the cluster began, so the counts are
	// comparable.
	r.objects.Evicted = int64(after.GetState().GetEvicted()) - int64(before.GetState().GetEvicted())
	return r.replace(ctx)
}

// takeAway kills the primary, or asks it to hand over.
func (r *run) takeAway(ctx context.Context, primary *cluster.Node, term uint64) error {
	if !r.Handover {
		primary.Kill()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	h, err := primary.Admin.Handover(ctx, &pb.HandoverRequest{Term: term})
	if err != nil {
		return fmt.Errorf("handover: %w", err)
	}
	r.handover = time.Duration(h.GetDurationMs()) * time.Millisecond
	return nil
}

// replace starts a node in place of the one that was killed, as an operator would. It must
// reach the same state while the load goes on.
func (r *run) replace(ctx context.Context) error {
	if r.Handover {
		return nil
	}
	n, err := r.cluster.Add("replacement")
	if err != nil {
		return err
	}
	return r.cluster.StartNode(ctx, n, promote.Standby)
}

// compareAtTheEnd compares the remaining nodes.
func (r *run) compareAtTheEnd(ctx context.Context) error {
	if err := r.cluster.Settled(ctx); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	primary, _, err := r.cluster.Primary(ctx, 0)
	if err != nil {
		return err
	}
	for _, follower := range r.cluster.Standbys(primary) {
		if err := r.compare(ctx, primary, follower); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) compare(ctx context.Context, primary, follower *cluster.Node) error {
	same, err := cluster.SameDigest(ctx, primary, follower)
	r.digests = r.digests && same
	return err
}
