// Package app is the program: it wires the parts of a node together, starts
// them, and stops them in order. New checks and listens, Run serves until its
// context ends. Nothing here is global: several nodes run in one process.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/app/tracing"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/files"
	"github.com/understudy-store/understudy/internal/httpapi/console"
	"github.com/understudy-store/understudy/internal/httpapi/metaserver"
	"github.com/understudy-store/understudy/internal/metrics"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/certs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// stopTimeout bounds how long servers may finish their calls at the end.
const stopTimeout = 3 * time.Second

// An App is one node.
type App struct {
	cfg     config.Config
	version string
	log     zerolog.Logger
	clock   clock.Clock
	quotas  []metadata.TenantQuota // of the policy file

	rpcListener, httpListener        net.Listener
	mooncakeListeners                []net.Listener // of further generations, as in the settings
	metadataListener                 net.Listener   // nil without a metadata server
	kv                               kvEvents
	waiting                          *waiting // answers until etcd does; nil without an etcd, or with one that is this node's alone
	connections                      *connectionBudget
	etcdClientConns, etcdMemberConns *connectionBudget // of an etcd in this process; else nil
	scans                            *service.Scans
	metadataStore                    metaserver.Store
	certs, etcdCerts                 *certs.Source   // nil without TLS
	callers                          *access.Callers // nil without roles

	gate     *service.Gate
	mooncake mooncakePorts // nothing unless Mooncake's clients are served
	counters counters
	metrics  *metrics.Metrics
	tracing  *tracing.Tracing // nil without traces
	recorder *console.Recorder
	hot      *service.HotKeys
	rpc      *rpc.Server
	node     node // set by Run before anything serves
}

// counters count over all terms of this node.
type counters struct {
	service  *service.Counters
	leases   *leasesync.Counters
	eviction *eviction.Counters
}

// A node is what this process runs: a node of a cluster, or a lone one without HA.
type node interface {
	rpc.Node
	rpc.SnapshotSource
	// run returns when the context ends, or with an error.
	run(ctx context.Context) error
	// promoteStatus returns the node's status without asking etcd.
	promoteStatus() promote.Status
	// history names the journal that the state comes from. It is asked for each batch of
	// KV events.
	history() string
	// knownRules returns the newest rules that all nodes know.
	knownRules(ctx context.Context) (metadata.Rules, error)
}

// asServed shows a node that leads in a term and takes no calls yet as one that is promoted
// still.
func (a *App) asServed(s promote.Status) promote.Status {
	if _, err := a.gate.Master(); err != nil && s.Self.Role == promote.Primary {
		s.Self.Role = promote.Promoting
	}
	return s
}

// New returns a node that listens on its ports and is ready to run. A port that
// is taken is an error that says which setting names it.
func New(cfg config.Config, version string, log zerolog.Logger) (*App, error) {
	a := &App{
		cfg: cfg, version: version, clock: clock.Boot(), gate: service.NewGate(), scans: service.NewScans(),
		counters: counters{service.NewCounters(), new(leasesync.Counters), new(eviction.Counters)},
	}
	files, err := descriptors()
	if err != nil {
		return nil, err
	}
	if a.quotas, err = initialQuotas(cfg.Tenants); err != nil {
		return nil, err
	}
	if err = a.open(files, log); err != nil {
		a.closeListeners()
		return nil, err
	}
	return a, nil
}

// open listens on the node's ports, and completes its settings with their addresses. If it
// fails, the caller must close the ports.
func (a *App) open(files int, log zerolog.Logger) (err error) {
	cfg := a.cfg
	if !cfg.HA.Witness {
		if err = a.openForCalls(); err != nil {
			return err
		}
	}
	if a.httpListener, err = listen(cfg.Listen.HTTP(), "--metrics_host", "--metrics_port"); err != nil {
		return err
	}
	calls := a.httpListener.Addr() // of a witness, which has no other port for callers
	if !cfg.HA.Witness {
		calls = a.rpcListener.Addr()
	}
	if a.cfg, err = cfg.Resolve(calls, a.httpListener.Addr()); err != nil {
		return err
	}
	a.log = log.With().Str("node", a.cfg.Node.ID).Logger()
	if err = a.loadCertificates(); err != nil {
		return err
	}
	if cfg.HA.Embedded() {
		a.etcdClientConns, a.etcdMemberConns, files = newEtcdBudgets(files, cfg.Peers.Share, cfg.HA.Members(), a.log)
	}
	a.connections = newConnectionBudget(files, cfg.Peers.Share, cfg.Mooncake.Forward, a.log)
	if a.cfg.HA.Members() || a.cfg.HA.Enabled && !a.cfg.HA.Embedded() {
		if a.waiting, err = newWaiting(a.httpListener, a.rpcListener, append(a.mooncakeListeners, a.metadataListener)...); err != nil {
			return err
		}
	}
	if cfg.HA.Witness {
		return nil
	}
	if err = a.openKVEvents(); err != nil {
		return err
	}
	a.rpcListener = a.connections.listener(a.rpcListener)
	for i, l := range a.mooncakeListeners {
		a.mooncakeListeners[i] = a.connections.listener(l)
	}
	return nil
}

// openForCalls listens on all ports but that for HTTP.
func (a *App) openForCalls() (err error) {
	cfg := a.cfg
	if a.rpcListener, err = listen(cfg.Listen.RPC(), "--rpc_address", "--rpc_port"); err != nil {
		return err
	}
	for _, l := range cfg.Mooncake.Listen {
		further, err := listen(l.Address, "--mooncake-listen", "--mooncake-listen")
		if err != nil {
			return err
		}
		a.mooncakeListeners = append(a.mooncakeListeners, further)
	}
	if cfg.Listen.Metadata {
		a.metadataListener, err = listen(cfg.Listen.HTTPMetadata(), "--http_metadata_server_host", "--http_metadata_server_port")
	}
	return err
}

func listen(address, host, port string) (net.Listener, error) {
	l, err := listenTCP(address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is taken by another program: stop it, or choose another port with %s (0 takes a free one)", address, port)
	case err != nil:
		return nil, fmt.Errorf("%w; check %s and %s", err, host, port)
	}
	return l, nil
}

func (a *App) closeListeners() {
	for _, l := range append(a.mooncakeListeners, a.rpcListener, a.httpListener, a.metadataListener, a.kv.listener) {
		if l != nil {
			_ = l.Close()
		}
	}
	if a.waiting != nil {
		a.waiting.close()
	}
}

// RPCAddress returns the address at which this node's gRPC service is reached.
func (a *App) RPCAddress() string { return a.cfg.Node.AdvertiseAddress }

// Run serves until the context ends, then hands over if it can, and stops.
func (a *App) Run(ctx context.Context) (err error) {
	defer a.closeListeners()
	defer a.renewCerts(ctx)() // also while this node waits for etcd, or to join it
	etcd, err := a.openEtcd(ctx)
	if err != nil && ctx.Err() != nil {
		a.log.Info().Err(err).Msg("stopped before etcd answered")
		return nil
	}
	if err != nil {
		return err
	}
	defer etcd.close()
	if a.cfg.HA.Witness {
		return a.runWitness(ctx, etcd)
	}
	if err := a.openTracing(); err != nil {
		return err
	}
	defer a.tracing.Close() // after all that records
	if err := a.wire(etcd); err != nil {
		return err
	}

	// The servers outlive the node: its successor calls them.
	servers, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, servers := errgroup.WithContext(servers)
	a.startServers(servers, g)
	if err := a.writeReadyFile(etcd); err != nil {
		stop()
		_ = g.Wait()
		return err
	}
	a.log.Info().Str("version", a.version).Str("rpc", a.cfg.Node.AdvertiseAddress).Str("http", a.cfg.Node.HTTPAddress).
		Bool("ha", a.cfg.HA.Enabled).Msg("started")

	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	context.AfterFunc(servers, func() { cancel(context.Cause(servers)) })
	context.AfterFunc(etcd.failed(), func() { cancel(context.Cause(etcd.failed())) })
	err = a.node.run(running)
	if cause := context.Cause(running); cause != nil && ctx.Err() == nil {
		err = cause
	}
	stop()
	if e := g.Wait(); e != nil && !errors.Is(e, context.Canceled) && err == nil {
		err = e
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // stopped on purpose
	}
	return err
}

// renewCerts reads new certificates until the returned function is called.
func (a *App) renewCerts(ctx context.Context) (end func()) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // servers outlive the node
	var g errgroup.Group
	g.Go(func() error { return a.certs.Run(ctx) })
	if a.etcdCerts != a.certs {
		g.Go(func() error { return a.etcdCerts.Run(ctx) })
	}
	return func() {
		stop()
		_ = g.Wait() // the end of the context
	}
}

// wire makes the node, its servers, and what shows its state. etcd is nil for a lone node.
func (a *App) wire(etcd *etcdConn) error {
	if etcd == nil {
		a.node = newLoneNode(a)
	} else {
		a.node = newClusterNode(a, etcd)
	}
	a.metadataStore, a.metrics, a.hot = a.newMetadataStore(etcd), a.newMetrics(etcd), new(service.HotKeys)
	a.recorder = &console.Recorder{Read: a.reading, Now: clock.Wall}
	if err := a.newMooncakePorts(); err != nil {
		return err
	}
	a.rpc = a.newRPC()
	return nil
}

// startServers starts what runs whatever this node's role, until the context ends.
func (a *App) startServers(servers context.Context, g *errgroup.Group) {
	g.Go(func() error { return a.serveRPC(servers) })
	g.Go(func() error { return a.serveMooncake(servers) })
	g.Go(func() error { return a.serveHTTP(servers) })
	g.Go(func() error { return a.serveMetadata(servers) })
	g.Go(func() error { return a.servePublisher(servers) })
	g.Go(func() error { return a.callers.Run(servers) })
	g.Go(func() error { return a.metrics.Run(servers) })
	g.Go(func() error { return a.recorder.Run(servers) })
	g.Go(func() error { return a.sweep(servers) })
	g.Go(func() error { return a.report(servers) })
	g.Go(func() error { return a.notifySystemd(servers) })
	g.Go(func() error { return a.adviseCollector(servers) })
}

// sweep tidies up the state after unmounts and renewals, whatever this node's role.
func (a *App) sweep(ctx context.Context) error {
	return clock.Every(ctx, sweepEvery, func() error {
		if store := a.node.Store(); store != nil {
			for begun := a.clock(); store.Sweep(1) && a.clock()-begun < sweepFor; {
				runtime.Gosched() // calls go first
			}
			store.Tidy(tidyObjects)
		}
		return nil
	})
}

const (
	sweepEvery = 20 * time.Millisecond
	// sweepFor leaves most of a processor to calls, even where a primary and a standby share
	// it. A segment with a million objects is swept in some 5 s.
	sweepFor = 4 * time.Millisecond
	// tidyObjects at a time take some hundred microseconds; a million objects take 20 s.
	tidyObjects = 1024
)

// report logs the key figures once a minute (upstream's
// enable_metric_reporting).
func (a *App) report(ctx context.Context) error {
	if !a.cfg.Log.Metrics {
		<-ctx.Done()
		return ctx.Err()
	}
	return clock.Every(ctx, time.Minute, func() error {
		s := a.node.promoteStatus()
		st := metadata.Stats{}
		if store := a.node.Store(); store != nil {
			st = store.Stats()
		}
		a.log.Info().Str("role", string(s.Self.Role)).Uint64("term", uint64(s.Leader.Term)).Uint64("sequence", uint64(s.Position.Seq)).
			Int64("objects", st.Objects).Uint64("used_bytes", st.Busy).Uint64("capacity_bytes", st.Capacity).Msg("figures")
		return nil
	})
}

// Ready tells the program that started a process on which addresses the process listens.
type Ready struct {
	PID    int      `json:"pid"`
	NodeID string   `json:"node_id"`
	RPC    string   `json:"rpc_address"`
	HTTP   string   `json:"http_address"`
	Etcd   []string `json:"etcd_endpoints,omitempty"`
	// Addresses of the ports of --mooncake-listen, by generation.
	Mooncake map[string]string `json:"mooncake_addresses,omitempty"`
	Metadata string            `json:"http_metadata_address,omitempty"`
	KVEvents string            `json:"kv_events_address,omitempty"`
}

// Write writes it to a file, which appears with its whole content, so that a program may
// wait for the file.
func (r Ready) Write(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ready-*")
	if err != nil {
		return fmt.Errorf("writing --ready-file %s: %w; name a file in a folder that exists and can be written", path, err)
	}
	_, err = tmp.Write(append(b, '\n'))
	if err := files.Place(tmp, path, err, nil); err != nil {
		return fmt.Errorf("writing --ready-file %s: %w", path, err)
	}
	return nil
}

func (a *App) writeReadyFile(etcd *etcdConn) error {
	path := a.cfg.Node.ReadyFile
	if path == "" {
		return nil
	}
	r := Ready{PID: os.Getpid(), NodeID: a.cfg.Node.ID, RPC: a.cfg.Node.AdvertiseAddress, HTTP: a.cfg.Node.HTTPAddress, Etcd: etcd.endpoints(), Mooncake: a.mooncakeAddresses()}
	if a.metadataListener != nil {
		r.Metadata = a.metadataListener.Addr().String()
	}
	if a.kv.listener != nil {
		r.KVEvents = a.kv.listener.Addr().String()
	}
	return r.Write(path)
}

// options are the store's settings on this node.
func (a *App) options() metadata.Options {
	strategy := segment.Random
	switch a.cfg.Storage.AllocationStrategy {
	case config.AllocateFreeRatioFirst:
		strategy = segment.FreeRatioFirst
	case config.AllocateSSDFreeRatioFirst:
		strategy = segment.SSDFreeRatioFirst
	default: // the others are not about segments
	}
	return metadata.Options{Strategy: strategy, Watcher: a.kv.watcher()}
}

// params are what this node puts in force when it begins a term.
func (a *App) params() metadata.Params {
	return metadata.Params{
		LeaseTTL:       a.cfg.Lease.TTL,
		DiscardTimeout: a.cfg.Put.DiscardTimeout,
		ReleaseTimeout: a.cfg.Put.ReleaseTimeout,
		LeaseOnPutEnd:  a.expiry(),
	}
}

func (a *App) expiry() bool { return a.cfg.Eviction.Policy == config.EvictExpiry }
