package promote

import (
	"context"
	"io"

	"github.com/understudy-store/understudy/errs"
)

// Backup writes this node's state as a state file. Errors: Unavailable without a
// complete state, or if it is complete no more at the end.
func (n *Node) Backup(ctx context.Context, to io.Writer) error {
	of := n.source()
	if of == nil {
		return errs.New(errs.Unavailable, "Backup", "this node holds no complete state now; ask another one")
	}
	begun := n.Clock()
	at, err := of.Write(ctx, to)
	if err == nil {
		err = of.Valid()
	}
	if err != nil {
		return errs.Wrap(errs.Unavailable, "Backup", err)
	}
	n.Log.Info().Uint64("sequence", uint64(at.Head.Seq)).Dur("took", n.Clock()-begun).Msg("sent a backup of the state")
	return nil
}
