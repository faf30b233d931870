package demo

import (
	"context"
	"fmt"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/lab/rig"
)

// disturbance waits for half of the load and takes the primary away. The
// clients notice by themselves.
func (r *run) disturbance(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.half:
	}
	if !r.disturb {
		return nil
	}
	primary, standby := r.pair.nodes[0], r.pair.standby()
	if err := r.compare(ctx, primary, standby); err != nil {
		return err
	}
	before, err := primary.Admin.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return fmt.Errorf("asking the primary before the end: %w", err)
	}
	r.objects.Old = before.GetState().GetObjects()
	r.began = r.player.Now()
	r.switched = r.player.Taken()
	if err := r.takeAway(ctx, primary, before.GetState().GetTerm()); err != nil {
		return err
	}
	after, err := standby.Until(ctx, "serves", rig.Serves)
	if err != nil {
		return err
	}
	r.objects.New = after.GetState().GetObjects()
	// Both have seen every eviction since the cluster began, so their counts compare.
	r.objects.Evicted = int64(after.GetState().GetEvicted()) - int64(before.GetState().GetEvicted())
	return r.replace(ctx)
}

// takeAway kills the primary, or asks it to hand over.
func (r *run) takeAway(ctx context.Context, primary *rig.Node, term uint64) error {
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

// replace starts a node in place of the one that was killed, as an operator
// would: it must come to the same state while the load goes on.
func (r *run) replace(ctx context.Context) error {
	if r.Handover {
		return nil
	}
	_, err := r.pair.startNode(ctx, "replacement", config.Standby)
	return err
}

// compareAtTheEnd compares the nodes that are left.
func (r *run) compareAtTheEnd(ctx context.Context) error {
	var primary, follower *rig.Node
	for _, n := range r.pair.nodes {
		if !n.Alive() {
			continue
		}
		s, err := n.Admin.Status(ctx, &pb.StatusRequest{})
		if err != nil {
			return fmt.Errorf("status of %s: %w", n.Name, err)
		}
		if s.GetNode().GetRole() == pb.Role_ROLE_PRIMARY {
			primary = n
		} else {
			follower = n
		}
	}
	if primary == nil || follower == nil {
		return fmt.Errorf("at the end there is no primary with a standby; see the logs under %s", r.dir)
	}
	if err := promotable(ctx, follower); err != nil {
		return err
	}
	return r.compare(ctx, primary, follower)
}

func (r *run) compare(ctx context.Context, primary, follower *rig.Node) error {
	same, err := rig.SameDigest(ctx, primary, follower)
	r.digests = r.digests && same
	return err
}
