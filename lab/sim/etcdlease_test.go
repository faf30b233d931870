package sim

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/internal/clock"
)

// expiryTick is how often etcd looks for leases that have run out: a key goes
// up to so much later than its TTL.
const expiryTick = 500 * time.Millisecond

// ahead is how much earlier than etcd leases are revoked here.
const ahead = time.Nanosecond

// leases revokes leases that run out, in the order of their ids and one after
// another. It does so just before etcd, which would start a goroutine for each:
// then the scheduler would decide which one goes first.
type leases struct {
	now clock.Clock

	mu        sync.Mutex // guards all below
	last      int64      // id that was given out
	deadlines map[int64]time.Duration
}

// nextID returns an id for a new lease. None is used twice, not even after a
// backup was restored.
func (l *leases) nextID() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return l.last
}

// begin sets a lease's deadline; it is gone if the TTL is 0.
func (l *leases) begin(id, seconds int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seconds <= 0 {
		delete(l.deadlines, id)
		return
	}
	l.deadlines[id] = l.now() + time.Duration(seconds)*time.Second
}

// observe learns deadlines from what the server answers.
func (l *leases) observe(answer proto.Message) {
	switch a := answer.(type) {
	case *pb.LeaseGrantResponse:
		l.begin(a.ID, a.TTL)
	case *pb.LeaseKeepAliveResponse:
		l.begin(a.ID, a.TTL)
	}
}

// recover takes over the leases of a server that has just started, which all
// begin anew.
func (l *leases) recover(etcd *etcdserver.EtcdServer) error {
	l.mu.Lock()
	l.deadlines = make(map[int64]time.Duration)
	l.mu.Unlock()
	list, err := etcd.LeaseLeases(context.Background(), &pb.LeaseLeasesRequest{})
	if err != nil {
		return err
	}
	for _, of := range list.Leases {
		info, err := etcd.LeaseTimeToLive(context.Background(), &pb.LeaseTimeToLiveRequest{ID: of.ID})
		if err != nil {
			return err
		}
		l.begin(of.ID, info.GrantedTTL)
	}
	return nil
}

// expired returns the leases that run out by the server's next tick, and forgets
// them.
func (l *leases) expired() (list []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(l.deadlines)) {
		if l.deadlines[id] <= l.now()+ahead {
			delete(l.deadlines, id)
			list = append(list, id)
		}
	}
	return list
}

// run revokes leases until the context ends. It must be called at a tick of the
// server.
func (l *leases) run(ctx context.Context, etcd *etcdserver.EtcdServer) {
	tick := time.NewTimer(expiryTick - ahead)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		tick.Reset(expiryTick)
		for _, id := range l.expired() {
			_, _ = etcd.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id}) // it fails if the lease was revoked already
		}
	}
}
