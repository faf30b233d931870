package sim

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A watcher is clientv3's, but with a stream for each watch. clientv3 lets
// watches share one, and when one watch ends as another begins, the scheduler
// decides whether the second still finds it.
type watcher struct {
	clientv3.Watcher // the client's own, for what is not about one watch
	client           *clientv3.Client
	closed           context.Context //nolint:containedctx // ends with Close
	end              context.CancelFunc
	watches          sync.WaitGroup
}

func newWatcher(c *clientv3.Client) *watcher {
	closed, end := context.WithCancel(context.Background())
	return &watcher{Watcher: c.Watcher, client: c, closed: closed, end: end}
}

// Watch watches until the context ends.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	one := clientv3.NewWatchFromWatchClient(pb.NewWatchClient(w.client.ActiveConnection()), w.client)
	w.watches.Go(func() {
		select {
		case <-ctx.Done():
		case <-w.closed.Done():
		}
		_ = one.Close() // else its stream would still be opened when a link that is cut heals
	})
	return one.Watch(ctx, key, opts...)
}

// Close ends all watches.
func (w *watcher) Close() error {
	w.end()
	w.watches.Wait()
	return w.Watcher.Close()
}
