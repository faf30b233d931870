package app

import (
	"context"
	"errors"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/internal/metrics"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/journal"
)

// newMetrics returns the metrics of this node.
func (a *App) newMetrics(etcd *etcdConn) *metrics.Metrics {
	src := metrics.Sources{
		Clock: a.clock, Status: a.node.promoteStatus, Store: a.node.Store, Gate: a.gate,
		Calls: a.counters.service, Renewals: a.counters.leases, Evictions: a.counters.eviction,
	}
	if n, ok := a.node.(*clusterNode); ok && etcd != nil {
		src.Head = func(ctx context.Context) (journal.Position, error) { return n.reader.Head(ctx) }
		src.EtcdSize = n.etcd.sizes
	}
	return metrics.New(src)
}

// serveRPC answers gRPC calls until the context ends.
func (a *App) serveRPC(ctx context.Context) error {
	server := rpc.NewServer(rpc.Config{
		ClusterID: a.cfg.HA.ClusterID, NodeID: a.cfg.Node.ID, Gate: a.gate, Node: a.node, Snapshots: a.node,
		Clock: a.clock, Log: a.log, Observer: a.metrics, Limits: rpc.Limits{MessageBytes: int(a.cfg.Listen.MaxMessageBytes)},
	})
	return serve(ctx, func() error { return server.Serve(a.rpcListener) }, server.Stop)
}

// serveHTTP answers on the metrics port until the context ends.
func (a *App) serveHTTP(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", a.metrics.Handler())
	server := &http.Server{Handler: mux}
	return serve(ctx, func() error { return server.Serve(a.httpListener) }, server.Shutdown)
}

// serve runs a server until the context ends, and then stops it in order.
func serve(ctx context.Context, run func() error, stop func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := run()
		if err == nil || errors.Is(err, http.ErrServerClosed) {
			return context.Canceled // stopped, and so is all
		}
		return err
	})
	g.Go(func() error {
		<-ctx.Done()
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return stop(within)
	})
	return g.Wait()
}
