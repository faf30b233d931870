package journal

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/understudy-store/understudy/internal/security/share"
)

const (
	// firstBytes of the queue are for whoever comes first.
	firstBytes = 2 << 20
	// peerBytes is the most that one peer may have in the queue: a few commits, for which
	// all others wait that come later.
	peerBytes = 8 << 20
)

// room is that of a queue, in three parts. The first goes to whoever comes first, whoever
// that is. Of the second each peer has a share, and peers that wait take turns. The third
// is for what this program does by itself, so that renewals, evictions and the end of
// clients do not wait for clients' calls.
type room struct {
	first *semaphore.Weighted // never waited for
	peers *share.Budget
	own   *semaphore.Weighted

	ownBytes int64 // of own
	least    int64 // bytes that a submission counts at least, to bound their number
}

func newRoom(capacity int64) room {
	first, own := min(capacity/4, firstBytes), max(capacity/8, MaxSubmissionBytes/4)
	rest := capacity - first - own
	return room{
		first: semaphore.NewWeighted(first), own: semaphore.NewWeighted(own), ownBytes: own, least: capacity / MaxWaiting,
		peers: share.NewBudget(share.Rule{What: "bytes", Total: rest, Peer: min(rest/2, peerBytes), Few: rest / 64}),
	}
}

// A place is what a submission has of the room.
type place struct {
	bytes int64
	first bool
	peer  string // whose part it is of, unless first; empty for this program
}

// takeNow takes a place if there is one for whoever comes first.
func (r *room) takeNow(p *place, bytes int) bool {
	p.bytes = max(int64(bytes), r.least)
	p.first = r.first.TryAcquire(p.bytes)
	return p.first
}

func (r *room) take(ctx context.Context, p *place, bytes int) error {
	p.bytes = max(int64(bytes), r.least)
	if p.peer = share.PeerOf(ctx); p.peer == "" {
		p.bytes = min(p.bytes, r.ownBytes)
		return r.own.Acquire(ctx, p.bytes)
	}
	p.bytes = min(p.bytes, r.peers.Peer)
	return r.peers.Wait(ctx, p.peer, p.bytes)
}

func (r *room) giveBack(p *place) {
	switch {
	case p.first:
		r.first.Release(p.bytes)
	case p.peer == "":
		r.own.Release(p.bytes)
	default:
		r.peers.GiveBack(p.peer, p.bytes)
	}
}
