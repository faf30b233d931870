package judge

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/lab/hostmem"
)

// A place is where the bytes of a replica are said to be.
type place struct {
	endpoint string
	address  uint64
}

func placesOf(replicas []client.Replica) []place {
	var list []place
	for _, r := range replicas {
		if r.Kind == client.Memory {
			list = append(list, place{r.Endpoint, r.Address})
		}
	}
	return list
}

func placesOfMessage(replicas []*pb.Replica) []place {
	var list []place
	for _, r := range replicas {
		if m := r.GetMemory(); m != nil {
			list = append(list, place{m.GetEndpoint(), m.GetAddress()})
		}
	}
	return list
}

// A lease says whether, and how long, bytes stay what they are.
type lease interface {
	Valid() bool
	Remaining() time.Duration
}

// A sight is an object that a reader was pointed at.
type sight struct {
	key    string
	id     uint64
	size   uint64
	places []place
	lease  lease
	asked  time.Duration
}

// A hold is a lease that a reader keeps to its end. Its bytes were right at the
// beginning.
type hold struct{ sight }

const (
	holdEvery = 8    // reads to one lease that is kept
	maxHolds  = 4096 // at once
	// holdMargin is how long before its end a kept lease is looked at.
	holdMargin = 100 * time.Millisecond
)

// looks are what the load has read of the hosts' memory under leases that held
// to the end of the reading. Without any, nothing is known of A, or of L.
type looks struct {
	first atomic.Int64 // as soon as the place was known
	again atomic.Int64 // on leases that were kept
}

// A reader looks at bytes. One goroutine has it.
type reader struct {
	load           *Load
	rng            *rand.Rand
	found, scratch []byte
}

func newReader(l *Load, rng *rand.Rand) *reader {
	return &reader{load: l, rng: rng, found: make([]byte, l.config.Size), scratch: make([]byte, l.config.Size)}
}

// check reads an object's bytes as soon as its place is known, and keeps some of
// the leases.
func (r *reader) check(s sight) {
	if !s.lease.Valid() {
		return
	}
	if s.size != r.load.config.Size || len(s.places) == 0 {
		r.load.seen.add(A, "%v: object %d (key %s) has %d bytes in %d places, it was put with %d in at least one",
			seconds(s.asked), s.id, s.key, s.size, len(s.places), r.load.config.Size)
		return
	}
	wrong, looked := r.look(s)
	if !looked {
		return
	}
	r.load.looks.first.Add(1)
	if wrong != "" {
		r.load.seen.add(A, "asked for at %v, %s", seconds(s.asked), wrong)
	} else if r.rng.IntN(holdEvery) == 0 {
		select {
		case r.load.holds <- hold{s}:
		default: // enough are kept
		}
	}
}

// recheck looks at the bytes of a kept lease once more.
func (r *reader) recheck(h hold) {
	wrong, looked := r.look(h.sight)
	if !looked {
		return
	}
	r.load.looks.again.Add(1)
	if wrong != "" {
		r.load.seen.add(L, "asked for at %v, right then, and at %v, still under that lease, %s", seconds(h.asked), seconds(r.load.Now()), wrong)
	}
}

// look says what is wrong with an object's bytes, "" for nothing. What was read
// after the lease had ended counts for nothing: then it has not looked.
func (r *reader) look(s sight) (wrong string, looked bool) {
	for _, at := range s.places {
		if err := r.load.hosts.Read(at.endpoint, at.address, r.found); err != nil {
			wrong = err.Error()
		} else {
			wrong = hostmem.Check(r.found, r.scratch, s.id, s.key)
		}
		if !s.lease.Valid() {
			return "", false
		}
		if wrong != "" {
			return wrong, true
		}
	}
	return "", true
}

// holdLeases looks at the bytes of kept leases shortly before each ends, until
// the context does.
func (l *Load) holdLeases(ctx context.Context) {
	r := newReader(l, l.rng(-1))
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-l.holds:
			// All leases are as long, so the next one ends later.
			wait.Reset(h.lease.Remaining() - holdMargin)
			select {
			case <-wait.C:
			case <-ctx.Done():
			}
			r.recheck(h)
		}
	}
}

// checkHolds looks at what is kept still.
func (l *Load) checkHolds() {
	r := newReader(l, l.rng(-1))
	for {
		select {
		case h := <-l.holds:
			r.recheck(h)
		default:
			return
		}
	}
}
