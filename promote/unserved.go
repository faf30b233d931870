package promote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/understudy-store/understudy/journal"
)

// An again says when this node may stand for election again, after elections that led to no
// term which served. The pause grows with each of them. For Run's goroutine alone.
type again struct {
	retry backoff.ExponentialBackOff
	at    time.Duration // by the clock
	why   error         // what ended the last one
}

// refusedPause is the longest pause after an election whose term etcd has refused. After a
// failure that passes, such as etcd's silence, it is one SessionTTL: this may be the only
// node that can take over.
const refusedPause = 30 * time.Second

// unserved notes why an election of this node led to no term that served.
func (n *Node) unserved(why error) {
	longest := n.SessionTTL
	if (facts{refused: why}).refusal() != nil {
		longest = max(longest, refusedPause)
	}
	n.again.retry.InitialInterval, n.again.retry.Multiplier, n.again.retry.MaxInterval = n.SessionTTL/10, 2, longest
	pause := min(longest, journal.Jitter(n.again.retry.NextBackOff(), n.Random))
	n.again.at, n.again.why = n.Clock()+pause, fmt.Errorf("this node pauses after an election that led nowhere: %w", why)
	n.mu.Lock()
	n.ended, n.refused = why, why
	n.mu.Unlock()
	n.Log.Info().Err(why).Dur("pause", pause).Msg("this node was elected and did not come to serve: it pauses before it stands again")
}

// someoneServes notes that a node serves, this one or another.
func (n *Node) someoneServes() {
	n.again = again{}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused, n.ended = nil, nil
}

// giveUp ends an election that leads to no term. why is the cause if another try may fail for
// it too: then this node pauses before it stands again.
func (n *Node) giveUp(ctx context.Context, c *candidate, why error) {
	if ended := context.WithoutCancel(ctx); n.resign(ended, c.leader, c.session) {
		c.log.Release(ended)
	}
	n.setRole(Standby)
	if why != nil && ctx.Err() == nil {
		n.unserved(why)
	}
}

// resign deletes this node's leader key and ends its session. It reports whether the key is
// surely gone.
func (n *Node) resign(ctx context.Context, l Leader, s *Session) bool {
	gone := deleteLeader(ctx, n.Client, n.Layout, l) == nil
	s.close(ctx)
	return gone
}

// refusal returns what etcd refused when this node last was elected, while no node serves
// since; nil for nothing.
func (f facts) refusal() *Obstacle {
	if errors.Is(f.refused, rpctypes.ErrNoSpace) {
		return f.etcdFull(f.refused)
	}
	if of := f.etcdObstacle(f.refused); of != nil && of.Cause != EtcdAway {
		return of
	}
	return nil
}
