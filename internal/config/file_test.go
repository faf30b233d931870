package config

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFileFaults(t *testing.T) {
	for _, tt := range []struct {
		name    string
		file    []string
		fault   string // the name of the fault, empty for the file's own
		problem []string
	}{
		{"bad YAML", inFile(t, "a.yaml", "rpc_port: 1\ncluster_id: x\nmetrics_port: 1: 2\n"), "", []string{"a.yaml: ", "line 3"}},
		{"tab in YAML", inFile(t, "a.yaml", "rpc_port: 1\n\tcluster_id: x\n"), "", []string{"a.yaml: ", "line 2"}},
		{"a name twice", inFile(t, "a.yaml", "rpc_port: 1\ncluster_id: x\nrpc_port: 2\n"), "", []string{"line 3", "rpc_port"}},
		{"a second document", inFile(t, "a.yaml", "rpc_port: 1\n---\nrpc_port: 2\n"), "", []string{"a.yaml: line 2: a second document begins"}},
		{"a second document that is no YAML", inFile(t, "a.yml", "rpc_port: 1\n---\nrpc_port: 1: 2\n"), "", []string{"a.yml: ", "line 3"}},
		{"an empty document first", inFile(t, "a.yaml", "---\n---\nrpc_port: 2\n"), "", []string{"a second document begins"}},
		{"a JSON name twice", inFile(t, "a.json", "{\n \"rpc_port\": 1,\n \"cluster_id\": \"x\",\n\t\"rpc_port\": 2}"), "", []string{`a.json: line 4: "rpc_port" is already defined at line 2`}},
		{"a JSON name twice, escaped", inFile(t, "a.json", `{"rpc_port": 1, "rpc\u005fport": 2}`), "", []string{`line 1: "rpc_port" is already defined`}},
		{"a list", inFile(t, "a.yaml", "- rpc_port: 1\n"), "", []string{"a.yaml: must hold names"}},
		{"a word", inFile(t, "a.yaml", "rpc_port\n"), "", []string{"a.yaml: must hold names"}},
		{"bad JSON", inFile(t, "a.json", "{\n \"rpc_port\": 1,\n}"), "", []string{"a.json: line 3"}},
		{"short JSON", inFile(t, "a.json", "{\n \"rpc_port\": 1"), "", []string{"a.json: line 2"}},
		{"JSON list", inFile(t, "a.json", "[1]"), "", []string{"a.json: must hold names"}},
		{"no file", []string{"--config_path=/nonexistent/a.yaml"}, "", []string{"/nonexistent/a.yaml: no such file"}},
		{"other extension", inFile(t, "a.toml", ""), "config_path", []string{".yaml, .yml or .json"}},
		{"names a file", inFile(t, "a.yaml", "config_path: b.yaml"), "config_path", []string{"line 1", "cannot name another"}},
		{"both spellings", inFile(t, "a.yaml", "rpc-port: 1\nrpc_port: 2"), "rpc_port", []string{"same setting as rpc-port"}},
		{"name and alias", inFile(t, "a.yaml", "client_live_ttl_sec: 1\nclient_ttl: 2"), "client_ttl", []string{"same setting as client_live_ttl_sec"}},
		{"a mapping", inFile(t, "a.yaml", "rpc_port: {}"), "rpc_port", []string{"a text, a number"}},
		{"a list of numbers", inFile(t, "a.yaml", "rpc_port: [1, 2]"), "rpc_port", []string{"a text, a number"}},
		{"a list of words", inFile(t, "a.yaml", "cluster_id: [a, b]"), "cluster_id", []string{"a text, a number"}},
		{"a list of endpoints and more", inFile(t, "a.yaml", "etcd_endpoints: [a:1, {b: 2}]"), "etcd_endpoints", []string{"a text, a number"}},
		{"a date", inFile(t, "a.yaml", "cluster_id: 2026-08-01"), "cluster_id", []string{"needs quotes"}},
		{"no value", inFile(t, "a.yaml", "rpc_port:"), "rpc_port", []string{`""`, "must be a port"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := load(t, Primary, tt.file)
			wantFault(t, err, tt.fault, tt.problem...)
			if n := len(faultsOf(t, err)); n != 1 {
				t.Errorf("got %d faults, want 1: %v", n, err)
			}
		})
	}
}

// A file that cannot be read does not hide the faults of other sources.
func TestBadFileAndBadFlag(t *testing.T) {
	_, _, err := load(t, Primary, []string{"--config_path=/nonexistent/a.yaml", "--rpc_port=x"})
	wantFault(t, err, "", "no such file")
	wantFault(t, err, "rpc_port")
}

func TestEmptyFile(t *testing.T) {
	for _, file := range [][]string{inFile(t, "a.yaml", ""), inFile(t, "a.yaml", "# nothing\n"), inFile(t, "a.yaml", "---\n# nothing\n...\n"), inFile(t, "a.json", "{}"), inFile(t, "a.json", "null")} {
		if cfg, _ := mustLoad(t, file); cfg.Listen != Default(Primary).Listen {
			t.Errorf("%q: got %+v; want the defaults", file, cfg.Listen)
		}
	}
}

func TestNumbersInFiles(t *testing.T) {
	for _, file := range [][]string{
		inFile(t, "a.json", `{"max_kv_soft_pin_ttl": 86400001, "eviction_ratio": 0.25, "journal-max-bytes": 104857600, "enable_ha": false}`),
		inFile(t, "a.yaml", "max_kv_soft_pin_ttl: 86400001\neviction_ratio: 0.25\njournal-max-bytes: 100MiB\nenable_ha: false\n"),
	} {
		cfg, _ := mustLoad(t, file)
		if cfg.Lease.MaxSoftPinTTL != 24*time.Hour+time.Millisecond || cfg.Eviction.Ratio != 0.25 ||
			cfg.Journal.MaxBytes != 100*mib || cfg.HA.Enabled {
			t.Errorf("%q: got %+v; want 100 MiB of journal, and no HA", file, cfg)
		}
	}
}

// A file of Mooncake's that says nothing of etcd turns HA off, and the node says in one
// line what that means and how to have it. Whoever says so in a flag knows.
func TestFileWithoutHA(t *testing.T) {
	for _, file := range [][]string{inFile(t, "a.yaml", "rpc_port: 7\nenable_ha: false\n"), inFile(t, "a.json", "{\n\"enable_ha\": false}")} {
		_, warnings := mustLoad(t, file)
		if len(warnings) != 1 || warnings[0].Name != "enable_ha" || !strings.Contains(warnings[0].String(), ", line 2") ||
			!strings.Contains(warnings[0].Problem, "lone primary") || !strings.Contains(warnings[0].Problem, "for HA") {
			t.Errorf("%q: got warnings %v, want one of enable_ha with its line, that explains it", file, warnings)
		}
	}
	for _, args := range [][]string{{"--enable_ha=false"}, append(inFile(t, "a.yaml", "enable_ha: false\n"), "--enable_ha=true")} {
		if _, warnings := mustLoad(t, args); len(warnings) != 0 {
			t.Errorf("%q: got warnings %v, want none", args, warnings)
		}
	}
}

func TestEndpointsAsList(t *testing.T) {
	want := []string{"http://a:1", "b:2"}
	for _, content := range []string{`etcd_endpoints: ["http://a:1", "b:2"]`, "etcd_endpoints: http://a:1;b:2", "etcd_endpoints: 'http://a:1, b:2,'"} {
		if cfg, _ := mustLoad(t, inFile(t, "a.yaml", content)); !slices.Equal(cfg.HA.EtcdEndpoints, want) {
			t.Errorf("%s: got %q, want %q", content, cfg.HA.EtcdEndpoints, want)
		}
	}
}

// The files that Mooncake ships load: their values hold, and the only warning is of
// the etcd that is not used without HA.
func TestMooncakesOwnFiles(t *testing.T) {
	for _, name := range []string{"mooncake_master.yaml", "mooncake_master.json"} {
		cfg, warnings := mustLoad(t, []string{"--config_path=" + filepath.Join("testdata", name)})
		if cfg.HA.Enabled || cfg.Eviction.Ratio != 0.1 || cfg.Eviction.HighWatermark != 1 || cfg.Client.TTL != time.Minute ||
			cfg.Lease.TTL != 10*time.Second || cfg.Lease.SoftPinTTL != 30*time.Minute || cfg.HA.ClusterID != "mooncake_cluster" {
			t.Errorf("%s: got this, want the values of the file:\n%s", name, cfg.YAML())
		}
		if len(warnings) != 1 || warnings[0].Name != "etcd_endpoints" || !strings.Contains(warnings[0].String(), name+", line ") {
			t.Errorf("%s: got warnings %v, want one of etcd_endpoints with its line", name, warnings)
		}
	}
}
