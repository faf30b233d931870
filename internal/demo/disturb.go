package demo

import (
	"context"
	"fmt"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
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
	primary, standby := r.pair.nodes[0], r.pair.nodes[1]
	if err := r.compare(ctx, primary, standby); err != nil {
		return err
	}
	before, err := afterEviction(ctx, primary)
	if err != nil {
		return fmt.Errorf("asking the primary before the end: %w", err)
	}
	r.oldObjects = before.GetState().GetObjects()
	r.began = r.player.Now()
	r.switched = r.player.Taken()
	if err := r.takeAway(ctx, primary, before.GetState().GetTerm()); err != nil {
		return err
	}
	err = standby.until(ctx, "serves", func(s *pb.StatusResponse) bool {
		r.newObjects = s.GetState().GetObjects()
		return s.GetNode().GetRole() == pb.Role_ROLE_PRIMARY
	})
	if err != nil {
		return err
	}
	return r.replace(ctx)
}

// A pass of eviction takes 5 % of the objects at once. One that falls between
// the count and the primary's end, or right after the promotion, would look like
// a loss.
const (
	passSeen = 0.98            // of the objects of a moment ago: a pass has taken the others
	passWait = 2 * time.Second // a load that is played slowly may need none for long
)

// afterEviction returns the primary's status when a pass of eviction has just
// ended, so that the next one is a while away.
func afterEviction(ctx context.Context, primary *node) (*pb.StatusResponse, error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	enough := time.After(passWait)
	for objects := uint64(0); ; {
		s, err := primary.admin.Status(ctx, &pb.StatusRequest{})
		if err != nil {
			return nil, err
		}
		now := s.GetState().GetObjects()
		if float64(now) < passSeen*float64(objects) {
			return s, nil
		}
		objects = now
		select {
		case <-enough:
			return s, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// takeAway kills the primary, or asks it to hand over.
func (r *run) takeAway(ctx context.Context, primary *node, term uint64) error {
	if !r.Handover {
		primary.Kill()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	h, err := primary.admin.Handover(ctx, &pb.HandoverRequest{Term: term})
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
	_, err := r.pair.startNode(ctx, "replacement", standbyCommand)
	return err
}

// compareAtTheEnd compares the nodes that are left.
func (r *run) compareAtTheEnd(ctx context.Context) error {
	var primary, follower *node
	for _, n := range r.pair.nodes {
		if !n.Alive() {
			continue
		}
		s, err := n.admin.Status(ctx, &pb.StatusRequest{})
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
	if err := follower.promotable(ctx); err != nil {
		return err
	}
	return r.compare(ctx, primary, follower)
}

func (r *run) compare(ctx context.Context, primary, follower *node) error {
	same, err := sameDigest(ctx, primary, follower)
	r.digests = r.digests && same
	return err
}
