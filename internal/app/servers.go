package app

import (
	"context"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/httpapi/metaserver"
	"github.com/understudy-store/understudy/internal/metrics"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
)

func (a *App) newMetrics(etcd *etcdConn) *metrics.Metrics {
	src := metrics.Sources{
		Clock: a.clock, Status: a.node.promoteStatus, Store: a.node.Store, Gate: a.gate,
		Calls: a.counters.service, Renewals: a.counters.leases, Evictions: a.counters.eviction,
		FileCapacity: uint64(a.cfg.Storage.QuotaBytes), Certificates: a.expiries,
	}
	refused := &a.connections.refused
	src.RefusedConnections = func() (ofPeers, ofIdentities uint64) { return refused.ofPeers.Load(), refused.ofIdentities.Load() }
	if n, ok := a.node.(*clusterNode); ok && etcd != nil {
		src.Head = func(ctx context.Context) (journal.Cursor, error) { return n.reader.Head(ctx) }
		src.EtcdSize, src.SettingsDiffer = n.etcd.sizes, n.agreement.count
	}
	m := metrics.New(src)
	a.counters.service.Reserved = m.Reserved // before anything is served
	return m
}

func (a *App) newRPC() *rpc.Server {
	config := rpc.Config{
		ClusterID: a.cfg.HA.ClusterID, NodeID: a.cfg.Node.ID, Gate: a.gate, Node: a.node, Snapshots: a.node,
		Clock: a.clock, Log: a.log, Observer: a.metrics, Limits: rpc.Limits{MessageBytes: int(a.cfg.Listen.MaxMessageBytes)},
		Tenants: service.Tenants(a.cfg.Tenants.Enabled), Scans: a.scans, Credentials: a.credentials(), Callers: a.callers, Admit: a.connections.admitAs, ClientRegex: a.cfg.Security.ClientRegex, KVEvents: a.kv.feed,
	}
	if n, ok := a.node.(*clusterNode); ok {
		config.Registered = n.known.has
	}
	if a.tracing != nil {
		config.Tracer = a.tracing.ServerHandler()
	}
	return rpc.NewServer(config)
}

func (a *App) serveRPC(ctx context.Context) error {
	return serve(ctx, func() error { return a.rpc.Serve(a.mooncake.grpc(a.rpcListener)) }, a.rpc.Stop)
}

func (a *App) serveHTTP(ctx context.Context) error {
	return a.serveAPI(ctx, httpapi.API{
		Node: a.httpNode, Admin: a.rpc.JSON(), Metrics: a.metrics.Handler(), Summary: a.metrics.Summary,
		MooncakeSummary: a.metrics.MooncakeSummary, Extended: a.cfg.Listen.Extended,
		KVEvents: func() any { return a.kv.publisher.Status() }, Console: a.console(),
	})
}

// serveAPI serves HTTP with the settings that nodes and witnesses have in common.
func (a *App) serveAPI(ctx context.Context, api httpapi.API) error {
	api.Gate, api.Log, api.Callers, api.Hosts, api.Pprof = a.gate, a.log, a.callers, a.cfg.Security.HTTPHosts, a.cfg.Debug.Pprof
	server := httpapi.NewServer(api.Handler(), a.connections.http, a.httpTLS(), a.log.With().Str("part", "http").Logger())
	a.connections.bound(server, a.callers)
	return serve(ctx, func() error { return server.Serve(a.httpListener) }, server.Stop)
}

func (a *App) newMetadataStore(etcd *etcdConn) metaserver.Store {
	if etcd == nil {
		return new(metaserver.Memory)
	}
	full := func() bool { return a.node.promoteStatus().Self.EtcdFull }
	return metaserver.NewEtcd(etcd.journal, a.cfg.HA.EtcdPrefix, a.cfg.HA.ClusterID, full)
}

// forgetMetadata returns a function that deletes the published metadata of a client that
// expired; nil if that is off. The keys have the prefix that Mooncake's programs give them.
func (a *App) forgetMetadata() func(ctx context.Context, names []string) {
	if !a.cfg.Listen.Metadata || !a.cfg.Listen.MetadataCleanup {
		return nil
	}
	prefix := "mooncake/"
	if id := strings.TrimRight(os.Getenv("MC_METADATA_CLUSTER_ID"), "/"); id != "" {
		prefix += id + "/"
	}
	return func(ctx context.Context, names []string) {
		if err := metaserver.Forget(ctx, a.metadataStore, prefix, names); err != nil {
			a.log.Warn().Err(err).Msg("the metadata of a client that expired stays")
		}
	}
}

// serveMetadata answers the hosts' transfer engines until the context ends.
func (a *App) serveMetadata(ctx context.Context) error {
	if a.metadataListener == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	log := a.log.With().Str("part", "metadata").Logger()
	server := httpapi.NewServer(a.allowed(httpapi.Shielded(a.cfg.Security.HTTPHosts, metaserver.Handler(a.metadataStore, log))), a.connections.http, nil, log)
	log.Info().Stringer("http", a.metadataListener.Addr()).Msg("the metadata server answers")
	return serve(ctx, func() error { return server.Serve(a.metadataListener) }, server.Stop)
}

// httpNode returns the status of this node without asking etcd.
func (a *App) httpNode() httpapi.NodeStatus {
	s := a.node.promoteStatus()
	st := httpapi.NodeStatus{
		NodeID: s.Self.ID, Role: string(s.Self.Role), Term: uint64(max(s.Leader.Term, s.Position.Term)),
		Promotable: s.Self.Promotable, Why: s.Self.Why,
	}
	if s.Obstacle != nil {
		st.Obstacle, st.Help = s.Obstacle.Reason, s.Obstacle.Help
	}
	if s.Leader.NodeID != "" {
		st.Leader = &httpapi.Leader{NodeID: s.Leader.NodeID, RPC: s.Leader.RPC, HTTP: s.Leader.HTTP}
	}
	if !a.cfg.HA.Enabled {
		st.Promotable, st.Why = false, errNoHA.Error()
	}
	return st
}

// serve runs a server until the context ends, and then stops it in order.
func serve(ctx context.Context, run func() error, stop func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := run()
		if err == nil {
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
