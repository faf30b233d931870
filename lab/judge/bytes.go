package judge

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/hostmem"
)

// A sight is an object that a reader has a lease on.
type sight struct {
	client.Object // not its Lease, which a probe cannot make
	key           string
	asked         time.Duration
	ends          time.Duration // the lease; on the load's clock, as asked is
}

const (
	holdEvery = 8    // reads to one lease that is kept to its end
	maxHolds  = 4096 // at once
	// holdMargin is how long before its end a kept lease is looked at.
	holdMargin = 100 * time.Millisecond
)

// A reader looks at bytes. One goroutine has it.
type reader struct {
	load           *Load
	rng            *rand.Rand
	found, scratch []byte
}

// newReader returns one with the random choices of one actor of the load.
func newReader(l *Load, actor int) *reader {
	rng := rand.New(rand.NewPCG(l.config.Seed, uint64(actor)))
	return &reader{load: l, rng: rng, found: make([]byte, objectSize), scratch: make([]byte, objectSize)}
}

func hasBytes(r client.Replica) bool { return r.Kind == client.Memory || r.Kind == client.LocalDisk }

func inMemory(o client.Object) bool {
	return slices.ContainsFunc(o.Replicas, func(r client.Replica) bool { return r.Kind == client.Memory })
}

// check reads an object's bytes as soon as its place is known, and keeps some of
// the leases.
func (r *reader) check(s sight) {
	if s.ends <= r.load.Now() {
		return
	}
	if s.Size != objectSize || !slices.ContainsFunc(s.Replicas, hasBytes) {
		r.load.seen.add(A, "%v: object %d (key %s) has %d bytes in %d places, it was put with %d in at least one",
			seconds(s.asked), s.ID, s.key, s.Size, len(s.Replicas), objectSize)
		return
	}
	wrong, looked := r.look(s)
	if !looked {
		return
	}
	r.load.looks.Add(1)
	select {
	case r.load.asked <- s:
	default: // owners have enough to do
	}
	if wrong != "" {
		r.load.seen.add(A, "asked for at %v, %s", seconds(s.asked), wrong)
	} else if r.rng.IntN(holdEvery) == 0 {
		select {
		case r.load.holds <- s:
		default: // enough are kept
		}
	}
}

// recheck looks once more at bytes that were right when the lease began.
func (r *reader) recheck(s sight) {
	wrong, looked := r.look(s)
	if !looked {
		return
	}
	r.load.kept.Add(1)
	if wrong != "" {
		r.load.seen.add(L, "asked for at %v, right then, and at %v, still under that lease, %s", seconds(s.asked), seconds(r.load.Now()), wrong)
	}
}

// look says what is wrong with an object's bytes, "" for nothing. What was read
// after the lease had ended counts for nothing: then it has not looked.
func (r *reader) look(s sight) (wrong string, looked bool) {
	for _, at := range s.Replicas {
		switch {
		case wrong != "":
		case at.Kind == client.Memory:
			wrong = r.wrong(at, uint64(s.ID), s.key)
		case at.Kind == client.LocalDisk:
			wrong = r.wrongFile(at, uint64(s.ID), s.key)
		}
	}
	if s.ends <= r.load.Now() {
		return "", false
	}
	return wrong, true
}

// wrong says what is wrong with a replica's bytes, "" for nothing.
func (r *reader) wrong(at client.Replica, id uint64, key string) string {
	if err := r.load.hosts.Read(at.Endpoint, at.Address, r.found); err != nil {
		return err.Error()
	}
	return hostmem.Check(r.found, r.scratch, id, key)
}

// holdLeases looks at the bytes of kept leases shortly before each ends, until
// the context does.
func (l *Load) holdLeases(ctx context.Context) {
	r := newReader(l, -1)
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-l.holds:
			// All leases are as long, so the next one ends later.
			_ = clock.Sleep(ctx, s.ends-l.Now()-holdMargin)
			r.recheck(s)
		}
	}
}

// checkHolds looks at what is kept still.
func (l *Load) checkHolds() {
	for r := newReader(l, -1); len(l.holds) > 0; {
		r.recheck(<-l.holds)
	}
}
