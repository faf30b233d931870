package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/hostmem"
)

// A hold is a lease that a reader keeps to its end.
type hold struct {
	key string
	client.Object
}

const (
	holdEvery = 20   // one lease in so many is kept
	maxHolds  = 4096 // leases that are kept at the same time
)

// holdLeases reads the blocks of kept leases once more, shortly before each
// ends: they must not have changed.
func (p *Player) holdLeases(ctx context.Context) {
	block, scratch := make([]byte, p.Block), make([]byte, p.Block)
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-p.holds:
			// All leases last equally long, so the next one ends later.
			if clock.Sleep(ctx, h.Lease.Remaining()-100*time.Millisecond) != nil {
				return
			}
			p.checkHold(h, block, scratch)
		}
	}
}

func (p *Player) checkHold(h hold, block, scratch []byte) {
	for _, r := range h.Replicas {
		if r.Kind != client.Memory || p.hosts.Read(r.Endpoint, r.Address, block) != nil || !h.Lease.Valid() {
			continue
		}
		if wrong := hostmem.Check(block, scratch, uint64(h.ID), h.key); wrong != "" {
			p.judge.violation(&p.judge.broken.BrokenLeases, "at the end of a lease, "+wrong)
		}
	}
}

// verifyPuts looks for acknowledged puts whenever a new primary serves.
func (p *Player) verifyPuts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.verify:
			_ = p.lookForPuts(ctx) // fails with the context only
		}
	}
}

// lookForPuts checks that the newest acknowledged puts exist. Eviction takes the oldest
// first, so it does not explain the loss of one of these.
func (p *Player) lookForPuts(ctx context.Context) error {
	expected := p.judge.expected()
	for len(expected) > 0 {
		n := min(len(expected), 500)
		keys := make([]string, n)
		for i := range keys {
			keys[i] = expected[i].key
		}
		found, err := p.clients[0].BatchGetReplicaList(ctx, keys)
		if err != nil {
			return err
		}
		for i, f := range found {
			switch want := expected[i]; {
			case f.Err == nil && f.ID == want.id:
			case f.Err == nil:
				p.judge.lost(want, fmt.Sprintf("; object %v was put in its place", f.ID))
			case errors.Is(f.Err, errs.ObjectNotFound) || errors.Is(f.Err, errs.ReplicaNotReady):
				p.judge.lost(want, fmt.Sprintf(": %v", f.Err))
			}
		}
		expected = expected[n:]
	}
	return nil
}
