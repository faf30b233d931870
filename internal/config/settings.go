package config

import "time"

// setting is one name that can be given by flag, environment or file.
type setting struct {
	// name is the canonical spelling: Mooncake's with underscores, our own with
	// dashes. Either spelling is accepted everywhere.
	name string
	// aliases are other names of the same setting, with underscores.
	aliases []string
	value   value
	usage   string
	// from is who defines the name and its meaning.
	from string
}

// Where a setting comes from, as the documentation says it.
const (
	mooncake   = "Mooncake"
	understudy = "Understudy"
)

// section is a group of settings under a title for people.
type section struct {
	title    string
	settings []setting
}

// configPath is the one setting that has no field: it only says where to read.
const configPath = "config_path"

// etcdEndpoints is the one setting that may be a list in a file.
const etcdEndpoints = "etcd_endpoints"

// sections is the table of all settings, their values bound to the fields of c.
func sections(c *Config) []section {
	return []section{
		{"Addresses", c.Listen.settings()},
		{"Mooncake's clients", c.Mooncake.settings()},
		{"Node", c.Node.settings()},
		{"Cluster and takeover", c.HA.settings()},
		{"Journal", c.Journal.settings()},
		{"Leases and pins", c.Lease.settings()},
		{"Eviction", c.Eviction.settings()},
		{"Puts, clients and placement", append(append(c.Put.settings(), c.Client.settings()...), c.Storage.settings()...)},
		{"Logs", c.Log.settings()},
	}
}

func settings(c *Config) []setting {
	var all []setting
	for _, s := range sections(c) {
		all = append(all, s.settings...)
	}
	return all
}

func (l *Listen) settings() []setting {
	return []setting{
		{
			name: "rpc_address", from: mooncake,
			value: text{&l.RPCAddress, "an IP or a host name, without a port", isHost},
			usage: "host or IP that gRPC listens on",
		},
		{
			name: "rpc_port", aliases: []string{"port"}, from: mooncake,
			value: port{&l.RPCPort},
			usage: "TCP port of gRPC",
		},
		{
			name: "metrics_host", from: mooncake,
			value: text{&l.MetricsHost, "an IP or a host name, without a port; empty: the one of rpc_address", orEmpty(isHost)},
			usage: "host or IP that HTTP listens on",
		},
		{
			name: "metrics_port", from: mooncake,
			value: port{&l.MetricsPort},
			usage: "TCP port of HTTP: metrics, health, queries",
		},
		{
			name: "max-message-bytes", from: understudy,
			value: size{&l.MaxMessageBytes, mib, gib},
			usage: "largest gRPC message, either direction; answers may have 2MiB in any case",
		},
	}
}

func (m *Mooncake) settings() []setting {
	return []setting{
		{
			name: "mooncake-generation", from: understudy,
			value: generation{&m.Generation},
			usage: "releases whose clients the RPC port answers besides gRPC; none: no Mooncake clients there",
		},
		{
			name: "mooncake-listen", from: understudy,
			value: generationListens{&m.Listen},
			usage: "further ports for clients of other releases, each as generation=host:port",
		},
		{
			name: "mooncake-version", from: understudy,
			value: text{&m.Version, "what the clients' release calls itself", notEmpty},
			usage: "version that Mooncake's clients ask their master for; they refuse to work with another one",
		},
		{
			name: "forward", from: understudy,
			value: boolean{&m.Forward},
			usage: "pass requests of Mooncake's clients on to the primary while this node does not serve; false closes their connections, so that they look for it",
		},
	}
}

func (n *Node) settings() []setting {
	return []setting{
		{
			name: "advertise-address", from: understudy,
			value: text{&n.AdvertiseAddress, "host or host:port that others can dial; empty: derived from the listen address", isAdvertise},
			usage: "address that peers and clients get for gRPC; the port defaults to the real one, the host to the one listened on, or 127.0.0.1 if that is all interfaces",
		},
		{
			name: "node-id", from: understudy,
			value: text{&n.ID, "without '/' and spaces; empty: the advertise address", orEmpty(isSegment)},
			usage: "name of the node, one per cluster",
		},
		{
			name: "data-dir", from: understudy,
			value: text{&n.DataDir, "a directory, not empty", notEmpty},
			usage: "directory of the embedded etcd",
		},
		{
			name: "ready-file", from: understudy,
			value: text{&n.ReadyFile, "a file name; empty: none", nil},
			usage: "file that gets the real addresses once the node listens",
		},
	}
}

func (h *HA) settings() []setting {
	return []setting{
		{
			name: "enable_ha", from: mooncake,
			value: boolean{&h.Enabled},
			usage: "run with etcd, journal and takeover; false runs a lone primary (Mooncake's default)",
		},
		{
			name: "cluster_id", from: mooncake,
			value: text{&h.ClusterID, "not empty, without '/' and spaces", isSegment},
			usage: "name of the cluster, one root in etcd each",
		},
		{
			name: etcdEndpoints, from: mooncake,
			value: endpoints{&h.EtcdEndpoints},
			usage: "etcd members; empty runs the embedded etcd",
		},
		{
			name: "etcd_prefix", from: understudy,
			value: text{&h.EtcdPrefix, "a path such as /understudy: it starts with '/' and does not end in one", isPrefix},
			usage: "root of all keys in etcd",
		},
		{
			name: "etcd-listen", from: understudy,
			value: text{&h.EtcdListen, "host:port; port 0 takes a free one", func(s string) bool { return isHostPort(s, true) }},
			usage: "address on which the embedded etcd serves standbys and tools",
		},
		{
			name: "etcd-quota-bytes", from: understudy,
			value: size{&h.EtcdQuotaBytes, 16 * mib, 8 * gib},
			usage: "backend quota of the embedded etcd",
		},
		{
			name: "session-ttl", from: understudy,
			value: duration{p: &h.SessionTTL, min: 2 * time.Second, whole: true},
			usage: "life of the election lease: how long a dead primary is waited for",
		},
		{
			name: "promotion-cleanup", from: understudy,
			value: oneOf(&h.PromotionCleanup, CleanupAuto, CleanupExpired, CleanupNone),
			usage: "what a new primary drops: objects whose lease had run out, nothing, or (auto) as the eviction policy asks",
		},
		{
			name: "handover-timeout", from: understudy,
			value: duration{p: &h.HandoverTimeout, min: time.Millisecond},
			usage: "how long a node that got SIGTERM waits for another to serve",
		},
		{
			name: "start-empty", from: understudy,
			value: boolean{&h.StartEmpty},
			usage: "begin a new, empty term although a journal exists",
		},
	}
}

func (j *Journal) settings() []setting {
	return []setting{
		{
			name: "events-ttl", from: understudy,
			value: duration{p: &j.EventsTTL, min: time.Second, whole: true},
			usage: "life of journal records in etcd",
		},
		{
			name: "journal-compact", from: understudy,
			value: oneOf(&j.Compact, CompactAuto, CompactOn, CompactOff),
			usage: "whether the primary compacts etcd; auto compacts the embedded one only",
		},
		{
			name: "journal-max-bytes", from: understudy,
			value: size{&j.MaxBytes, 8 * mib, 8 * gib},
			usage: "journal bytes kept in etcd's history; past it slow followers load a snapshot",
		},
		{
			name: "journal-queue-bytes", from: understudy,
			value: size{&j.QueueBytes, mib, 8 * gib},
			usage: "events that may wait for a commit; past it callers wait",
		},
	}
}

func (l *Lease) settings() []setting {
	return []setting{
		{
			name: "default_kv_lease_ttl", from: mooncake,
			value: duration{p: &l.TTL, min: time.Millisecond, bare: time.Millisecond},
			usage: "lease that a read grants",
		},
		{
			name: "default_kv_soft_pin_ttl", from: mooncake,
			value: duration{p: &l.SoftPinTTL, min: time.Millisecond, bare: time.Millisecond},
			usage: "life of a soft pin without one of its own",
		},
		{
			name: "max_kv_soft_pin_ttl", from: mooncake,
			value: duration{p: &l.MaxSoftPinTTL, min: time.Millisecond, bare: time.Millisecond},
			usage: "longest soft pin that a client may ask for",
		},
		{
			name: "lease-sync-interval", from: understudy,
			value: duration{p: &l.SyncInterval, min: 50 * time.Millisecond},
			usage: "how often renewals are journaled",
		},
		{
			name: "lease-critical-window", from: understudy,
			value: duration{p: &l.CriticalWindow, min: time.Millisecond},
			usage: "a renewal is critical if its journaled lease runs out within this time",
		},
		{
			name: "lease-critical-delay", from: understudy,
			value: duration{p: &l.CriticalDelay, min: time.Millisecond},
			usage: "how long a critical renewal waits for others before it is journaled",
		},
		{
			name: "full-sync-interval", from: understudy,
			value: duration{p: &l.FullSyncInterval, min: time.Second},
			usage: "how often a follower checks its leases against the journal",
		},
	}
}

func (e *Eviction) settings() []setting {
	return []setting{
		{
			name: "eviction-policy", from: understudy,
			value: oneOf(&e.Policy, EvictWatermark, EvictExpiry),
			usage: "evict under memory pressure, or when a lease has run out",
		},
		{
			name: "eviction_high_watermark_ratio", from: mooncake,
			value: ratio{p: &e.HighWatermark},
			usage: "used share of capacity above which eviction starts; at 1 only failed allocations start it",
		},
		{
			name: "eviction_ratio", from: mooncake,
			value: ratio{p: &e.Ratio, zero: true},
			usage: "share of objects that a pass aims at; at 0 a failed allocation starts no pass",
		},
		{
			name: "allow_evict_soft_pinned_objects", from: mooncake,
			value: boolean{&e.AllowSoftPinned},
			usage: "let the second pass take soft-pinned objects",
		},
		{
			name: "eviction-interval", from: understudy,
			value: duration{p: &e.Interval, min: time.Millisecond},
			usage: "time between two looks at the watermark",
		},
	}
}

func (p *Put) settings() []setting {
	return []setting{
		{
			name: "put_start_discard_timeout_sec", from: mooncake,
			value: duration{p: &p.DiscardTimeout, min: time.Millisecond, bare: time.Second},
			usage: "age at which another PutStart may replace an unfinished put",
		},
		{
			name: "put_start_release_timeout_sec", from: mooncake,
			value: duration{p: &p.ReleaseTimeout, min: time.Millisecond, bare: time.Second},
			usage: "age at which the memory of an abandoned put is free again",
		},
	}
}

func (c *Client) settings() []setting {
	return []setting{
		{
			name: "client_ttl", aliases: []string{"client_live_ttl_sec", "client_active_ttl_sec"}, from: mooncake,
			value: duration{p: &c.TTL, min: time.Second, bare: time.Second},
			usage: "how long a client lives without a Ping; then its segments are unmounted",
		},
	}
}

func (s *Storage) settings() []setting {
	return []setting{
		{
			name: "allocation_strategy", from: mooncake,
			value: oneOf(&s.AllocationStrategy, AllocateRandom, AllocateFreeRatioFirst),
			usage: "how segments are chosen for replicas",
		},
		{
			name: "root_fs_dir", from: mooncake,
			value: text{&s.RootFSDir, "a directory; empty: no DISK replicas", nil},
			usage: "root of DISK replicas, which are kept as metadata",
		},
		{
			name: "enable_offload", from: mooncake,
			value: boolean{&s.Offload},
			usage: "have objects copied to the SSDs of clients that offer one, when their put ends",
		},
		{
			name: "offloading_queue_limit", from: mooncake,
			value: count{&s.OffloadQueue, 0, maxOffloadQueue},
			usage: "objects that may wait for one client to copy them; past it they stay in memory only",
		},
	}
}

// maxOffloadQueue bounds what one client's queue takes of this process's
// memory: a waiting object takes 16 bytes, one that is being copied about 40.
const maxOffloadQueue = 10_000_000

func (l *Log) settings() []setting {
	return []setting{
		{
			name: "log-level", from: understudy,
			value: oneOf(&l.Level, "trace", "debug", "info", "warn", "error"),
			usage: "lowest level that is written",
		},
		{
			name: "log-format", from: understudy,
			value: oneOf(&l.Format, LogAuto, LogJSON, LogConsole),
			usage: "shape of a log line; auto is console on a terminal, else json",
		},
		{
			name: "enable_metric_reporting", from: mooncake,
			value: boolean{&l.Metrics},
			usage: "log a line of the main metrics from time to time",
		},
	}
}

func orEmpty(ok func(string) bool) func(string) bool {
	return func(s string) bool { return s == "" || ok(s) }
}

func notEmpty(s string) bool { return s != "" }

func isAdvertise(s string) bool {
	_, _, ok := splitAdvertise(s)
	return ok
}
