package promote

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/journal"
)

// squatters removes leader keys that would block elections for ever: those that no
// lease ends, or that cannot be read, and behind which no head moves. Somebody wrote
// them by hand, or restored them. For campaign alone.
type squatters struct {
	leader string         // value of the key, empty for none
	head   journal.Cursor // as it stood when the key was seen first
	since  time.Duration  // by the clock: when it was
}

// look looks at a leader key and at the head that was read with it, and deletes the
// key if both have stood as they are for a session TTL. Until then it returns an
// obstacle.
func (s *squatters) look(ctx context.Context, n *Node, l Leader, view journal.View) error {
	if l.value == "" || l.lease != 0 && !l.unreadable {
		*s = squatters{}
		return nil
	}
	if s.leader != l.value || !view.Still(s.head) {
		*s = squatters{l.value, view.Cursor, n.Clock()}
	}
	if n.Clock()-s.since < n.SessionTTL {
		return squatted(n.Layout.Leader(), l, n.SessionTTL)
	}
	attempt, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := n.Client.Txn(attempt).
		If(clientv3.Compare(clientv3.Value(n.Layout.Leader()), "=", l.value), s.head.Stands(n.Layout)).
		Then(n.Layout.DeleteLeader()...).Commit()
	if err != nil {
		return fmt.Errorf("deleting the leader key: %w", err)
	}
	if resp.Succeeded {
		n.Log.Warn().Str("value", l.value).Msg("deleted a leader key that no lease ends or nobody can read: no head moved behind it")
	}
	return nil
}
