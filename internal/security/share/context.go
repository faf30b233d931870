package share

import "context"

// PeerKey is the context's key for the peer that a call counts for, a string. Only calls
// that wait are asked for it.
type PeerKey struct{}

// PeerOf returns the peer that a call counts for; empty for what this program does by
// itself.
func PeerOf(ctx context.Context) string {
	peer, _ := ctx.Value(PeerKey{}).(string)
	return peer
}
