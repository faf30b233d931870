package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	wire "github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/promote"
)

// Setting is one setting that can be given by flag, environment or file.
type Setting struct {
	// Names are the canonical spelling, Mooncake's with underscores, our own
	// with dashes, and then the aliases, with underscores. Spaces separate them.
	// Dashes and underscores are accepted for each other everywhere.
	Names   string
	Default string // as text, as all values
	From    string // who defines the name and its meaning
	value
	Usage string
}

// name is the canonical spelling.
func (s Setting) name() string {
	name, _, _ := strings.Cut(s.Names, " ")
	return name
}

// Section is a group of settings under a title for people.
type Section struct {
	Title    string
	Settings []Setting
}

// The origins of settings, as the documentation names them. Mooncake's are those of the C++
// master of August 2026.
const (
	mooncake   = "Mooncake"
	understudy = "Understudy"
)

// configPath is the one setting that has no field: it only says where to read.
const configPath = "config_path"

// etcdEndpoints is the one setting that may be a list in a file.
const etcdEndpoints = "etcd_endpoints"

// backendConnstring comes before etcdEndpoints.
const backendConnstring = "ha_backend_connstring"

// maxOffloadQueue bounds what one client's queue takes of this process's
// memory: a waiting object takes 16 bytes, one that is being copied about 40.
const maxOffloadQueue = 10_000_000

// maxKVEvents bounds the events that are kept, of about 150 bytes and a key each.
const maxKVEvents = 10_000_000

// Sections is the reference of all settings, in their order.
func Sections() []Section { return sections(new(Config)) }

// sections is the table of all settings, their values bound to the fields of c.
func sections(c *Config) []Section {
	return slices.Concat(nodeSections(c), clusterSections(c), journalSections(c), storeSections(c), securitySections(c), otherSections(c))
}

func settings(c *Config) (all []Setting) {
	for _, s := range sections(c) {
		all = append(all, s.Settings...)
	}
	return all
}

func nodeSections(c *Config) []Section {
	l, m, n := &c.Listen, &c.Mooncake, &c.Node
	return []Section{
		{"Addresses", []Setting{
			{"rpc_address", "0.0.0.0", mooncake, text(&l.RPCAddress, "an IP or a host name, without a port", isHost),
				"host or IP that gRPC listens on"},
			{"rpc_interface", "", mooncake, text(&l.RPCInterface, "the name of a network interface; empty: rpc_address holds", anything[string]),
				"gRPC listens on the IPv4 address of this interface, in place of rpc_address"},
			{"rpc_port port", strconv.Itoa(pb.DefaultPort), mooncake, port(&l.RPCPort), "TCP port of gRPC"},
			{"metrics_host", "", mooncake,
				text(&l.MetricsHost, "an IP or a host name, without a port; empty: the one of rpc_address", orEmpty(isHost)),
				"host or IP that HTTP listens on"},
			{"metrics_port", "9003", mooncake, port(&l.MetricsPort), "TCP port of HTTP: metrics, health, queries"},
			{"http-extended", "false", understudy, boolean(&l.Extended), "answers over HTTP have more than Mooncake's: quarantined_bytes in /get_segments_detail, " +
				"and a line of our own in /metrics/summary"},
			{"enable_http_metadata_server", "false", mooncake, boolean(&l.Metadata),
				"serve the metadata of Mooncake's transfer engine over HTTP, kept in etcd with enable_ha, else in memory"},
			{"http_metadata_server_host", "0.0.0.0", mooncake, text(&l.MetadataHost, "an IP or a host name, without a port", isHost),
				"host or IP that the metadata server listens on"},
			{"http_metadata_server_port", "8080", mooncake, port(&l.MetadataPort), "TCP port of the metadata server"},
			{"enable_metadata_cleanup_on_timeout", "false", mooncake, boolean(&l.MetadataCleanup),
				"delete what a client has published in the metadata server when it expires"},
			{"max-message-bytes", formatSize(pb.DefaultMaxMessageBytes), understudy, size(&l.MaxMessageBytes, mib, gib),
				"largest gRPC message, either direction; answers may have 2MiB in any case"},
		}},
		{"Mooncake's clients", []Setting{
			{"mooncake-generation", wire.Names()[0], understudy, oneOf(&m.Generation, append(wire.Names(), NoGeneration)...),
				"releases whose clients the RPC port answers besides gRPC; none: no Mooncake clients there"},
			{"mooncake-listen", "", understudy, generationListens(&m.Listen),
				"further ports for clients of other releases, each as generation=host:port"},
			{"mooncake-version", "2.0.0", understudy, text(&m.Version, "what the clients' release calls itself", notEmpty),
				"version that Mooncake's clients ask their master for; they refuse to work with another one"},
			{"forward", "false", understudy, boolean(&m.Forward), "pass requests of Mooncake's clients on to the primary " +
				"while this node does not serve; false closes their connections, so that they look for it"},
			{"mooncake-no-orders", "false", understudy, boolean(&m.NoOrders), "refuse RemoveAll and RemoveByRegex over Mooncake's protocol, and unmounts of other clients' segments"},
			{"mooncake-allow", "", understudy, prefixes(&m.Allow), "from where Mooncake's protocol and the metadata server are used, which have no TLS, " +
				"other nodes included; empty: from everywhere, or from nowhere if TLS is required"},
		}},
		{"Node", []Setting{
			{"advertise-address", "", understudy,
				text(&n.AdvertiseAddress, "host or host:port that others can dial; empty: derived from the listen address", isAdvertise),
				"address that peers and clients get for gRPC; the port defaults to the real one, " +
					"the host to the one listened on, or 127.0.0.1 if that is all interfaces"},
			{"node-id", "", understudy, text(&n.ID, "without '/' and spaces; empty: the advertise address", orEmpty(isSegment)),
				"name of the node, one per cluster"},
			{"data-dir", "./understudy-data", understudy, text(&n.DataDir, "a directory, not empty", notEmpty),
				"directory of the embedded etcd, and of state files"},
			{"state-dir", "", understudy, text(&n.StateDir, "a directory; empty: state/{cluster_id}/{node-id} in the data directory", anything[string]),
				"directory of this node's state files, from which it goes on after a restart"},
			{"state-save-interval", "30s", understudy, duration(&n.StateSaveInterval, 100*time.Millisecond),
				"how often a node saves its state; sooner when a quarter of journal-max-bytes has been written"},
			{"ready-file", "", understudy, text(&n.ReadyFile, "a file name; empty: none", anything[string]),
				"file that gets the real addresses once the node listens"},
		}},
	}
}

func clusterSections(c *Config) []Section {
	h := &c.HA
	return []Section{
		{"Cluster and takeover", []Setting{
			{"enable_ha", "true", mooncake, boolean(&h.Enabled),
				"run with etcd, journal and takeover; false runs a lone primary (Mooncake's default)"},
			{"cluster_id", pb.DefaultClusterID, mooncake, text(&h.ClusterID, "not empty, without '/' and spaces", isSegment),
				"name of the cluster, one root in etcd each"},
			{etcdEndpoints, "", mooncake, endpoints(&h.EtcdEndpoints), "etcd members; empty runs the embedded etcd"},
			{backendConnstring, "", mooncake, endpoints(&h.Backend), "etcd members, in place of etcd_endpoints"},
			{"etcd_prefix", pb.DefaultEtcdPrefix, understudy,
				text(&h.EtcdPrefix, "a path such as /understudy: it starts with '/' and does not end in one", isPrefix), "root of all keys in etcd"},
			{"cluster-init", "false", understudy, boolean(&h.ClusterInit),
				"found an etcd that other nodes join, each with a member of its own; goes on with what is in data-dir"},
			{"join", "", understudy, joins(&h.Join), "nodes whose etcd this node joins, if it is not a member yet; it founds none then"},
			{"witness", "false", understudy, boolean(&h.Witness),
				"run a member of etcd, HTTP for health and metrics, and nothing else: this node holds no metadata and never serves; needs join"},
			{"join-token-file", "", understudy, text(&h.JoinTokenFile, "a file; empty: none", anything[string]),
				"file with the secret, of 32 characters or more, by which nodes may join; the same on all nodes, read again at each use"},
			{"etcd-peer-listen", "", understudy, text(&h.EtcdPeerListen, "host:port; empty: port 2380 of the host of advertise-address, or of rpc_address if that is one, or of 127.0.0.1", orEmpty(isDialable)),
				"address at which the other members reach the etcd of this node"},
			{"etcd-listen", "127.0.0.1:0", understudy, text(&h.EtcdListen, "host:port; port 0 takes a free one", isListen),
				"address on which the embedded etcd serves standbys and tools"},
			{"etcd-quota-bytes", "2GiB", understudy, size(&h.EtcdQuotaBytes, 16*mib, maxEtcdBytes), "backend quota of the embedded etcd"},
			{"session-ttl", "5s", understudy, wholeSeconds(&h.SessionTTL, 2*time.Second), // etcd silently raises less
				"life of the election lease, and the longest failover time that slow commits may raise"},
			{"failover-after", "1s", understudy, duration(&h.FailoverAfter, 200*time.Millisecond),
				"how long a primary that commits nothing is waited for, in terms that this node begins; " +
					"it answers for 3/5 of that after each commit"},
			{"promotion-cleanup", "auto", understudy, oneOf(&h.PromotionCleanup, promote.CleanupAuto, promote.CleanupExpired, promote.CleanupNone),
				"what a new primary drops: objects whose lease had run out, nothing, or (auto) as the eviction policy asks"},
			{"handover-timeout", "10s", understudy, duration(&h.HandoverTimeout, time.Millisecond),
				"how long a node that got SIGTERM waits for another to serve; in each handover a successor has a quarter of it to catch up"},
			{"refound-wait", "5s", understudy, duration(&h.RefoundWait, 0),
				"how long a node that would found a journal, or restarts from a state file, waits for others that may hold more"},
			{"wait-for-state", "auto", understudy, autoDuration(&h.WaitForState),
				"how long a master without the state waits for complete nodes that are away before it starts empty; " +
					"auto is 1m where one master alone runs the etcd, for ever with any other etcd"},
			{"start-empty", "false", understudy, boolean(&h.StartEmpty), "begin a new, empty term although a journal exists"},
			{"no-writers", "false", understudy, boolean(&h.NoWriters),
				"when this node starts empty no earlier writer writes any more: mounted memory is given out after " +
					"default_kv_lease_ttl, and not only after put_start_release_timeout_sec"},
		}},
	}
}

func journalSections(c *Config) []Section {
	j, l := &c.Journal, &c.Lease
	return []Section{
		{"Journal", []Setting{
			{"events-ttl", "1m", understudy, wholeSeconds(&j.EventsTTL, time.Second), "least life of journal records in etcd; they stay until all state files cover them"},
			{"journal-compact", "auto", understudy, oneOf(&j.Compact, CompactAuto, CompactOn, CompactOff),
				"whether etcd's history is compacted: auto does it for the embedded etcd only, on the node that owns it, primary or not; " +
					"on for any, an external one on the primary"},
			{"journal-max-bytes", "512MiB", understudy, size(&j.MaxBytes, 8*mib, maxEtcdBytes),
				"journal bytes kept in etcd's history; past it slow followers load a snapshot"},
			{"journal-queue-bytes", "64MiB", understudy, size(&j.QueueBytes, mib, 8*gib), // one full commit has 1 MiB
				"events that may wait for a commit; past it callers wait"},
		}},
		{"Leases and pins", []Setting{
			{"default_kv_lease_ttl", "10s", mooncake, milliseconds(&l.TTL), "lease that a read grants"},
			{"default_kv_soft_pin_ttl", "30m", mooncake, milliseconds(&l.SoftPinTTL), "life of a soft pin without one of its own"},
			{"max_kv_soft_pin_ttl", "24h", mooncake, milliseconds(&l.MaxSoftPinTTL), "longest soft pin that a client may ask for"},
			{"lease-sync-interval", "1s", understudy, duration(&l.SyncInterval, 50*time.Millisecond), "how often renewals are journaled"},
			{"lease-critical-window", "1s", understudy, duration(&l.CriticalWindow, time.Millisecond),
				"a renewal is critical if its journaled lease runs out within this time"},
			{"lease-critical-delay", "100ms", understudy, duration(&l.CriticalDelay, time.Millisecond),
				"how long a critical renewal waits for others before it is journaled"},
			{"full-sync-interval", "1m", understudy, duration(&l.FullSyncInterval, time.Second),
				"how often a follower checks its leases against the journal"},
		}},
	}
}

func storeSections(c *Config) []Section {
	e, p, s, r := &c.Eviction, &c.Put, &c.Storage, &c.Storage.Replication
	return []Section{
		{"Eviction", []Setting{
			{"eviction-policy", "watermark", understudy, oneOf(&e.Policy, EvictWatermark, EvictExpiry),
				"evict under memory pressure, or when a lease has run out"},
			{"eviction_high_watermark_ratio", "0.9", mooncake, positiveRatio(&e.HighWatermark),
				"used share of capacity above which eviction starts; at 1 only failed allocations start it"},
			{"eviction_ratio", "0.05", mooncake, ratio(&e.Ratio),
				"share of objects that a pass aims at; at 0 a failed allocation starts no pass"},
			{"allow_evict_soft_pinned_objects", "true", mooncake, boolean(&e.AllowSoftPinned),
				"let the second pass take soft-pinned objects"},
			{"eviction-interval", "10ms", understudy, duration(&e.Interval, time.Millisecond), "time between two looks at the watermark"},
		}},
		{"Puts, clients and placement", []Setting{
			{"put_start_discard_timeout_sec", "30s", mooncake, seconds(&p.DiscardTimeout, time.Millisecond),
				"age at which another PutStart may replace an unfinished put"},
			{"put_start_release_timeout_sec", "10m", mooncake, seconds(&p.ReleaseTimeout, time.Millisecond),
				"age at which the memory of an abandoned put is free again"},
			{"client_ttl client_live_ttl_sec client_active_ttl_sec", "10s", mooncake,
				seconds(&c.Client.TTL, time.Second), // the clients' own ping interval
				"how long a client lives without a Ping; then its segments are unmounted"},
			{"client-rpc-timeout", "30s", understudy, duration(&c.Client.RPCTimeout, 0),
				"the longest that clients wait for an answer, so the longest that a Ping to a primary that hangs keeps them silent: " +
					"after a takeover they live for as long as this and client_ttl without a Ping"},
			{"allocation_strategy", "random", mooncake, oneOf(&s.AllocationStrategy, AllocateRandom, AllocateFreeRatioFirst, AllocateLocalFirst, AllocateSSDFreeRatioFirst, allocateCXL),
				"how segments are chosen for replicas"},
			{"root_fs_dir", "", mooncake, text(&s.RootFSDir, "a directory; empty: no DISK replicas", anything[string]),
				"root of DISK replicas, which are kept as metadata"},
			{"enable_disk_eviction", "true", mooncake, boolean(&s.DiskEviction),
				"clients delete files of DISK replicas when there are too many, and say so"},
			{"quota_bytes", "0", mooncake, sizeUpTo(&s.QuotaBytes, 1<<62), "how many bytes of files are too many; 0 for 90 % of the disk"},
			{"enable_offload", "false", mooncake, boolean(&s.Offload),
				"have objects copied to the SSDs of clients that offer one, when their put ends"},
			{"offloading_queue_limit", "50000", mooncake, count(&s.OffloadQueue, 0, maxOffloadQueue),
				"objects that may wait for one client to copy them; past it they stay in memory only"},
			{"offload_on_evict", "false", mooncake, boolean(&s.OffloadOnEvict),
				"with enable_offload: have objects copied when they would be evicted, not when their put ends"},
			{"promotion_on_hit", "false", mooncake, boolean(&s.Promotion.On),
				"with enable_offload: have clients copy objects that are read, and on an SSD alone, back to memory"},
			{"promotion_admission_threshold", "2", mooncake, count(&s.Promotion.Threshold, 0, 1<<31-1),
				"reads after which an object is promoted; at least 1 and at most 255 count"},
			{"promotion_queue_limit", "50000", mooncake, count(&s.Promotion.Limit, 0, maxOffloadQueue),
				"promotions that may wait or be under way"},
			{"promotion_max_per_heartbeat", "1", mooncake, count(&s.Promotion.PerHeartbeat, 0, 10_000),
				"promotions that a client gets at once, each second; at least 1"},
			{"dynamic_replication_mode", "off", mooncake, oneOf(&r.Mode, ReplicationOff, ReplicationObserve, ReplicationEnforce),
				"objects that are read often get another replica in memory (enforce), are logged (observe), or are not counted"},
			{"dynamic_replication_heat_window_seconds", "10", mooncake, seconds(&r.Window, 0), "over how long reads of an object are counted; at least 1s"},
			{"dynamic_replication_admission_qps_threshold", "0.8", mooncake, rate(&r.Rate), "reads a second in that time from which on an object is copied"},
			{"dynamic_replication_max_memory_replicas", "2", mooncake, count(&r.Replicas, 0, 1<<31-1), "replicas in memory up to which that is done; below 2 it never is"},
		}},
	}
}

func securitySections(c *Config) []Section {
	s := &c.Security
	file := func(p *string) value { return text(p, "a file; empty: none", anything[string]) }
	return []Section{
		{"Security", []Setting{
			{"tls-cert", "", understudy, file(&s.Cert), "certificate of this node, in PEM, with its intermediates: gRPC, HTTP and the embedded etcd use TLS, " +
				"and so does this node towards others; files are read again when they change"},
			{"tls-key", "", understudy, file(&s.Key), "key of tls-cert"},
			{"tls-ca", "", understudy, file(&s.CA), "authorities of nodes' and clients' certificates: callers of gRPC need one of theirs; " +
				"empty: those of the system for nodes, and callers need none"},
			{"tls-required", "true", understudy, boolean(&s.Required), "with tls-cert, refuse what is not TLS; " +
				"false takes gRPC with and without it, serves HTTP without it, and calls other nodes without it if they do not speak it: for the time of a change"},
			{"roles", "false", understudy, boolean(&s.Roles), "callers need a role: client, viewer, operator or node, which the organizational unit of their " +
				"certificate names, or a token; needs tls-ca"},
			{"roles-tokens", "", understudy, file(&s.Tokens), "file of tokens, one a line: operator NAME TOKEN, viewer NAME TOKEN, or client NAME TOKEN CLIENT-ID; callers of gRPC need no certificate then; " +
				"read again when it changes"},
			{"roles-client-regex", "false", understudy, boolean(&s.ClientRegex), "with roles, clients may call RemoveByRegex too, which removes objects of others as operators do"},
			{"http-hosts", "", understudy, hosts(&s.HTTPHosts), "names under which HTTP is reached, besides localhost and IP addresses; other names are refused, " +
				"as a foreign web page may have them; empty: any name"},
			{"etcd-ca", "", understudy, file(&s.EtcdCA), "authorities of etcd's certificates; without this and etcd-cert, " +
				"endpoints with https are called with tls-ca and tls-cert"},
			{"etcd-cert", "", understudy, file(&s.EtcdCert), "certificate for etcd"},
			{"etcd-key", "", understudy, file(&s.EtcdKey), "key of etcd-cert"},
			{"etcd-user", "", understudy, text(&s.EtcdUser, "a name; empty: none", anything[string]), "user of etcd"},
			{"etcd-password-file", "", understudy, file(&s.EtcdPasswordFile), "file with the password of etcd-user, read each time that etcd is asked for a token"},
		}},
	}
}

func otherSections(c *Config) []Section {
	t, k, p, d := &c.Tenants, &c.KVEvents, &c.Peers, &c.Debug
	return []Section{
		{"Tenants", []Setting{
			{"enable_multi_tenants", "false", mooncake, boolean(&t.Enabled),
				"calls are about the tenant that they name, and a write needs one with a quota; the same on all nodes"},
			{"tenant_quota_connector_type", "file", mooncake, oneOf(&t.Connector, QuotasInFile, QuotasInEtcd),
				"where quotas come from when there are none yet; with etcd from nowhere: they are part of the state, which is in etcd"},
			{"tenant_quota_connector_uri", "", mooncake, text(&t.ConnectorURI, "a file; empty: none", anything[string]),
				"policy file in Mooncake's format, read when the program starts, never written"},
			{"tenant_eviction_high_watermark_ratio", "0.9", mooncake, ratio(&t.HighWatermark),
				"share of its quota above which objects of a tenant are evicted, to eviction_ratio below it; 0: only for a put that needs room"},
		}},
		{"KV events", []Setting{
			{"enable_kv_events", "false", mooncake, boolean(&k.Enabled), "keep the newest changes of keys (stored, removed, evicted) for those who subscribe to them; " +
				"the same on all nodes"},
			{"kv_events_bind_endpoint", "", mooncake, text(&k.Endpoint, "such as tcp://0.0.0.0:5557; empty: over gRPC only", orEmpty(isTCPEndpoint)),
				"where they are published over ZeroMQ, in Mooncake's format, which has no TLS (see mooncake-allow)"},
			{"kv_events_backend_id", "", mooncake, text(&k.BackendID, "any text; empty: the cluster_id", anything[string]), "owner of the cache in these events; the same on all nodes"},
			{"kv_events_emit_object_key", "true", mooncake, boolean(&k.ObjectKey), "publish keys; without them only keys that are hashes are published"},
			{"kv_events_emit_legacy_compat", "true", mooncake, boolean(&k.Legacy), "publish the names of fields of vLLM and SGLang too"},
			{"kv_events_queue_capacity", "65536", mooncake, count(&k.Capacity, 0, maxKVEvents),
				"events that are kept, with at most 64 MiB of keys; who is further behind begins anew. 0 for 1048576"},
		}},
		{"Peers", []Setting{
			{"peer-share", "0.5", understudy, positiveRatio(&p.Share), "part of connections, clients, segments and key bytes that one peer may have: " +
				"an address (of IPv6 a /64), or with roles an identity; a connection counts for both; an eighth of all is kept for peers with few"},
			{"max-clients", "131072", understudy, count(&p.Clients, 16, 1<<24), "clients that count as alive at once"},
			{"max-segments", "131072", understudy, count(&p.Segments, 16, 1<<24), "segments that are mounted at once, with the endpoints where unmounted memory may still be in use"},
			{"max-key-bytes", "0", understudy, size(&p.KeyBytes, 0, 1<<50), "memory of this process that keys may take, 12GiB at most: each object counts for its key and 150 bytes, " +
				"with a key above 16 KiB for 18 to 128 KiB; past it puts find no room, and objects are evicted; 0 for half of the machine's memory, or of its control group"},
		}},
		{"Logs", []Setting{
			{"log-level", "info", understudy, oneOf(&c.Log.Level, "trace", "debug", "info", "warn", "error"), "lowest level that is written"},
			{"log-format", "auto", understudy, oneOf(&c.Log.Format, LogAuto, LogJSON, LogConsole),
				"shape of a log line; auto is console on a terminal, else json"},
			{"enable_metric_reporting", "true", mooncake, boolean(&c.Log.Metrics), "log a line of the main metrics from time to time"},
		}},
		{"Traces and profiles", []Setting{
			{"trace-endpoint", "", understudy, text(&d.TraceEndpoint, "http://host:port or https://host:port of a collector; empty: none", orEmpty(isCollector)),
				"send OpenTelemetry traces of calls and commits there, over OTLP and gRPC (its port is usually 4317); " +
					"https uses the system's authorities"},
			{"trace-ratio", "0.01", understudy, ratio(&d.TraceRatio), "share of calls that are traced; calls whose caller sends a trace are traced if that is"},
			{"pprof", "false", understudy, boolean(&d.Pprof), "serve profiles of this process over HTTP at /debug/pprof/, with roles to operators only"},
		}},
	}
}

// Shared returns the settings that should be the same on all nodes, because those of the
// primary apply: those that differ from the default, by name.
func (c Config) Shared() map[string]string {
	sharedSections := []string{"Leases and pins", "Eviction", "Puts, clients and placement", "Tenants", "KV events"}
	ofEachNode := []string{"full-sync-interval", "tenant_quota_connector_type", "tenant_quota_connector_uri", "kv_events_bind_endpoint"}
	defaults := Default(c.Role)
	shared, usual := map[string]string{}, sections(&defaults)
	for i, section := range sections(&c) {
		if !slices.Contains(sharedSections, section.Title) {
			continue
		}
		for j, s := range section.Settings {
			if s.String() != usual[i].Settings[j].String() && !slices.Contains(ofEachNode, s.name()) {
				shared[s.name()] = s.String()
			}
		}
	}
	return shared
}

// DefaultOf returns the value that a setting has by default, as Shared writes values, and
// false for a name that is not the canonical spelling of a setting of this version.
func DefaultOf(name string) (value string, known bool) {
	defaults := Default(Primary)
	for _, s := range settings(&defaults) {
		if s.name() == name {
			return s.String(), true
		}
	}
	return "", false
}

// YAML returns the effective configuration as a file for --config_path, with the origin of
// each value. It leaves out empty settings.
func (c Config) YAML() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, s := range settings(&c) {
		value, origin := s.String(), "default"
		if o, given := c.origins[s.name()]; given {
			origin = o
		}
		if value != "" {
			fmt.Fprintf(w, "%s:\t%q\t# %s\n", s.name(), value, origin)
		}
	}
	w.Flush()
	return b.String()
}
