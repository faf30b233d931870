package app

import (
	"cmp"
	"context"
	"net"
	"strings"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake/kvpublisher"
	"github.com/understudy-store/understudy/internal/service/kvevents"
	"github.com/understudy-store/understudy/metadata"
)

// kvEvents publishes the changes of keys to those who follow the cache. Its fields are zero
// without --enable_kv_events.
type kvEvents struct {
	feed      *kvevents.Feed
	listener  net.Listener // nil without --kv_events_bind_endpoint
	publisher *kvpublisher.Publisher
}

// unboundedEvents is what --kv_events_queue_capacity=0 means.
const unboundedEvents = 1 << 20

// openKVEvents makes the feed, and listens for subscribers over ZeroMQ.
func (a *App) openKVEvents() error {
	cfg := a.cfg.KVEvents
	if !cfg.Enabled {
		return nil
	}
	a.kv.feed = kvevents.New(cmp.Or(cfg.Capacity, unboundedEvents), func() string { return a.node.history() })
	if cfg.Endpoint == "" {
		return nil
	}
	l, err := listen(strings.Replace(strings.TrimPrefix(cfg.Endpoint, "tcp://"), "*", "", 1), "--kv_events_bind_endpoint", "--kv_events_bind_endpoint")
	if err != nil {
		return err
	}
	l = a.connections.listener(l)
	a.kv.listener = l
	a.kv.publisher = kvpublisher.New(kvpublisher.Config{
		Listener: l, Feed: a.kv.feed, Tenants: a.tenants, Allow: a.cfg.Allows, Wall: clock.Wall, Log: a.log.With().Str("part", "kv_events").Logger(),
		Format: kvpublisher.Format{BackendID: cfg.Backend(a.cfg.HA.ClusterID), ObjectKey: cfg.ObjectKey, Legacy: cfg.Legacy},
	})
	return nil
}

// tenants returns those that may have keys.
func (a *App) tenants() (names []string) {
	if store := a.node.Store(); store != nil {
		for _, t := range store.Quotas() {
			names = append(names, t.Tenant)
		}
	}
	return names
}

// watcher returns what is called as the objects of this node's stores come and go; nil for
// nothing.
func (k *kvEvents) watcher() metadata.Watcher {
	if k.feed == nil {
		return nil
	}
	return k.feed
}

func (a *App) servePublisher(ctx context.Context) error {
	if a.kv.publisher != nil {
		a.log.Info().Stringer("address", a.kv.listener.Addr()).Msg("KV events are published over ZeroMQ while this node serves")
	}
	return a.kv.publisher.Run(ctx)
}
