package fakeetcd

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A watcher is clientv3's, but with a stream for each watch. clientv3 lets
// watches share one, and when one watch ends as another begins, the scheduler
// decides whether the second still finds it: what comes when would not be the
// seed's to say.
type watcher struct {
	client *clientv3.Client
	shared clientv3.Watcher // the client's own, for what no watch is meant by

	mu   sync.Mutex // guards all below
	open map[clientv3.Watcher]bool
}

func newWatcher(c *clientv3.Client) *watcher {
	return &watcher{client: c, shared: c.Watcher, open: make(map[clientv3.Watcher]bool)}
}

// Watch watches until the context ends.
func (w *watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	one := clientv3.NewWatchFromWatchClient(pb.NewWatchClient(w.client.ActiveConnection()), w.client)
	w.mu.Lock()
	w.open[one] = true
	w.mu.Unlock()
	context.AfterFunc(ctx, func() {
		_ = one.Close() // else its stream is still opened, if the link is cut
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, one)
	})
	return one.Watch(ctx, key, opts...)
}

// RequestProgress asks for the revision, for all watches.
func (w *watcher) RequestProgress(ctx context.Context) error {
	for _, one := range w.all() {
		if err := one.RequestProgress(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close ends all watches.
func (w *watcher) Close() (err error) {
	for _, one := range append(w.all(), w.shared) {
		if e := one.Close(); e != nil {
			err = e
		}
	}
	return err
}

func (w *watcher) all() (list []clientv3.Watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.open {
		list = append(list, one)
	}
	return list
}
