// Package config holds the settings of the one program behind cmd/master and
// cmd/standby: a typed struct, filled from flags, environment, a file and
// defaults (in this order of precedence) and checked as a whole, so that a user
// sees all faults at once.
//
// A setting is declared once, as a row in settings.go: names, default, range and
// meaning. Flags, help, environment names, file keys, messages and the table in
// the documentation follow from it. Where Mooncake Store's master has a setting, its
// name is used here; unused.go lists the names that Understudy does not use.
//
// The package never opens a socket, starts a goroutine, logs or keeps state of
// its own; the only file it reads is the one that --config_path names.
package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/understudy-store/understudy/internal/security/certs"
	"github.com/understudy-store/understudy/promote"
)

// The role that a node tries to take first. It comes from the program's name and is no
// setting: after the start both programs behave alike.
const (
	Primary = promote.Primary // cmd/master: it serves if no other node does, else it follows
	Standby = promote.Standby // cmd/standby: it follows, and never starts a cluster by itself
)

// Config is the whole configuration of a node. A Config that Load returned keeps
// every rule of settings.go and rules.go. The comment of a field is the flag that
// sets it; "design" is the design of Understudy with its section.
type Config struct {
	Role     promote.Role // Primary or Standby
	Listen   Listen
	Mooncake Mooncake
	Node     Node
	HA       HA
	Journal  Journal
	Lease    Lease
	Eviction Eviction
	Put      Put
	Client   Client
	Storage  Storage
	Tenants  Tenants
	Peers    Peers
	Security Security
	KVEvents KVEvents
	Log      Log
	Debug    Debug

	// origins says where each value that is not a default came from, by name.
	origins map[string]string
}

// Default returns the configuration of a node without any settings.
func Default(role promote.Role) Config {
	c := Config{Role: role}
	for _, s := range settings(&c) {
		if !s.set(s.Default) {
			panic("config: the default of " + s.name() + " is none of its values")
		}
	}
	return c
}

// Listen is where the node accepts connections.
type Listen struct {
	RPCAddress      string // --rpc_address; Load puts that of RPCInterface here
	RPCInterface    string // --rpc_interface
	RPCPort         int    // --rpc_port
	MetricsHost     string // --metrics_host
	MetricsPort     int    // --metrics_port
	Extended        bool   // --http-extended
	MaxMessageBytes int64  // --max-message-bytes
	Metadata        bool   // --enable_http_metadata_server
	MetadataHost    string // --http_metadata_server_host
	MetadataPort    int    // --http_metadata_server_port
	MetadataCleanup bool   // --enable_metadata_cleanup_on_timeout
}

// RPC is the address to listen on for gRPC, as net.Listen takes it.
func (l Listen) RPC() string { return hostPort(l.RPCAddress, l.RPCPort) }

// HTTPMetadata is the address to listen on for the metadata server, as net.Listen
// takes it.
func (l Listen) HTTPMetadata() string { return hostPort(l.MetadataHost, l.MetadataPort) }

// HTTP is the address to listen on for HTTP, as net.Listen takes it.
func (l Listen) HTTP() string {
	if l.MetricsHost == "" {
		return hostPort(l.RPCAddress, l.MetricsPort)
	}
	return hostPort(l.MetricsHost, l.MetricsPort)
}

// Mooncake is how Mooncake's own clients are served.
type Mooncake struct {
	Generation string             // --mooncake-generation
	Listen     []GenerationListen // --mooncake-listen
	Version    string             // --mooncake-version
	Forward    bool               // --forward
	Allow      []netip.Prefix     // --mooncake-allow
	NoOrders   bool               // --mooncake-no-orders
}

// Allows reports whether Mooncake's clients may connect from an address. Their protocol has
// neither encryption nor identities. Without --mooncake-allow they may connect from everywhere,
// unless TLS is required.
func (c Config) Allows(a netip.Addr) bool {
	if len(c.Mooncake.Allow) == 0 {
		return !c.Security.OnlyTLS()
	}
	return slices.ContainsFunc(c.Mooncake.Allow, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

// NoGeneration as a generation means that Mooncake's clients are not served.
const NoGeneration = "none"

// GenerationListen is a port for clients of a generation.
type GenerationListen struct {
	Generation string
	Address    string // host:port, as net.Listen takes it
}

// Node is the identity of the node and its files.
type Node struct {
	// AdvertiseAddress (--advertise-address) is completed by Resolve if it is
	// empty or has no port.
	AdvertiseAddress string
	// HTTPAddress is the host:port that people and programs dial for HTTP.
	// It is no setting; Resolve fills it in.
	HTTPAddress string
	// ID (--node-id) becomes the advertise address in Resolve if it is empty.
	ID      string
	DataDir string // --data-dir
	// StateDir (--state-dir) is completed by Resolve if it is empty.
	StateDir string
	// StateBeside says that StateDir is the default, beside those of nodes with other ids.
	// It is no setting; Resolve fills it in.
	StateBeside       bool
	StateSaveInterval time.Duration // --state-save-interval
	ReadyFile         string        // --ready-file
}

// HA is the cluster, its etcd and the rules of a takeover (design §2, §3, §8).
type HA struct {
	Enabled          bool            // --enable_ha
	ClusterID        string          // --cluster_id
	EtcdEndpoints    []string        // --etcd_endpoints; Load puts Backend here
	Backend          []string        // --ha_backend_connstring
	EtcdPrefix       string          // --etcd_prefix
	ClusterInit      bool            // --cluster-init
	Join             []string        // --join, each with a port
	Witness          bool            // --witness
	JoinTokenFile    string          // --join-token-file
	EtcdPeerListen   string          // --etcd-peer-listen; PeerAddress completes it
	EtcdListen       string          // --etcd-listen
	EtcdQuotaBytes   int64           // --etcd-quota-bytes
	SessionTTL       time.Duration   // --session-ttl
	FailoverAfter    time.Duration   // --failover-after
	PromotionCleanup promote.Cleanup // --promotion-cleanup
	HandoverTimeout  time.Duration   // --handover-timeout
	RefoundWait      time.Duration   // --refound-wait
	WaitForState     time.Duration   // --wait-for-state; 0 for what the etcd in use asks for
	StartEmpty       bool            // --start-empty
	NoWriters        bool            // --no-writers
}

// Embedded reports whether the node runs its own etcd.
func (h HA) Embedded() bool { return h.Enabled && len(h.EtcdEndpoints) == 0 }

// StateWait returns how long a master waits for complete nodes that are away before it
// starts empty; 0 for ever.
func (h HA) StateWait() time.Duration {
	if h.WaitForState == 0 && h.Embedded() && !h.Members() {
		return time.Minute
	}
	return h.WaitForState
}

// EmbeddedAlone reports whether the node runs its own etcd on a loopback port that it
// picks itself, so that no other node can have known it before.
func (h HA) EmbeddedAlone() bool {
	host, port, err := net.SplitHostPort(h.EtcdListen)
	return h.Embedded() && !h.Members() && err == nil && port == "0" && loopback(host)
}

// Journal bounds what the journal keeps in etcd and in memory (design §4).
type Journal struct {
	EventsTTL  time.Duration  // --events-ttl
	Compact    JournalCompact // --journal-compact
	MaxBytes   int64          // --journal-max-bytes
	QueueBytes int64          // --journal-queue-bytes
}

// JournalCompact says whether a node compacts etcd's history: the owner of an embedded etcd,
// or else the primary (design §4).
type JournalCompact string

// The ways to compact.
const (
	CompactAuto JournalCompact = "auto" // the embedded etcd; an external one may have other tenants
	CompactOn   JournalCompact = "on"   // any etcd
	CompactOff  JournalCompact = "off"  // none
)

// Lease holds read leases and soft pins, and how renewals reach the journal
// (design §6).
type Lease struct {
	TTL              time.Duration // --default_kv_lease_ttl
	SoftPinTTL       time.Duration // --default_kv_soft_pin_ttl
	MaxSoftPinTTL    time.Duration // --max_kv_soft_pin_ttl
	SyncInterval     time.Duration // --lease-sync-interval
	CriticalWindow   time.Duration // --lease-critical-window
	CriticalDelay    time.Duration // --lease-critical-delay
	FullSyncInterval time.Duration // --full-sync-interval
}

// Eviction says when the primary makes room, and which objects it evicts (design §7).
type Eviction struct {
	Policy          EvictionPolicy // --eviction-policy
	HighWatermark   float64        // --eviction_high_watermark_ratio
	Ratio           float64        // --eviction_ratio
	AllowSoftPinned bool           // --allow_evict_soft_pinned_objects
	Interval        time.Duration  // --eviction-interval; a constant in Mooncake
}

// EvictionPolicy is the rule by which objects leave memory (design §7).
type EvictionPolicy string

// The policies.
const (
	EvictWatermark EvictionPolicy = "watermark" // under memory pressure, oldest leases first
	EvictExpiry    EvictionPolicy = "expiry"    // an object when its lease has run out
)

// Put holds the times of an unfinished put.
type Put struct {
	DiscardTimeout time.Duration // --put_start_discard_timeout_sec
	ReleaseTimeout time.Duration // --put_start_release_timeout_sec
}

// Client holds the liveness of object-store clients.
type Client struct {
	TTL        time.Duration // --client_ttl
	RPCTimeout time.Duration // --client-rpc-timeout
}

// Storage holds where replicas are placed.
type Storage struct {
	AllocationStrategy AllocationStrategy // --allocation_strategy
	RootFSDir          string             // --root_fs_dir
	DiskEviction       bool               // --enable_disk_eviction
	QuotaBytes         int64              // --quota_bytes
	Offload            bool               // --enable_offload
	OffloadQueue       int                // --offloading_queue_limit
	OffloadOnEvict     bool               // --offload_on_evict
	Promotion          Promotion
	Replication        Replication
}

// Replication says which objects get another replica in memory because they are read often.
type Replication struct {
	Mode     ReplicationMode // --dynamic_replication_mode
	Window   time.Duration   // --dynamic_replication_heat_window_seconds
	Rate     float64         // --dynamic_replication_admission_qps_threshold
	Replicas int             // --dynamic_replication_max_memory_replicas
}

// ReplicationMode says what the primary does with objects that are read often.
type ReplicationMode string

// The modes.
const (
	ReplicationOff     ReplicationMode = "off"
	ReplicationObserve ReplicationMode = "observe"
	ReplicationEnforce ReplicationMode = "enforce"
)

// Promotion says which objects are copied from clients' SSDs to memory.
type Promotion struct {
	On           bool // --promotion_on_hit
	Threshold    int  // --promotion_admission_threshold
	Limit        int  // --promotion_queue_limit
	PerHeartbeat int  // --promotion_max_per_heartbeat
}

// Tenants says whether keys belong to tenants, and where the tenants' quotas come from.
type Tenants struct {
	Enabled       bool           // --enable_multi_tenants
	Connector     QuotaConnector // --tenant_quota_connector_type
	ConnectorURI  string         // --tenant_quota_connector_uri
	HighWatermark float64        // --tenant_eviction_high_watermark_ratio
}

// QuotaConnector is where the first quotas come from.
type QuotaConnector string

// The connectors.
const (
	QuotasInFile QuotaConnector = "file"
	QuotasInEtcd QuotaConnector = "etcd" // the state has them in any case
)

// AllocationStrategy is the order in which segments are tried.
type AllocationStrategy string

// The strategies.
const (
	AllocateRandom         AllocationStrategy = "random"           // in random order
	AllocateFreeRatioFirst AllocationStrategy = "free_ratio_first" // the emptier ones of a sample first
	// AllocateLocalFirst tries the segments of the writer's host first, for one replica.
	AllocateLocalFirst AllocationStrategy = "local_first"
	// AllocateSSDFreeRatioFirst tries those of a sample first whose owners' SSDs are
	// emptier.
	AllocateSSDFreeRatioFirst AllocationStrategy = "ssd_free_ratio_first"
	// allocateCXL is Mooncake's other strategy. It is accepted, and means AllocateRandom.
	allocateCXL AllocationStrategy = "cxl"
)

// Peers bounds what all callers together, and each peer, may have. A peer is an address, or an
// identity where callers have roles.
type Peers struct {
	Clients  int     // --max-clients
	Segments int     // --max-segments
	KeyBytes int64   // --max-key-bytes; 0 for half of the machine's memory, 12 GiB at most
	Share    float64 // --peer-share
}

// Security is who may connect, and how.
type Security struct {
	CA       string // --tls-ca
	Cert     string // --tls-cert
	Key      string // --tls-key
	Required bool   // --tls-required

	Roles       bool     // --roles
	Tokens      string   // --roles-tokens
	ClientRegex bool     // --roles-client-regex
	HTTPHosts   []string // --http-hosts

	EtcdCA           string // --etcd-ca
	EtcdCert         string // --etcd-cert
	EtcdKey          string // --etcd-key
	EtcdUser         string // --etcd-user
	EtcdPasswordFile string // --etcd-password-file
}

// TLS reports whether the node has a certificate of its own.
func (s Security) TLS() bool { return s.Cert != "" }

// OnlyTLS reports whether callers without TLS are refused.
func (s Security) OnlyTLS() bool { return s.TLS() && s.Required }

// Node returns the files of the node's own certificate.
func (s Security) Node() certs.Files { return certs.Files{CA: s.CA, Cert: s.Cert, Key: s.Key} }

// Etcd returns the certificate files for an etcd that is not embedded. For https endpoints
// without --etcd-ca, --etcd-cert and --etcd-key they are the node's own.
func (c Config) Etcd() certs.Files {
	own := certs.Files{CA: c.Security.EtcdCA, Cert: c.Security.EtcdCert, Key: c.Security.EtcdKey}
	if !own.Given() && c.HA.encrypted() {
		return c.Security.Node()
	}
	return own
}

func (h HA) encrypted() bool {
	return slices.ContainsFunc(h.EtcdEndpoints, func(e string) bool { return strings.HasPrefix(e, "https://") })
}

// KVEvents says whether a node keeps changes of keys for subscribers, and how it publishes
// them.
type KVEvents struct {
	Enabled   bool   // --enable_kv_events
	Endpoint  string // --kv_events_bind_endpoint
	BackendID string // --kv_events_backend_id
	ObjectKey bool   // --kv_events_emit_object_key
	Legacy    bool   // --kv_events_emit_legacy_compat
	Capacity  int    // --kv_events_queue_capacity
}

// Backend returns the id of the cache in events: --kv_events_backend_id, or the cluster's id.
func (k KVEvents) Backend(cluster string) string { return cmp.Or(k.BackendID, cluster) }

// Log holds what the node writes to standard error.
type Log struct {
	Level   string    // --log-level
	Format  LogFormat // --log-format
	Metrics bool      // --enable_metric_reporting
}

// Debug has the settings for looking into a running node.
type Debug struct {
	TraceEndpoint string  // --trace-endpoint
	TraceRatio    float64 // --trace-ratio
	Pprof         bool    // --pprof
}

// LogFormat is the shape of a log line.
type LogFormat string

// The formats.
const (
	LogAuto    LogFormat = "auto"    // LogConsole on a terminal, LogJSON elsewhere
	LogJSON    LogFormat = "json"    // one JSON object per line
	LogConsole LogFormat = "console" // lines for people
)

// Resolve completes the addresses and the id of the node once it listens and the
// real ports are known (port 0 is given out only then). The advertised host is
// that of --advertise-address, else the one listened on; a node that listens on
// all interfaces and was given none advertises 127.0.0.1, which is right on a
// single machine only (Load warns of it). The same host is advertised for HTTP,
// unless that listens on another one. It fails if an address has no port.
func (c Config) Resolve(rpc, http net.Addr) (Config, error) {
	listenHost, rpcPort, err := net.SplitHostPort(rpc.String())
	if err != nil {
		return Config{}, fmt.Errorf("the gRPC listener has no host:port: %w", err)
	}
	httpHost, httpPort, err := net.SplitHostPort(http.String())
	if err != nil {
		return Config{}, fmt.Errorf("the HTTP listener has no host:port: %w", err)
	}
	_, port, _ := splitAdvertise(c.Node.AdvertiseAddress)
	host := c.advertiseHost(listenHost)
	if port == "" {
		port = rpcPort
	}
	if httpHost == listenHost || unspecified(httpHost) {
		httpHost = host
	}
	origins := map[string]string{}
	maps.Copy(origins, c.origins)
	c.origins = origins // the receiver's map stays as it is
	if c.Node.AdvertiseAddress == "" {
		c.origins["advertise-address"] = "derived from the listen address"
	}
	c.Node.AdvertiseAddress = net.JoinHostPort(host, port)
	c.Node.HTTPAddress = net.JoinHostPort(httpHost, httpPort)
	if c.Node.ID == "" {
		c.origins["node-id"] = "derived from the advertise address"
		c.Node.ID = c.Node.AdvertiseAddress
	}
	if c.Node.StateDir == "" {
		c.origins["state-dir"] = "derived from the data directory"
		c.Node.StateDir, c.Node.StateBeside = filepath.Join(c.Node.DataDir, "state", c.HA.ClusterID, c.Node.ID), true
	}
	return c, nil
}

// advertiseHost returns the host that this node gives to others, if it listens on one.
func (c Config) advertiseHost(listens string) string {
	host, _, _ := splitAdvertise(c.Node.AdvertiseAddress)
	switch {
	case host != "":
		return host
	case listens == "" || unspecified(listens):
		return "127.0.0.1"
	}
	return listens
}
