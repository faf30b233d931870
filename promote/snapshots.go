package promote

import (
	"context"
	"errors"

	"github.com/understudy-store/understudy/journal"
)

// snapshots fetches snapshots from the primary.
type snapshots struct{ n *Node }

func (s snapshots) Fetch(ctx context.Context, add func([]byte) error) (journal.Cursor, error) {
	l, there, err := readLeader(ctx, s.n.Client, s.n.Layout)
	if err != nil {
		return journal.Cursor{}, err
	}
	if !there || l.State != Serving {
		return journal.Cursor{}, errors.New("nobody serves")
	}
	return s.n.Peers.Fetch(ctx, l.RPC, add)
}
