package share

import "context"

// PeerKey is the key of a context under which a call has the peer that it counts for, a
// string. Few calls are asked for theirs: those that wait.
type PeerKey struct{}

// PeerOf returns the peer that a call counts for; empty for what this program does by
// itself.
func PeerOf(ctx context.Context) string {
	peer, _ := ctx.Value(PeerKey{}).(string)
	return peer
}
