package journal

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

// eventLeases gives records their lease in etcd: all records of one second
// share one, as etcd advises for keys of one TTL. Records thus live between
// the TTL and one second more.
type eventLeases struct {
	client  *clientv3.Client
	ttl     time.Duration
	clock   clock.Clock
	id      clientv3.LeaseID
	granted time.Duration // by the clock
}

// current returns the lease for records written now.
func (l *eventLeases) current(ctx context.Context) (clientv3.LeaseID, error) {
	if l.id != 0 && l.clock()-l.granted < time.Second {
		return l.id, nil
	}
	granted := l.clock()
	resp, err := l.client.Grant(ctx, int64((l.ttl+2*time.Second-1)/time.Second))
	if err != nil {
		return 0, err
	}
	l.id, l.granted = resp.ID, granted
	return l.id, nil
}

// drop forgets a lease that etcd does not know any more.
func (l *eventLeases) drop() { l.id = 0 }

func streamAt(i int) metadata.Stream { return metadata.Stream(i) }
