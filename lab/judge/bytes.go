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
	client.Object // without its Lease, which a probe does not have
	key           string
	asked         time.Duration
	ends          time.Duration // end of the lease; like asked, on the load's clock
}

const (
	holdEvery = 8    // one lease in so many is kept to its end
	maxHolds  = 4096 // at once
	// holdMargin is how long before the end of a kept lease the bytes are read again.
	holdMargin = 100 * time.Millisecond
)

// A reader reads and checks bytes. Only one goroutine may use it.
type reader struct {
	load           *Load
	rng            *rand.Rand
	found, scratch []byte
}

// newReader returns a reader whose random choices are those of an actor of the load.
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
	default: // the owners' queue is full
	}
	if wrong != "" {
		r.load.seen.add(A, "asked for at %v, %s", seconds(s.asked), wrong)
	} else if r.rng.IntN(holdEvery) == 0 {
		select {
		case r.load.holds <- s:
		default: // enough leases are kept
		}
	}
}

// recheck reads once more the bytes that were right when the lease began.
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

// look returns what is wrong with an object's bytes, "" for nothing. If the lease ended
// before the reading did, the bytes prove nothing, and looked is false.
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

// wrong returns what is wrong with a replica's bytes, "" for nothing.
func (r *reader) wrong(at client.Replica, id uint64, key string) string {
	if err := r.load.hosts.Read(at.Endpoint, at.Address, r.found); err != nil {
		return err.Error()
	}
	return hostmem.Check(r.found, r.scratch, id, key)
}

// holdLeases reads the bytes of each kept lease again shortly before it ends, until the
// context ends.
func (l *Load) holdLeases(ctx context.Context) {
	r := newReader(l, -1)
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-l.holds:
			// All leases last equally long, so the next one ends later.
			_ = clock.Sleep(ctx, s.ends-l.Now()-holdMargin)
			r.recheck(s)
		}
	}
}

// checkHolds reads the bytes of all leases that are still kept.
func (l *Load) checkHolds() {
	for r := newReader(l, -1); len(l.holds) > 0; {
		r.recheck(<-l.holds)
	}
}
