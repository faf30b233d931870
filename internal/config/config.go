// Package config holds the settings of the one program behind cmd/master and
// cmd/standby: a typed struct, filled from flags, environment, a file and
// defaults (in this order of precedence) and checked as a whole, so that a user
// sees all faults at once.
//
// A setting is declared in two places: its field and default here, its name,
// range and meaning in settings.go. Everything else (flags, help, environment
// names, file keys, messages, the table in the documentation) follows from them.
// Names are those of Mooncake Store's master where it has the setting; names of
// its that Understudy does not use stand in upstream.go.
//
// The package never opens a socket, starts a goroutine, logs or keeps state of
// its own; the only file it reads is the one that --config_path names.
package config

import (
	"fmt"
	"maps"
	"net"
	"time"

	wire "github.com/understudy-store/understudy/internal/mooncake"
)

// Role is what a node tries to be first. It comes from the program's name and is
// no setting: after the start both programs are the same.
type Role string

const (
	// Primary is cmd/master: it serves if no other node does, else it follows.
	Primary Role = "primary"
	// Standby is cmd/standby: it follows, and never starts a cluster by itself.
	Standby Role = "standby"
)

// Config is the whole configuration of a node. A Config that Load returned keeps
// every rule of settings.go and rules.go. "Mooncake" as a source means the C++
// master of August 2026, "design" the design of Understudy with its section.
type Config struct {
	Role     Role
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
	Log      Log

	// origins says where each value that is not a default came from, by name.
	origins map[string]string
}

// Listen is where the node accepts connections.
type Listen struct {
	// RPCAddress is the host or IP that gRPC listens on (--rpc_address).
	// Default 0.0.0.0. From Mooncake.
	RPCAddress string
	// RPCPort is the TCP port of gRPC (--rpc_port), 0 to 65535; 0 takes a free
	// one. Default 50051. From Mooncake.
	RPCPort int
	// MetricsHost is the host or IP that HTTP listens on (--metrics_host); empty
	// means the one of --rpc_address. Default "". From Mooncake.
	MetricsHost string
	// MetricsPort is the TCP port of HTTP (--metrics_port), 0 to 65535; 0 takes
	// a free one. Default 9003. From Mooncake.
	MetricsPort int
	// MaxMessageBytes is the largest gRPC message in bytes, either direction
	// (--max-message-bytes), 1 MiB to 1 GiB; answers may have 2 MiB in any case.
	// Default 16MiB. From Understudy.
	MaxMessageBytes int64
}

// RPC is the address to listen on for gRPC, as net.Listen takes it.
func (l Listen) RPC() string { return hostPort(l.RPCAddress, l.RPCPort) }

// HTTP is the address to listen on for HTTP, as net.Listen takes it.
func (l Listen) HTTP() string {
	if l.MetricsHost == "" {
		return hostPort(l.RPCAddress, l.MetricsPort)
	}
	return hostPort(l.MetricsHost, l.MetricsPort)
}

// Mooncake is how Mooncake's own clients are served.
type Mooncake struct {
	// Generation names the releases whose clients the RPC port answers besides
	// gRPC (--mooncake-generation): head, v0.3.12 or v0.3.11; none turns that
	// off. Default head (the newest). From Understudy.
	Generation string
	// Listen are further ports, for clients of other generations
	// (--mooncake-listen). Default "". From Understudy.
	Listen []GenerationListen
	// Version is what clients expect to hear from the master before they talk to
	// it (--mooncake-version). Default 2.0.0 (as since v0.3.8). From Mooncake.
	Version string
	// Forward makes a node that does not serve pass the requests of Mooncake's
	// clients on to the primary (--forward); without it, it closes their
	// connections. Default false. From Understudy.
	Forward bool
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
	// AdvertiseAddress is the host, or host:port, that peers and clients dial
	// for gRPC (--advertise-address). Empty, or without a port, it is completed
	// by Resolve. Default "". From the design, §3.
	AdvertiseAddress string
	// HTTPAddress is the host:port that people and programs dial for HTTP.
	// It is no setting; Resolve fills it in.
	HTTPAddress string
	// ID names the node in etcd, one per cluster (--node-id). Empty, it becomes
	// the advertise address in Resolve. Default "". From the design, §3.
	ID string
	// DataDir holds the embedded etcd (--data-dir). Default ./understudy-data.
	// From the design, §2.
	DataDir string
	// ReadyFile, if not empty, gets the real addresses once the node listens
	// (--ready-file). Default "". From Understudy.
	ReadyFile string
}

// HA is the cluster, its etcd and the rules of a takeover.
type HA struct {
	// Enabled turns on etcd, journal and takeover (--enable_ha); without it a
	// lone primary runs. Default true (in Mooncake false). From the design, §2.
	Enabled bool
	// ClusterID separates clusters in one etcd (--cluster_id): not empty, no '/'
	// and no space. Default mooncake_cluster. From Mooncake.
	ClusterID string
	// EtcdEndpoints are the etcd members (--etcd_endpoints), each host:port or
	// http(s)://host:port. Empty means the embedded etcd. Default "". From
	// Mooncake.
	EtcdEndpoints []string
	// EtcdPrefix is the root of all keys (--etcd_prefix); it starts with '/'.
	// Default /understudy. From the design, §3.
	EtcdPrefix string
	// EtcdListen is the host:port on which the embedded etcd serves standbys and
	// tools (--etcd-listen), not all interfaces; port 0 takes a free one. Default
	// 127.0.0.1:0. From Understudy.
	EtcdListen string
	// EtcdQuotaBytes is the backend quota of the embedded etcd in bytes
	// (--etcd-quota-bytes), 16 MiB to 8 GiB, the most that etcd recommends.
	// Default 2GiB. From etcd.
	EtcdQuotaBytes int64
	// SessionTTL is the life of the election lease (--session-ttl), in whole
	// seconds, at least 2 s: etcd silently raises less. Default 5s. From the
	// design, §3.
	SessionTTL time.Duration
	// PromotionCleanup says what a new primary drops (--promotion-cleanup):
	// auto, expired or none. Default auto. From the design, §8.
	PromotionCleanup PromotionCleanup
	// HandoverTimeout is how long a node that got SIGTERM waits for another to
	// serve (--handover-timeout). Default 10s. From the design, §8.
	HandoverTimeout time.Duration
	// StartEmpty lets the node begin a new, empty term although a journal exists
	// (--start-empty). Not for a standby. Default false. From the design, §8.
	StartEmpty bool
}

// PromotionCleanup is what a new primary removes before it serves (design §8).
type PromotionCleanup string

const (
	// CleanupAuto is CleanupExpired under EvictExpiry, else CleanupNone.
	CleanupAuto PromotionCleanup = "auto"
	// CleanupExpired removes every object whose lease had run out.
	CleanupExpired PromotionCleanup = "expired"
	// CleanupNone keeps every object.
	CleanupNone PromotionCleanup = "none"
)

// Embedded reports whether the node runs its own etcd.
func (h HA) Embedded() bool { return h.Enabled && len(h.EtcdEndpoints) == 0 }

// Root is the prefix of all etcd keys of the cluster, with a slash at its end.
func (h HA) Root() string { return h.EtcdPrefix + "/" + h.ClusterID + "/" }

// Journal bounds what the journal keeps in etcd and in memory (design §4).
type Journal struct {
	// EventsTTL is the life of journal records in etcd (--events-ttl), in whole
	// seconds, longer than SessionTTL. Default 1m. From the design, §3.
	EventsTTL time.Duration
	// Compact says whether the primary compacts etcd (--journal-compact): auto
	// (only the embedded one), on or off. Default auto. From the design, §4.
	Compact JournalCompact
	// MaxBytes caps the journal bytes kept in etcd's history, in bytes
	// (--journal-max-bytes), 8 MiB to 8 GiB; with the embedded etcd it must be
	// below half of EtcdQuotaBytes. Default 512MiB. From the design, §4.
	MaxBytes int64
	// QueueBytes caps the events that wait for a commit, in bytes
	// (--journal-queue-bytes), 1 MiB (one full commit) to 8 GiB. Default 64MiB.
	// From Understudy.
	QueueBytes int64
}

// JournalCompact says whether the primary compacts etcd's history (design §4).
type JournalCompact string

const (
	// CompactAuto compacts the embedded etcd and leaves an external one alone,
	// which may have other tenants.
	CompactAuto JournalCompact = "auto"
	// CompactOn compacts any etcd.
	CompactOn JournalCompact = "on"
	// CompactOff compacts none.
	CompactOff JournalCompact = "off"
)

// Lease holds read leases and soft pins, and how renewals reach the journal
// (design §6).
type Lease struct {
	// TTL is what a read grants (--default_kv_lease_ttl), in milliseconds or as
	// a duration. Default 10s. From Mooncake.
	TTL time.Duration
	// SoftPinTTL is the life of a soft pin without one of its own
	// (--default_kv_soft_pin_ttl), in milliseconds or as a duration, at most
	// MaxSoftPinTTL. Default 30m. From Mooncake.
	SoftPinTTL time.Duration
	// MaxSoftPinTTL is the longest soft pin a client may ask for
	// (--max_kv_soft_pin_ttl), in milliseconds or as a duration. Default 24h.
	// From Mooncake.
	MaxSoftPinTTL time.Duration
	// SyncInterval is how often marked renewals are journaled
	// (--lease-sync-interval), at least 50 ms. Default 1s. From the design, §6.
	SyncInterval time.Duration
	// CriticalWindow is how little of a journaled lease must be left for its
	// renewal to be critical (--lease-critical-window). Default 1s. From the
	// design, §6.
	CriticalWindow time.Duration
	// CriticalDelay is how long a critical renewal waits for others
	// (--lease-critical-delay), shorter than CriticalWindow. Default 100ms. From
	// the design, §6.
	CriticalDelay time.Duration
	// FullSyncInterval is how often a follower checks its leases against the
	// journal (--full-sync-interval), at least 1 s. Default 1m. From the design,
	// §6.
	FullSyncInterval time.Duration
}

// Eviction says when the primary makes room, and what goes (design §7).
type Eviction struct {
	// Policy is watermark (memory pressure evicts) or expiry (the end of the
	// lease does) (--eviction-policy). Default watermark. From the design, §7.
	Policy EvictionPolicy
	// HighWatermark is the used share of capacity above which eviction starts
	// (--eviction_high_watermark_ratio), above 0 and at most 1; at 1 only failed
	// allocations start it. Default 0.9. From Mooncake.
	HighWatermark float64
	// Ratio is the share of objects that a pass aims at (--eviction_ratio), 0 to
	// 1; at 0 a failed allocation starts no pass. Default 0.05. From Mooncake.
	Ratio float64
	// AllowSoftPinned lets the second pass take soft-pinned objects
	// (--allow_evict_soft_pinned_objects). Default true. From Mooncake.
	AllowSoftPinned bool
	// Interval is the time between two looks at the watermark
	// (--eviction-interval), at least 1 ms. Default 10ms. From Mooncake, where it
	// is a constant.
	Interval time.Duration
}

// EvictionPolicy is the rule by which objects leave memory (design §7).
type EvictionPolicy string

const (
	// EvictWatermark evicts under memory pressure, oldest leases first.
	EvictWatermark EvictionPolicy = "watermark"
	// EvictExpiry evicts an object when its lease has run out.
	EvictExpiry EvictionPolicy = "expiry"
)

// Put holds the times of an unfinished put.
type Put struct {
	// DiscardTimeout is the age at which another PutStart may replace an
	// unfinished put (--put_start_discard_timeout_sec), in seconds or as a
	// duration. Default 30s. From Mooncake.
	DiscardTimeout time.Duration
	// ReleaseTimeout is the age at which the memory of an abandoned put is free
	// again (--put_start_release_timeout_sec), in seconds or as a duration,
	// longer than DiscardTimeout. Default 10m. From Mooncake.
	ReleaseTimeout time.Duration
}

// Client holds the liveness of object-store clients.
type Client struct {
	// TTL is how long a client lives without a Ping (--client_ttl), in seconds
	// or as a duration, at least 1 s, the clients' own ping interval. Default
	// 10s. From Mooncake.
	TTL time.Duration
}

// Storage holds where replicas are placed.
type Storage struct {
	// AllocationStrategy chooses segments for replicas (--allocation_strategy):
	// random or free_ratio_first. Default random. From Mooncake.
	AllocationStrategy AllocationStrategy
	// RootFSDir is the root of DISK replicas (--root_fs_dir); empty means there
	// are none. Default "". From Mooncake.
	RootFSDir string
	// Offload has objects copied to the SSDs of clients that offer one
	// (--enable_offload). Default false. From Mooncake.
	Offload bool
	// OffloadQueue is how many objects may wait for one client to copy them
	// (--offloading_queue_limit), 0 to 10,000,000; past it they stay in memory
	// only. Default 50000. From Mooncake.
	OffloadQueue int
}

// AllocationStrategy is the order in which segments are tried.
type AllocationStrategy string

const (
	// AllocateRandom tries segments in random order.
	AllocateRandom AllocationStrategy = "random"
	// AllocateFreeRatioFirst tries the emptier ones of a sample first.
	AllocateFreeRatioFirst AllocationStrategy = "free_ratio_first"
)

// Log holds what the node writes to standard error.
type Log struct {
	// Level is the lowest level that is written (--log-level): trace, debug,
	// info, warn or error. Default info. From Understudy.
	Level string
	// Format is json, console or auto (--log-format); auto is console on a
	// terminal. Default auto. From Understudy.
	Format LogFormat
	// Metrics writes a line of the main metrics from time to time
	// (--enable_metric_reporting). Default true. From Mooncake.
	Metrics bool
}

// LogFormat is the shape of a log line.
type LogFormat string

const (
	// LogAuto is LogConsole on a terminal and LogJSON elsewhere.
	LogAuto LogFormat = "auto"
	// LogJSON writes one JSON object per line.
	LogJSON LogFormat = "json"
	// LogConsole writes lines for people.
	LogConsole LogFormat = "console"
)

// Default is the configuration of a node to which nothing was given. It is the
// only place where defaults stand.
func Default(role Role) Config {
	return Config{
		Role:     role,
		Listen:   Listen{RPCAddress: "0.0.0.0", RPCPort: 50051, MetricsPort: 9003, MaxMessageBytes: 16 * mib},
		Mooncake: Mooncake{Generation: wire.Names()[0], Version: "2.0.0"},
		Node:     Node{DataDir: "./understudy-data"},
		HA: HA{
			Enabled:          true,
			ClusterID:        "mooncake_cluster",
			EtcdPrefix:       "/understudy",
			EtcdListen:       "127.0.0.1:0",
			EtcdQuotaBytes:   2 * gib,
			SessionTTL:       5 * time.Second,
			PromotionCleanup: CleanupAuto,
			HandoverTimeout:  10 * time.Second,
		},
		Journal: Journal{
			EventsTTL:  time.Minute,
			Compact:    CompactAuto,
			MaxBytes:   512 * mib,
			QueueBytes: 64 * mib,
		},
		Lease: Lease{
			TTL:              10 * time.Second,
			SoftPinTTL:       30 * time.Minute,
			MaxSoftPinTTL:    24 * time.Hour,
			SyncInterval:     time.Second,
			CriticalWindow:   time.Second,
			CriticalDelay:    100 * time.Millisecond,
			FullSyncInterval: time.Minute,
		},
		Eviction: Eviction{
			Policy:          EvictWatermark,
			HighWatermark:   0.90,
			Ratio:           0.05,
			AllowSoftPinned: true,
			Interval:        10 * time.Millisecond,
		},
		Put:     Put{DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second},
		Client:  Client{TTL: 10 * time.Second},
		Storage: Storage{AllocationStrategy: AllocateRandom, OffloadQueue: 50_000},
		Log:     Log{Level: "info", Format: LogAuto, Metrics: true},
	}
}

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
	host, port, _ := splitAdvertise(c.Node.AdvertiseAddress)
	if host == "" {
		host = listenHost
		if unspecified(host) {
			host = "127.0.0.1"
		}
	}
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
	return c, nil
}
