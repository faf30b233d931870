package config

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/promote"
)

// For each setting: texts it takes, and texts that are faults.
var valueTests = []struct {
	name      string
	good, bad []string
}{
	{"rpc_address", []string{"0.0.0.0", "::", "[::1]", "node-1.example"}, []string{"", "0.0.0.0:50051", "a b", "http://a", "ä"}},
	{"rpc_port", []string{"0", "1", "65535"}, []string{"", "-1", "65536", "x", "1.5"}},
	{"metrics_host", []string{"", "127.0.0.1"}, []string{"127.0.0.1:9003", "a/b"}},
	{"metrics_port", []string{"0", "65535", "0xFFFF"}, []string{"65536", "0x10000", "0xg", "0x"}},
	{"http-extended", []string{"true", "false"}, []string{"x"}},
	{"max-message-bytes", []string{"1MiB", "1048576", "0x100000", "1GiB"}, []string{"1048575", "1025MiB", "-1", "x", ""}},
	{"enable_http_metadata_server", []string{"true", "false"}, []string{"x"}},
	{"enable_metadata_cleanup_on_timeout", []string{"true", "false"}, []string{"x"}},
	{"http_metadata_server_host", []string{"0.0.0.0", "node"}, []string{"", "a:1"}},
	{"http_metadata_server_port", []string{"0", "8080"}, []string{"65536", "x"}},
	{"advertise-address", []string{"", "10.0.0.1", "10.0.0.1:5", "node", "node:5", "[::1]:5", "::1"}, []string{"0.0.0.0", "0.0.0.0:5", "[::]:5", "a:0", "a:b", ":5", "a:1:2"}},
	{"node-id", []string{"", "10.0.0.1:50051", "node-1"}, []string{"a/b", "a b"}},
	{"data-dir", []string{"x", "/var/lib/x"}, []string{""}},
	{"state-dir", []string{"", "/var/lib/x"}, nil},
	{"state-save-interval", []string{"100ms", "5m"}, []string{"99ms", "30", "x"}},
	{"ready-file", []string{"", "x"}, nil},
	{"enable_ha", []string{"true", "false", "1", "0", "Yes", "n"}, []string{"", "perhaps", "tr"}},
	{"cluster_id", []string{"a", "mooncake_cluster"}, []string{"", "a/b", "a b", "a\n"}},
	{"etcd_endpoints", []string{"", "a:1", "http://a:1;https://[::1]:2", " a:1 , b:2 "}, []string{"a", "http://a", "ftp://a:1", "a:0", "http://u:p@a:1", "http://a:1/x", "a:1;b"}},
	{"ha_backend_connstring", []string{"", "a:1", "http://a:1;b:2"}, []string{"a", "redis://a:1"}},
	{"etcd_prefix", []string{"/a", "/a/b"}, []string{"", "a", "/", "/a/", "//a", "/a b", "/a/../b"}},
	{"cluster-init", []string{"true", "false"}, []string{"x"}},
	{"witness", []string{"false"}, []string{"x"}}, // true: see the rules
	{"join", []string{""}, []string{"a:b", ":5", "0.0.0.0"}},
	{"join-token-file", []string{""}, nil},
	{"etcd-peer-listen", []string{""}, []string{"10.0.0.1", "10.0.0.1:0", "a:65536"}},
	{"etcd-listen", []string{"127.0.0.1:0", "127.0.0.1:2379"}, []string{"", "127.0.0.1", ":1", "a:65536"}},
	{"tls-cert", []string{""}, nil},
	{"tls-key", []string{""}, nil},
	{"tls-ca", []string{""}, nil},
	{"tls-required", []string{"true", "false"}, []string{"x"}},
	{"roles", []string{"false"}, []string{"x"}},
	{"roles-tokens", []string{""}, nil},
	{"roles-client-regex", []string{"false"}, []string{"x"}},
	{"http-hosts", []string{"", "a", "a.b,c"}, []string{"a:1", "a b"}},
	{"mooncake-no-orders", []string{"true", "false"}, []string{"x"}},
	{"etcd-ca", []string{"", "x"}, nil},
	{"etcd-cert", []string{""}, nil},
	{"etcd-key", []string{""}, nil},
	{"etcd-user", []string{""}, nil},
	{"etcd-password-file", []string{""}, nil},
	{"mooncake-allow", []string{"", "10.0.0.1", "10.0.0.0/8,::1", "::/0"}, []string{"x", "10.0.0.1/8", "10.0.0.0/33", "fe80::1%eth0"}},
	{"etcd-quota-bytes", []string{"1280MiB", "8GiB"}, []string{"15MiB", "9GiB"}},
	{"session-ttl", []string{"2s", "59s"}, []string{"1s", "2500ms", "5", "x"}},
	{"dynamic_replication_mode", []string{"off", "observe", "enforce"}, []string{"on", ""}},
	{"dynamic_replication_heat_window_seconds", []string{"0", "10", "1m"}, []string{"-1", "x"}},
	{"dynamic_replication_admission_qps_threshold", []string{"0.8", "1000000"}, []string{"0", "-1", "NaN", "x"}},
	{"dynamic_replication_max_memory_replicas", []string{"0", "2"}, []string{"-1", "x"}},
	{"promotion_on_hit", []string{"true", "false"}, []string{"x"}},
	{"promotion_admission_threshold", []string{"0", "2", "300"}, []string{"-1", "x"}},
	{"promotion_queue_limit", []string{"0", "50000"}, []string{"-1", "10000001"}},
	{"promotion_max_per_heartbeat", []string{"0", "1"}, []string{"-1", "10001"}},
	{"failover-after", []string{"200ms", "5s"}, []string{"199ms", "6s", "1", "x"}},
	{"promotion-cleanup", []string{"auto", "expired", "none"}, []string{"", "all", "AUTO"}},
	{"handover-timeout", []string{"1ms", "1m30s"}, []string{"0s", "-1s", "10"}},
	{"refound-wait", []string{"0s", "1m"}, []string{"-1s", "5", "x"}},
	{"wait-for-state", []string{"auto", "1ns", "1m", "87600h"}, []string{"", "0s", "-1s", "5", "forever"}},
	{"start-empty", []string{"true"}, []string{"x"}},
	{"no-writers", []string{"true"}, []string{"x"}},
	{"events-ttl", []string{"6s", "87600h"}, []string{"1500ms", "0s", "87601h"}},
	{"journal-compact", []string{"auto", "on", "off"}, []string{"true"}},
	{"journal-max-bytes", []string{"8MiB", "800MB"}, []string{"7MiB", "9GiB"}},
	{"journal-queue-bytes", []string{"1MiB"}, []string{"1023KiB"}},
	{"default_kv_lease_ttl", []string{"1", "10000", "10s", "1h", "500ms"}, []string{"0", "-1", "", "x", "10.5", "9223372036854775807", "18446744073720", "-9223372036854775807"}},
	{"default_kv_soft_pin_ttl", []string{"1800000", "24h"}, []string{"0", "x"}},
	{"max_kv_soft_pin_ttl", []string{"86400000", "30m"}, []string{"0", "x"}},
	{"lease-sync-interval", []string{"50ms", "1s"}, []string{"49ms", "0s", "1000"}},
	{"lease-critical-window", []string{"101ms", "1s"}, []string{"0s", "x"}},
	{"lease-critical-delay", []string{"1ms", "999ms"}, []string{"0s", "x"}},
	{"full-sync-interval", []string{"1s", "1m"}, []string{"999ms"}},
	{"eviction-policy", []string{"watermark", "expiry"}, []string{"lru"}},
	{"eviction_high_watermark_ratio", []string{"0.01", "1", "1.0"}, []string{"0", "1.01", "-1", "NaN", "x"}},
	{"enable_multi_tenants", []string{"true", "false"}, []string{"x"}},
	{"tenant_quota_connector_type", []string{"file", "etcd"}, []string{"", "redis"}},
	{"tenant_quota_connector_uri", []string{"", "/etc/quotas.yaml"}, nil},
	{"tenant_eviction_high_watermark_ratio", []string{"0", "0.9", "1"}, []string{"-0.1", "1.01", "x"}},
	{"eviction_ratio", []string{"0", "0.05", "1"}, []string{"-0.1", "1.01", "NaN", "x"}},
	{"allow_evict_soft_pinned_objects", []string{"false"}, []string{"x"}},
	{"eviction-interval", []string{"1ms", "10ms"}, []string{"0s", "10"}},
	{"put_start_discard_timeout_sec", []string{"30", "30s", "599"}, []string{"0", "-1", "x"}},
	{"put_start_release_timeout_sec", []string{"600", "31s"}, []string{"0", "x"}},
	{"client-rpc-timeout", []string{"0s", "30s", "95s"}, []string{"-1s", "30"}},
	{"client_ttl", []string{"1", "10", "1m"}, []string{"0", "999ms", "x"}},
	{"allocation_strategy", []string{"random", "free_ratio_first", "cxl", "local_first", "ssd_free_ratio_first"}, []string{"", "local"}},
	{"rpc_interface", []string{""}, nil},
	{"root_fs_dir", []string{"", "/mnt"}, nil},
	{"enable_disk_eviction", []string{"false"}, []string{"x"}},
	{"quota_bytes", []string{"0", "1099511627776", "1TiB", "18446744073709551615"}, []string{"-1", "x"}},
	{"mooncake-generation", []string{"head", "v0.3.12", "v0.3.11", "none"}, []string{"", "v0.3.10", "HEAD"}},
	{"mooncake-listen", []string{"", "v0.3.11=127.0.0.1:0", "v0.3.12=h:1,v0.3.11=[::1]:2", "head=h:1;head=h:2"}, []string{"h:1", "none=h:1", "v0.3.11=h", "v1=h:1", "head=:1"}},
	{"mooncake-version", []string{"2.0.0", "3"}, []string{""}},
	{"forward", []string{"true", "false"}, []string{"x"}},
	{"enable_offload", []string{"true", "false"}, []string{"x"}},
	{"offload_on_evict", []string{"true", "false"}, []string{"x"}},
	{"offloading_queue_limit", []string{"0", "50000", "10000000"}, []string{"-1", "10000001", "", "1.5", "1k"}},
	{"enable_kv_events", []string{"true", "false"}, []string{"x"}},
	{"kv_events_bind_endpoint", []string{"", "tcp://0.0.0.0:5557", "tcp://*:5557", "tcp://[::1]:0", "tcp://node:1"}, []string{"0.0.0.0:5557", "tcp://", "tcp://a", "ipc:///tmp/a", "tcp://a:65536"}},
	{"kv_events_backend_id", []string{"", "store-node-1"}, nil},
	{"kv_events_emit_object_key", []string{"true", "false"}, []string{"x"}},
	{"kv_events_emit_legacy_compat", []string{"true", "false"}, []string{"x"}},
	{"kv_events_queue_capacity", []string{"0", "65536", "10000000"}, []string{"-1", "10000001", "x"}},
	{"peer-share", []string{"0.01", "0.5", "1"}, []string{"0", "1.01", "-1", "x"}},
	{"max-clients", []string{"16", "131072", "16777216"}, []string{"15", "16777217", "x"}},
	{"max-segments", []string{"16", "131072", "16777216"}, []string{"15", "16777217", "x"}},
	{"max-key-bytes", []string{"0", "64MiB", "8GiB"}, []string{"-1", "x"}},
	{"log-level", []string{"trace", "debug", "info", "warn", "error"}, []string{"", "INFO", "fatal"}},
	{"log-format", []string{"json", "console", "auto"}, []string{"text"}},
	{"enable_metric_reporting", []string{"false"}, []string{"x"}},
	{"trace-endpoint", []string{"", "http://127.0.0.1:4317", "https://collector:4317", "http://[::1]:4317/"}, []string{"collector:4317", "collector", "grpc://a:4317", "http://a", "http://a:0", "http://a:1/v1/traces", "http://u:p@a:1"}},
	{"trace-ratio", []string{"0", "0.01", "1"}, []string{"-0.1", "1.1", "NaN", "x", ""}},
	{"pprof", []string{"true", "false"}, []string{"x"}},
}

func TestValues(t *testing.T) {
	tested := map[string]bool{}
	for _, tt := range valueTests {
		tested[tt.name] = true
		for _, s := range tt.good {
			if _, _, err := load(t, Primary, []string{"--" + tt.name + "=" + s}); err != nil {
				t.Errorf("%s=%q is refused: got %v, want no error", tt.name, s, err)
			}
		}
		for _, s := range tt.bad {
			_, _, err := load(t, Primary, []string{"--" + tt.name + "=" + s})
			if err == nil {
				t.Errorf("%s=%q is accepted, want an error", tt.name, s)
				continue
			}
			wantFault(t, err, tt.name, "flag --"+tt.name, "must be ")
		}
	}
	c := Default(Primary)
	for _, s := range settings(&c) {
		if !tested[s.name()] {
			t.Errorf("setting %s: got no test of its values, want one", s.name())
		}
	}
}

// As no limit at all, quota_bytes is the highest that there is.
func TestQuotaWithoutLimit(t *testing.T) {
	for text, want := range map[string]int64{"18446744073709551615": 1 << 62, "4611686018427387904": 1 << 62, "1GiB": 1 << 30} {
		if cfg, _ := mustLoad(t, []string{"--quota_bytes=" + text}); cfg.Storage.QuotaBytes != want {
			t.Errorf("%s: got %d, want %d", text, cfg.Storage.QuotaBytes, want)
		}
	}
}

// What a value prints it also takes.
func TestDefaultsAreAllowed(t *testing.T) {
	c := Default(Primary)
	for _, s := range settings(&c) {
		if before := s.String(); !s.set(before) || s.String() != before {
			t.Errorf("%s: default %q becomes %q; want no change", s.name(), before, s.String())
		}
	}
}

// One row for each rule: arguments that break it and nothing else, and the
// nearest ones that do not.
var ruleTests = []struct {
	role         promote.Role
	broken, kept string
	name, text   string
	advice       bool
}{
	{
		Standby, "--enable_ha=false", "--enable_ha=true --etcd_endpoints=a:1 --rpc_address=a",
		"enable_ha", "must be true for a standby", false,
	},
	{
		Standby, "--enable_ha=true", "--etcd_endpoints=a:1 --rpc_address=a",
		"etcd_endpoints", "must be given for a standby", false,
	},
	{
		Standby, "--start-empty --etcd_endpoints=a:1 --rpc_address=a", "--start-empty=false --etcd_endpoints=a:1 --rpc_address=a",
		"start-empty", "not for a standby", false,
	},
	{
		Primary, "--enable_ha=false --etcd_endpoints=a:1", "--enable_ha=false --start-empty",
		"etcd_endpoints", "enable_ha is false", true,
	},
	{
		Primary, "--offload_on_evict", "--offload_on_evict --enable_offload",
		"offload_on_evict", "is not used without enable_offload", true,
	},
	{
		Primary, "--promotion_on_hit", "--promotion_on_hit --enable_offload",
		"promotion_on_hit", "is not used without enable_offload", true,
	},
	{
		Primary, "--promotion-cleanup=expired", "--promotion-cleanup=expired --eviction-policy=expiry",
		"promotion-cleanup", "most of a healthy cache", true,
	},
	{
		Primary, "--rpc_port=5 --metrics_port=5", "--rpc_port=0 --metrics_port=0",
		"metrics_port", "must differ from rpc_port, which listens on 0.0.0.0:5", false,
	},
	{
		Primary, "--rpc_port=27123 --mooncake-listen=v0.3.11=127.0.0.1:27123", "--rpc_port=27123 --mooncake-listen=v0.3.11=127.0.0.1:0,head=127.0.0.1:0",
		"mooncake-listen", "must differ from rpc_port, which listens on 0.0.0.0:27123", false,
	},
	{
		Primary, "--etcd-listen=127.0.0.1:9003", "--etcd-listen=127.0.0.1:9003 --etcd_endpoints=a:1 --advertise-address=b",
		"etcd-listen", "must differ from metrics_port, which listens on 0.0.0.0:9003", false,
	},
	{
		Primary, "--etcd-listen=0.0.0.0:2379 --advertise-address=b", "--etcd-listen=127.0.0.1:2379 --advertise-address=b",
		"etcd-listen", "must name one address that standbys can dial", false,
	},
	{
		Primary, "--etcd-listen=10.0.0.1:2379 --advertise-address=b --tls-cert=c --tls-key=k",
		"--etcd-listen=10.0.0.1:2379 --advertise-address=b --tls-cert=c --tls-key=k --tls-ca=a",
		"etcd-listen", "must be on loopback", false,
	},
	{
		Standby, "--join=a --cluster-init", "--join=a",
		"cluster-init", "not for a standby", false,
	},
	{
		Primary, "--cluster-init --enable_ha=false", "--cluster-init", "cluster-init", "does not run", false,
	},
	{
		Primary, "--join=a --etcd_endpoints=a:1 --rpc_address=a", "--join=a", "join", "does not run", false,
	},
	{Primary, "--witness --join=a", "--join=a", "witness", "is for a standby with join", false},
	{
		Standby, "--witness --join=a --rpc_port=1 --metrics_port=1 --enable_http_metadata_server", "--witness --join=a --rpc_port=1 --metrics_port=1",
		"witness", "serves nobody", false,
	},
	{Primary, "--etcd-peer-listen=127.0.0.1:1", "--etcd-peer-listen=127.0.0.1:1 --cluster-init", "etcd-peer-listen", "is of no use", false},
	{Primary, "--join-token-file=a", "--join-token-file=a --cluster-init", "join-token-file", "is of no use", false},
	{
		Primary, "--cluster-init --advertise-address=b --tls-cert=c --tls-key=k --tls-ca=a --join-token-file=t",
		"--cluster-init --advertise-address=10.0.0.1 --tls-cert=c --tls-key=k --tls-ca=a --join-token-file=t",
		"etcd-peer-listen", "must have one IP address", false,
	},
	{
		Primary, "--cluster-init --advertise-address=10.0.0.1 --tls-cert=c --tls-key=k --tls-ca=a",
		"--cluster-init --advertise-address=10.0.0.1 --tls-cert=c --tls-key=k --tls-ca=a --join-token-file=t",
		"etcd-peer-listen", "must be on loopback", false,
	},
	{Primary, "--cluster-init --node-id=a,b", "--node-id=a,b", "node-id", "without ',' and '='", false},
	{Primary, "--tls-cert=c", "--tls-cert=c --tls-key=k", "tls-cert", "together with tls-key", false},
	{Primary, "--tls-ca=c", "--tls-ca=c --tls-cert=c --tls-key=k", "tls-ca", "is of no use without tls-cert", false},
	{Primary, "--roles", "--roles --tls-ca=c --tls-cert=c --tls-key=k", "roles", "needs tls-ca", false},
	{
		Primary, "--roles-tokens=f --tls-ca=c --tls-cert=c --tls-key=k", "--roles --roles-tokens=f --tls-ca=c --tls-cert=c --tls-key=k",
		"roles-tokens", "is of no use without roles", false,
	},
	{
		Primary, "--roles-client-regex", "--roles --roles-client-regex --tls-ca=c --tls-cert=c --tls-key=k",
		"roles-client-regex", "is of no use without roles", false,
	},
	{Primary, "--etcd-cert=c", "--etcd-cert=c --etcd-key=k", "etcd-cert", "together with etcd-key", false},
	{Primary, "--etcd-user=c --etcd-ca=c", "--etcd-user=c --etcd-ca=c --etcd-password-file=k", "etcd-user", "together with etcd-password-file", false},
	{
		Primary, "--etcd-user=c --etcd-password-file=k", "--etcd-user=c --etcd-password-file=k --etcd-ca=c",
		"etcd-user", "goes to etcd without TLS", true,
	},
	{
		Primary, "--etcd_endpoints=a:1", "--etcd_endpoints=a:1 --advertise-address=b",
		"advertise-address", "127.0.0.1", true,
	},
	{
		Primary, "--events-ttl=5s", "--events-ttl=6s",
		"events-ttl", "longer than session-ttl (5s)", false,
	},
	{
		Primary, "--failover-after=5001ms", "--failover-after=5s",
		"failover-after", "at most session-ttl (5s)", false,
	},
	{
		Primary, "--lease-critical-delay=1s", "--lease-critical-delay=999ms",
		"lease-critical-delay", "shorter than lease-critical-window (1s)", false,
	},
	{
		Primary, "--default_kv_lease_ttl=1s", "--default_kv_lease_ttl=1001",
		"lease-critical-window", "every renewal is critical", true,
	},
	{
		Primary, "--enable_metadata_cleanup_on_timeout", "--enable_metadata_cleanup_on_timeout --enable_http_metadata_server",
		"enable_metadata_cleanup_on_timeout", "without enable_http_metadata_server", true,
	},
	{
		Primary, "--tenant_quota_connector_uri=a", "--tenant_quota_connector_uri=a --enable_multi_tenants",
		"tenant_quota_connector_uri", "without enable_multi_tenants", true,
	},
	{
		Primary, "--tenant_quota_connector_type=etcd", "--tenant_quota_connector_type=file",
		"tenant_quota_connector_type", "part of the state", true,
	},
	{
		Primary, "--trace-ratio=0.5 --rpc_address=a", "--trace-ratio=0.5 --trace-endpoint=http://a:4317 --rpc_address=a",
		"trace-ratio", "not used without trace-endpoint", true,
	},
	{
		Primary, "--allocation_strategy=cxl", "--allocation_strategy=ssd_free_ratio_first",
		"allocation_strategy", "at random", true,
	},
	{
		Primary, "--max_kv_soft_pin_ttl=1799999", "--max_kv_soft_pin_ttl=1800000",
		"default_kv_soft_pin_ttl", "at most max_kv_soft_pin_ttl (29m59.999s)", false,
	},
	{
		Primary, "--put_start_release_timeout_sec=30", "--put_start_release_timeout_sec=31",
		"put_start_release_timeout_sec", "longer than put_start_discard_timeout_sec (30s)", false,
	},
	{
		Primary, "--journal-compact=off --rpc_address=a", "--journal-compact=off --etcd_endpoints=a:1 --advertise-address=b",
		"journal-compact", "nobody else compacts it", true,
	},
	{
		Primary, "--etcd-quota-bytes=512MiB", "--etcd-quota-bytes=512MiB --journal-max-bytes=204MiB",
		"journal-max-bytes", "at most two fifths of etcd-quota-bytes (512MiB)", false,
	},
}

func TestRules(t *testing.T) {
	for _, tt := range ruleTests {
		t.Run(tt.name+": "+tt.text, func(t *testing.T) {
			_, warnings, err := load(t, tt.role, strings.Fields(tt.broken))
			if tt.advice {
				if err != nil || len(warnings) != 1 || warnings[0].Name != tt.name || !strings.Contains(warnings[0].Problem, tt.text) {
					t.Errorf("%s: got warnings %v, error %v; want one warning, of %s with %q", tt.broken, warnings, err, tt.name, tt.text)
				}
			} else {
				wantFault(t, err, tt.name, tt.text)
				if len(faultsOf(t, err)) != 1 || len(warnings) != 0 {
					t.Errorf("%s: got warnings %v, error %v; want one fault", tt.broken, warnings, err)
				}
			}
			if _, warnings, err := load(t, tt.role, strings.Fields(tt.kept)); err != nil || len(warnings) != 0 {
				t.Errorf("%s: got warnings %v, error %v; want none", tt.kept, warnings, err)
			}
		})
	}
	c := Default(Primary)
	if have := len(slices.Concat(rules(&c), advice(&c))); have != len(ruleTests) {
		t.Errorf("%d rules, but %d tests; want as many", have, len(ruleTests))
	}
}

func TestRulesAreAboutSettings(t *testing.T) {
	c := Default(Primary)
	for _, r := range slices.Concat(rules(&c), advice(&c)) {
		for name := range strings.FieldsSeq(r.names) {
			if !slices.ContainsFunc(settings(&c), func(s Setting) bool { return s.name() == name }) {
				t.Errorf("rule %q: got the name %s, want only settings", r.text, name)
			}
		}
	}
}

// A rule does not judge the default that stands for a faulty value.
func TestNoRuleOverAFaultyValue(t *testing.T) {
	_, _, err := load(t, Primary, []string{"--session-ttl=x", "--events-ttl=3s"})
	if faults := faultsOf(t, err); len(faults) != 1 || faults[0].Name != "session-ttl" {
		t.Errorf("got %v, want 1 entry and \"session-ttl\"", err)
	}
}

func TestExternalEtcdNeedsNoQuotaRule(t *testing.T) {
	mustLoad(t, []string{"--etcd_endpoints=a:1", "--journal-max-bytes=8GiB"})
}

func TestLonePrimaryMayHaveShortLeases(t *testing.T) {
	if _, warnings, err := load(t, Primary, []string{"--enable_ha=false", "--default_kv_lease_ttl=500"}); err != nil || len(warnings) != 0 {
		t.Errorf("got warnings %v, error %v; want none: a lone primary has no journal for its renewals", warnings, err)
	}
}

func TestHTTPHostOfItsOwnMayShareThePort(t *testing.T) {
	cfg, _ := mustLoad(t, []string{"--rpc_address=127.0.0.1", "--metrics_host=127.0.0.2", "--rpc_port=5", "--metrics_port=5"})
	if cfg.Listen.RPC() != "127.0.0.1:5" || cfg.Listen.HTTP() != "127.0.0.2:5" {
		t.Errorf("got %s and %s, want \"127.0.0.1:5\" and \"127.0.0.2:5\"", cfg.Listen.RPC(), cfg.Listen.HTTP())
	}
}

func TestOwnPorts(t *testing.T) {
	for args, other := range map[string]string{
		"--metrics_host=127.0.0.1 --metrics_port=50051":                  "rpc_port",
		"--rpc_address=127.0.0.1 --metrics_host=:: --rpc_port=9003":      "rpc_port",
		"--mooncake-listen=head=10.0.0.1:9003":                           "metrics_port",
		"--mooncake-listen=head=0.0.0.0:7,v0.3.11=10.0.0.1:7":            "mooncake-listen",
		"--mooncake-listen=head=127.0.0.1:7 --etcd-listen=127.0.0.1:7":   "mooncake-listen",
		"--enable_http_metadata_server --http_metadata_server_port=9003": "metrics_port",
		"--http_metadata_server_port=9003":                               "",
		"--rpc_address=10.0.0.1 --mooncake-listen=head=10.0.0.2:50051":   "",
		"--mooncake-listen=head=10.0.0.1:7 --etcd-listen=127.0.0.1:7":    "",
	} {
		_, _, err := load(t, Primary, strings.Fields(args))
		switch {
		case other == "" && err != nil:
			t.Errorf("%s: %v; want no error", args, err)
		case other != "" && (err == nil || !strings.Contains(err.Error(), "must differ from "+other+", ")):
			t.Errorf("%s: %v, want a clash with %s", args, err, other)
		}
	}
}

// Whoever follows the node through its own etcd dials its gRPC port, too.
func TestEmbeddedEtcdThatOthersReachNeedsAnAddress(t *testing.T) {
	for args, warned := range map[string]bool{
		"--etcd-listen=10.0.0.1:2379":                        true,
		"--etcd-listen=10.0.0.1:2379 --advertise-address=b":  false,
		"--etcd-listen=10.0.0.1:2379 --rpc_address=10.0.0.1": false,
		"--etcd-listen=10.0.0.1:2379 --enable_ha=false":      false,
		"--etcd-listen=localhost:0":                          false, "--etcd-listen=[::1]:2379": false, "": false,
	} {
		_, warnings := mustLoad(t, append(strings.Fields(args), "--tls-cert=c", "--tls-key=k", "--tls-ca=a"))
		if got := len(warnings) == 1 && warnings[0].Name == "advertise-address"; got != warned || len(warnings) > 1 {
			t.Errorf("%s: %v; want a warning: %v", args, warnings, warned)
		}
	}
}

// A value that asks for nothing is silent, any other is named, and refused only if
// it would do harm.
func TestUnusedNames(t *testing.T) {
	for _, u := range Unused() {
		asks := "17"
		if u.Kind == boolKind {
			asks = strconv.FormatBool(slices.Contains(u.neutral, "false"))
		}
		if !u.set(asks) {
			_, _, err := load(t, Primary, []string{"--" + u.name() + "=" + asks})
			wantFault(t, err, u.name(), u.Usage)
		} else if u.asksFor(asks) {
			_, warnings, err := load(t, Primary, []string{"--" + u.name() + "=" + asks})
			if err != nil || len(warnings) != 1 || warnings[0].Name != u.name() || !strings.Contains(warnings[0].Problem, u.Usage) {
				t.Errorf("%s=%s: got warnings %v, error %v; want one warning, of %s", u.name(), asks, warnings, err, u.name())
			}
		}
		for _, neutral := range u.neutral {
			if !u.set(neutral) {
				continue // a boolean without one
			}
			if _, warnings, err := load(t, Primary, []string{"--" + u.name() + "=" + neutral}); err != nil || len(warnings) != 0 {
				t.Errorf("%s=%s: got warnings %v, error %v; want none", u.name(), neutral, warnings, err)
			}
		}
	}
}

func TestUnusedNamesThatMatter(t *testing.T) {
	for arg, want := range map[string]string{
		"ha_backend_type=redis":   "etcd is the only HA backend",
		"ha_backend_connstring=a": "host:port",
		"rpc_interface=none-such": "network interface of this machine",
	} {
		name, _, _ := strings.Cut(arg, "=")
		_, _, err := load(t, Primary, []string{"--" + arg})
		if err == nil {
			t.Errorf("%s is accepted, want an error", arg)
			continue
		}
		wantFault(t, err, name, want)
	}
	for arg, want := range map[string]string{
		"memory_allocator=cachelib":    "offset allocator is the only one",
		"offload_on_evict=true":        "not used without enable_offload",
		"offload_force_evict=true":     "is always evicted",
		"enable_snapshot_restore=true": "state files",
		"allocation_strategy=cxl":      "at random",
		"rpc_thread_num=64":            "Go runtime",
	} {
		if _, warnings := mustLoad(t, []string{"--" + arg}); len(warnings) != 1 || !strings.Contains(warnings[0].Problem, want) {
			t.Errorf("%s: got warnings %v, want one with %q", arg, warnings, want)
		}
	}
	if _, warnings := mustLoad(t, []string{"--enable_oplog"}); len(warnings) != 1 || !strings.Contains(warnings[0].Problem, "journal takes the oplog's place") {
		t.Errorf("enable_oplog: got warnings %v, want 1 entry and \"journal takes the oplog's place\"", warnings)
	}
}
