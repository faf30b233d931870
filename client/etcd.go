package client

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
)

const (
	readTimeout = 3 * time.Second
	// lookEvery is how often the leader key is read anew while calls need a leader and
	// none is found. It is longer than most failovers take.
	lookEvery = 2 * time.Second
)

// watch follows the leader key until the context ends, whatever happens to etcd. Without
// etcd the client goes by what it knows and by hints.
func (f *finder) watch(ctx context.Context, etcd *clientv3.Client) {
	pauses := newPauses()
	pauses.MaxInterval = 2 * time.Second
	for {
		answered, err := f.follow(ctx, etcd)
		if ctx.Err() != nil {
			return
		}
		f.config.Log.Debug("cannot watch the leader key in etcd, trying again", "error", err)
		if answered {
			pauses.Reset()
		}
		if clock.Sleep(ctx, pauses.NextBackOff()) != nil {
			return
		}
	}
}

// follow reads the leader key and then watches it, until that fails, or brings no leader
// while calls need one. Then the etcd may be new, or restored from a backup: it counts
// its revisions anew, and the watch waits in silence for one that is yet to come. It
// reports whether etcd has answered at all.
func (f *finder) follow(ctx context.Context, etcd *clientv3.Client) (answered bool, err error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	read, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	key := f.config.Transport.LeaderKey(f.config)
	resp, err := etcd.Get(read, key)
	if err != nil {
		return false, err
	}
	for _, kv := range resp.Kvs {
		f.readLeaderKey(kv)
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	changes := etcd.Watch(ctx, key, clientv3.WithRev(resp.Header.Revision+1))
	for {
		select {
		case <-look.C:
			if f.needed() {
				return true, errors.New("calls need a leader, and the watch names none")
			}
		case r, ok := <-changes:
			if !ok {
				return true, errors.New("the watch ended")
			}
			if err := r.Err(); err != nil {
				return true, err
			}
			for _, e := range r.Events {
				if e.Type == clientv3.EventTypePut {
					f.readLeaderKey(e.Kv)
				}
			}
		}
	}
}

func (f *finder) readLeaderKey(kv *mvccpb.KeyValue) {
	address, term, err := f.config.Transport.ParseLeader(kv.Value, kv.ModRevision)
	if err != nil {
		f.config.Log.Debug("cannot read the leader key", "key", string(kv.Key), "error", err)
		return
	}
	f.announced(address, term)
}
