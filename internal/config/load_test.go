package config

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/promote"
)

// load runs a whole load: args as on a command line, env as NAME=value.
func load(t *testing.T, role promote.Role, args []string, env ...string) (Config, []Warning, error) {
	t.Helper()
	flags := pflag.NewFlagSet("node", pflag.ContinueOnError)
	BindFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatalf("parse %q: got %v, want no error", args, err)
	}
	return Load(role, flags, env)
}

// mustLoad is load for a primary, without faults.
func mustLoad(t *testing.T, args []string, env ...string) (Config, []Warning) {
	t.Helper()
	cfg, warnings, err := load(t, Primary, args, env...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, warnings
}

// inFile writes a configuration file and returns the argument that names it.
func inFile(t *testing.T, name, content string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config_path=" + path}
}

// faultsOf returns the faults in err, and fails if it is not made of them.
func faultsOf(t *testing.T, err error) Faults {
	t.Helper()
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got error %v, want Faults", err)
	}
	return faults
}

// wantFault demands a fault for the name whose line has all the parts.
func wantFault(t *testing.T, err error, name string, parts ...string) {
	t.Helper()
	faults := faultsOf(t, err)
	i := slices.IndexFunc(faults, func(f *Fault) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("faults: got %v, want one for %q", err, name)
	}
	for _, part := range parts {
		if !strings.Contains(faults[i].Error(), part) {
			t.Errorf("fault of %s: got %q, want %q in it", name, faults[i], part)
		}
	}
}

func TestNothingGivenIsTheDefault(t *testing.T) {
	for _, role := range []promote.Role{Primary, Standby} {
		args := []string{}
		if role == Standby {
			args = []string{"--etcd_endpoints=127.0.0.1:2379", "--advertise-address=10.0.0.2"}
		}
		cfg, warnings, err := load(t, role, args)
		if err != nil || len(warnings) != 0 {
			t.Fatalf("%s: error %v, warnings %v; want no entries and no error", role, err, warnings)
		}
		want := Default(role)
		if cfg.Role != role || cfg.Lease != want.Lease || cfg.Eviction != want.Eviction || cfg.Listen != want.Listen {
			t.Errorf("%s: got %+v, want the defaults", role, cfg)
		}
	}
}

// The numbers of Mooncake's HEAD, and ours where the design has its own.
func TestDefaults(t *testing.T) {
	c := Default(Primary)
	for name, want := range map[string]string{
		"rpc_address": "0.0.0.0", "rpc_port": "50051", "metrics_port": "9003",
		"default_kv_lease_ttl": "10s", "default_kv_soft_pin_ttl": "30m", "max_kv_soft_pin_ttl": "24h",
		"eviction_high_watermark_ratio": "0.9", "eviction_ratio": "0.05", "allow_evict_soft_pinned_objects": "true",
		"put_start_discard_timeout_sec": "30s", "put_start_release_timeout_sec": "10m", "client_ttl": "10s", "client-rpc-timeout": "30s",
		"cluster_id": "mooncake_cluster", "allocation_strategy": "random", "enable_metric_reporting": "true",
		"enable_ha": "true", "etcd_prefix": "/understudy", "data-dir": "./understudy-data",
		"session-ttl": "5s", "events-ttl": "1m", "journal-max-bytes": "512MiB",
		"lease-sync-interval": "1s", "lease-critical-window": "1s", "lease-critical-delay": "100ms",
		"eviction-policy": "watermark", "promotion-cleanup": "auto", "journal-compact": "auto", "full-sync-interval": "1m",
	} {
		i := slices.IndexFunc(settings(&c), func(s Setting) bool { return s.name() == name })
		if i < 0 {
			t.Errorf("setting %s: got none, want one with default %s", name, want)
		} else if got := settings(&c)[i].String(); got != want {
			t.Errorf("%s: got default %s, want %s", name, got, want)
		}
	}
}

func TestPrecedence(t *testing.T) {
	file := inFile(t, "master.yaml", "rpc_port: 1\nmetrics_port: 11\ncluster_id: file\n")
	env := []string{"UNDERSTUDY_RPC_PORT=2", "UNDERSTUDY_METRICS_PORT=12", "OTHER=3"}
	cfg, _ := mustLoad(t, append(file, "--rpc_port=3"), env...)
	if cfg.Listen.RPCPort != 3 || cfg.Listen.MetricsPort != 12 || cfg.HA.ClusterID != "file" || cfg.HA.EtcdPrefix != "/understudy" {
		t.Errorf("got flag %d, environment %d, file %q, default %q; want 3, 12, \"file\" and \"/understudy\"", cfg.Listen.RPCPort, cfg.Listen.MetricsPort, cfg.HA.ClusterID, cfg.HA.EtcdPrefix)
	}
}

// A value that a stronger source replaces is not judged.
func TestReplacedValueIsNoFault(t *testing.T) {
	cfg, _ := mustLoad(t, []string{"--rpc_port=3"}, "UNDERSTUDY_RPC_PORT=abc")
	if cfg.Listen.RPCPort != 3 {
		t.Errorf("got port %d, want 3", cfg.Listen.RPCPort)
	}
}

func TestConfigPathFromEnvironment(t *testing.T) {
	path := strings.TrimPrefix(inFile(t, "a.yml", "rpc_port: 7")[0], "--config_path=")
	cfg, _ := mustLoad(t, nil, "UNDERSTUDY_CONFIG_PATH="+path)
	if cfg.Listen.RPCPort != 7 {
		t.Errorf("got port %d, want the file's", cfg.Listen.RPCPort)
	}
}

func TestSpellings(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		env  string
	}{
		{"underscore flag", []string{"--rpc_port=7"}, ""},
		{"dash flag", []string{"--rpc-port=7"}, ""},
		{"alias flag", []string{"--port", "7"}, ""},
		{"environment", nil, "UNDERSTUDY_RPC_PORT=7"},
		{"alias environment", nil, "UNDERSTUDY_PORT=7"},
		{"underscore YAML", inFile(t, "a.yaml", "rpc_port: 7"), ""},
		{"dash YAML", inFile(t, "a.yaml", "rpc-port: 7"), ""},
		{"quoted YAML", inFile(t, "a.yaml", "rpc_port: '7'"), ""},
		{"JSON", inFile(t, "a.json", "{\n\t\"rpc_port\": 7\n}"), ""},
		{"dash config path", []string{strings.Replace(inFile(t, "a.json", `{"rpc-port": "7"}`)[0], "config_path", "config-path", 1)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if cfg, _ := mustLoad(t, tt.args, tt.env); cfg.Listen.RPCPort != 7 {
				t.Errorf("got port %d, want 7", cfg.Listen.RPCPort)
			}
		})
	}
}

func TestOurOwnNamesInEverySource(t *testing.T) {
	for _, args := range [][]string{
		{"--node-id=a"}, {"--node_id", "a"},
		inFile(t, "a.yaml", "node-id: a"), inFile(t, "a.yaml", "node_id: a"),
	} {
		if cfg, _ := mustLoad(t, args); cfg.Node.ID != "a" {
			t.Errorf("%q: got id %q, want \"a\"", args, cfg.Node.ID)
		}
	}
	if cfg, _ := mustLoad(t, nil, "UNDERSTUDY_NODE_ID=a"); cfg.Node.ID != "a" {
		t.Errorf("environment: got id %q, want \"a\"", cfg.Node.ID)
	}
}

func TestAliasesOfClientTTL(t *testing.T) {
	for _, name := range []string{"client_ttl", "client_live_ttl_sec", "client-live-ttl-sec", "client_active_ttl_sec"} {
		if cfg, _ := mustLoad(t, inFile(t, "a.yaml", name+": 60")); cfg.Client.TTL != time.Minute {
			t.Errorf("%s: got %v, want 1m", name, cfg.Client.TTL)
		}
	}
}

func TestUnknownNames(t *testing.T) {
	file := inFile(t, "a.yaml", "rpc_port: 1\nevicton_ratio: 0.1\nzzzzzz: 1\nrpc:\n  metrics_port: 2\n")
	_, _, err := load(t, Primary, file, "UNDERSTUDY_RCP_PORT=1", "UNDERSTUDY_XYZ=1")
	wantFault(t, err, "evicton_ratio", "a.yaml, line 2", "unknown name; did you mean eviction_ratio?")
	wantFault(t, err, "zzzzzz", "line 3", "unknown name")
	wantFault(t, err, "rpc.metrics_port", "line 4", "unknown name", "metrics_port?")
	wantFault(t, err, "rcp_port", "environment variable UNDERSTUDY_RCP_PORT", "did you mean rpc_port?")
	wantFault(t, err, "xyz", "environment variable UNDERSTUDY_XYZ")
	if n := len(faultsOf(t, err)); n != 5 {
		t.Errorf("got %d faults, want 5: %v", n, err)
	}
	for _, f := range faultsOf(t, err) {
		if f.Name == "zzzzzz" && strings.Contains(f.Problem, "mean") {
			t.Errorf("an unknown name far from all others: got %v, want no suggestion", f)
		}
	}
}

func TestKubernetesServiceLinksAreNoSettings(t *testing.T) {
	cfg, _ := mustLoad(t, nil,
		"UNDERSTUDY_ADDRESS=10.0.0.1:50051",
		"UNDERSTUDY_SERVICE_HOST=10.0.0.1", "UNDERSTUDY_SERVICE_PORT=50051", "UNDERSTUDY_SERVICE_PORT_GRPC=50051",
		"UNDERSTUDY_PORT=tcp://10.0.0.1:50051", "UNDERSTUDY_PORT_50051_TCP=tcp://10.0.0.1:50051",
		"UNDERSTUDY_PORT_50051_TCP_PROTO=tcp", "UNDERSTUDY_PORT_50051_TCP_PORT=50051", "UNDERSTUDY_PORT_50051_TCP_ADDR=10.0.0.1",
		"UNDERSTUDY_RPC_PORT=tcp://10.0.0.1:1")
	if cfg.Listen.RPCPort != 50051 {
		t.Errorf("got port %d, want 50051", cfg.Listen.RPCPort)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	args := append(inFile(t, "a.yaml", "eviction_ratio: 2\nnonsense_name: 1\nha_backend_type: redis\n"),
		"--rpc_port=99999", "--put_start_discard_timeout_sec=700", "--rpc_thread_num=4")
	_, warnings, err := load(t, Primary, args, "UNDERSTUDY_SESSION_TTL=1s", "UNDERSTUDY_ENABLE_HA=perhaps")
	wantFault(t, err, "rpc_port", `"99999"`, "flag --rpc_port", "0 to 65535")
	wantFault(t, err, "eviction_ratio", `"2"`, "a.yaml, line 1", "0 to 1")
	wantFault(t, err, "nonsense_name", "line 2")
	wantFault(t, err, "ha_backend_type", "line 3", "etcd is the only HA backend")
	wantFault(t, err, "session-ttl", `"1s"`, "UNDERSTUDY_SESSION_TTL", "from 2s")
	wantFault(t, err, "enable_ha", "true or false")
	wantFault(t, err, "put_start_release_timeout_sec", `"10m"`, "(default)", "put_start_discard_timeout_sec (11m40s)")
	if n := len(faultsOf(t, err)); n != 7 {
		t.Errorf("got %d faults, want 7: %v", n, err)
	}
	if len(warnings) != 1 {
		t.Errorf("got warnings %v, want the one of rpc_thread_num", warnings)
	}
	if !strings.HasPrefix(err.Error(), "the configuration has 7 fault(s):\n  ") {
		t.Errorf("got %q, want 7 faults", err)
	}
	var single *Fault
	if !errors.As(err, &single) {
		t.Errorf("errors.As on %v: got no single fault, want one", err)
	}
}

// The journal has milliseconds: what is behind them is dropped by every node
// alike, and what is shown is what is in force.
func TestDurationsAreWholeMilliseconds(t *testing.T) {
	c, _ := mustLoad(t, []string{"--put_start_discard_timeout_sec=30.0005s", "--default_kv_lease_ttl=5000500us"})
	if c.Put.DiscardTimeout != 30*time.Second || c.Lease.TTL != 5*time.Second {
		t.Errorf("discard timeout %v, lease TTL %v; want 30s and 5s", c.Put.DiscardTimeout, c.Lease.TTL)
	}
}
