package config

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func newFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("node", pflag.ContinueOnError)
	BindFlags(flags)
	return flags
}

// unset is an environment without variables.
func unset(string) (string, bool) { return "", false }

func TestGFlags(t *testing.T) {
	write := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	inner := write("inner", "--noenable_metric_reporting\n")
	outer := write("outer", "# ports\n-rpc_port=7\n\n  --metrics_port=8  \n--flagfile="+inner+"\n")
	for _, tt := range []struct{ args, want string }{
		{"-rpc_port=7 -enable_offload", "--rpc_port=7 --enable_offload"},
		{"-rpc_thread_num 64", "--rpc_thread_num=64"},
		{"--noenable_ha -noenable_offload", "--enable_ha=false --enable_offload=false"},
		{"--nof_eviction_ratio=1 --node-id=a", "--nof_eviction_ratio=1 --node-id=a"},
		{"--nosuch --norpc_port", "--nosuch --norpc_port"},
		{"-v=1", "--v=1"},
		{"-v 1", "--v=1"},
		{"-v", "-v"},
		{"-v --v=1", "-v --v=1"},
		{"-h", "-h"},
		{"--x -5 - -- -rpc_port=7", "--x -5 - -- -rpc_port=7"},
		{"--flagfile= --v=1", "--v=1"},
		{"--flagfile=" + outer, "--rpc_port=7 --metrics_port=8 --enable_metric_reporting=false"},
		{"--cluster_id flagfile --v=1", "--cluster_id=flagfile --v=1"},
		{"-flagfile " + inner + " --v=1", "--enable_metric_reporting=false --v=1"},
		{"--cluster_id -rpc_port=7 --cluster_id=a", "--cluster_id=-rpc_port=7 --cluster_id=a"},
		{"--rpc-port=7 -port 8 --port=9 --v=1", "--rpc-port=7 --v=1"},
		{"--port=8 --rpc_port=7 --rpc_port=0", "--port=8"},
		{"--port=8 --v=1", "--port=8 --v=1"},
	} {
		got, _, err := GFlags(newFlags(), strings.Fields(tt.args), unset)
		if err != nil || !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("%s: got %q, error %v; want %s", tt.args, got, err, tt.want)
		}
	}
	itself := filepath.Join(t.TempDir(), "itself")
	if err := os.WriteFile(itself, []byte("--flagfile="+itself), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{itself: "at most 16 files", "none-such": "no such file", write("text", "rpc_port=7"): "is no flag", write("bare", "--cluster_id"): "has no value"} {
		if _, _, err := GFlags(newFlags(), []string{"--flagfile=" + path}, unset); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", path, err, want)
		}
	}
}

// Flags that --undefok names may be unknown, wherever it stands; of known ones it says
// nothing.
func TestUndefok(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags")
	if err := os.WriteFile(path, []byte("--undefok=inner\n--inner=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ args, want, ignored string }{
		{"--older=1 --rpc_port=7 -undefok=older,rpc_port,unseen", "--rpc_port=7", "--older=1"},
		{"--undefok a-b,c -a_b=x --noc --c --undefok=d -d", "", "--a_b=x --noc --c --d"},
		{"--flagfile=" + path + " --v=1", "--v=1", "--inner=1"},
		{"--undefok= --other=1", "--other=1", ""},
		{"--undefok=x -- --x", "-- --x", ""},
		{"--undefok=x --x 5 6 --x=7 8", "6 8", "--x 5 --x=7"},
		{"--undefok", "--undefok", ""},
	} {
		got, notes, err := GFlags(newFlags(), strings.Fields(tt.args), unset)
		var want []string
		if tt.ignored != "" {
			want = []string{"unknown flags are ignored, as --undefok says: " + tt.ignored}
		}
		if err != nil || !slices.Equal(got, strings.Fields(tt.want)) || !slices.Equal(notes, want) {
			t.Errorf("%s: got %q, notes %q, error %v; want %s, %q", tt.args, got, notes, err, tt.want, want)
		}
	}
	if got, _, _ := GFlags(newFlags(), []string{"--undefok=x", "--x"}, unset); got == nil {
		t.Error("all flags ignored: got nil, want an empty list: nil stands for the arguments of the process")
	}
}

// --fromenv and --tryfromenv take the values of flags from FLAGS_NAME, where they stand.
func TestFlagsFromTheEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags")
	if err := os.WriteFile(path, []byte("--fromenv=cluster_id\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := map[string]string{
		"FLAGS_rpc_port": "7", "FLAGS_enable_offload": "no", "FLAGS_cluster_id": "a b", "FLAGS_node-id": "n", "FLAGS_flagfile": path,
		"FLAGS_tryfromenv": "rpc_port,v", "FLAGS_fromenv": "fromenv", "FLAGS_x": "1",
	}
	lookup := func(name string) (string, bool) { text, ok := environ[name]; return text, ok }
	for args, want := range map[string][]string{
		"--rpc_port=1 -fromenv=rpc_port,enable_offload": {"--rpc_port=1", "--rpc_port=7", "--enable_offload=no"},
		"--fromenv cluster_id --cluster_id=c":           {"--cluster_id=a b", "--cluster_id=c"},
		"--tryfromenv=metrics_port,node-id":             {"--node-id=n"},
		"--fromenv=flagfile --tryfromenv=tryfromenv":    {"--cluster_id=a b", "--rpc_port=7"},
		"--fromenv= --tryfromenv=":                      {},
		"--flagfile=" + path:                            {"--cluster_id=a b"},
		"--fromenv=x,y":                                 {"--x", "--y"}, // which are unknown
		"--fromenv=x,rpc_port --undefok=x":              {"--rpc_port=7"},
	} {
		if got, _, err := GFlags(newFlags(), strings.Fields(args), lookup); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, error %v; want %q", args, got, err, want)
		}
	}
	for args, want := range map[string]string{
		"--fromenv=metrics_port": "there is no environment variable FLAGS_metrics_port",
		"--fromenv=fromenv":      "at most 16 files of flags and lists of variables",
	} {
		if _, _, err := GFlags(newFlags(), strings.Fields(args), lookup); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", args, err, want)
		}
	}
}

// All of gflags' ways to ask for help lead to one, and what stands beside them does not matter.
func TestWaysToAskForHelp(t *testing.T) {
	for args, want := range map[string]string{
		"-help": "--help", "--help=true": "--help", "-helpshort": "--help", "--helpfull=1": "--help", "-helppackage": "--help",
		"-helpon=master": "--help", "-helpmatch master": "--help", "-version": "--version", "--version --nosuch 5": "--version",
		"--rpc_port=7 --help --nosuch": "--help",
		"--help=false --rpc_port=7":    "--rpc_port=7", "--nohelpshort --noversion --helpon= --v=1": "--v=1",
		"--help=perhaps": "--help=perhaps", "--nohelp=1": "--nohelp=1", "--helpon": "--helpon", // which are refused
	} {
		if got, _, err := GFlags(newFlags(), strings.Fields(args), unset); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, error %v; want %s", args, got, err, want)
		}
	}
}

// Of the arguments that are no flags, which Mooncake's master does not read, those are left out
// that cannot have been meant as something else.
func TestArgumentsThatAreNoFlags(t *testing.T) {
	for _, tt := range []struct {
		args, want []string
		notes      int
	}{
		{[]string{"", "--rpc_port=7", " "}, []string{"--rpc_port=7"}, 0},
		{[]string{"--cluster_id", "", "--rpc_port=7"}, []string{"--cluster_id=", "--rpc_port=7"}, 0},
		{[]string{"--enable_offload", "true", "--rpc_port=7"}, []string{"--enable_offload", "--rpc_port=7"}, 1},
		{[]string{"-enable_offload", "1", "yes"}, []string{"--enable_offload", "yes"}, 1}, // and cobra refuses the second
		{[]string{"--enable_offload=true", "true"}, []string{"--enable_offload=true", "true"}, 0},
		{[]string{"--noenable_offload", "true"}, []string{"--enable_offload=false", "true"}, 0},
		{[]string{"start", "--enable_offload", "now"}, []string{"start", "--enable_offload", "now"}, 0},
	} {
		got, notes, err := GFlags(newFlags(), tt.args, unset)
		if err != nil || !slices.Equal(got, tt.want) || len(notes) != tt.notes {
			t.Errorf("%q: got %q, notes %q, error %v; want %q, %d notes", tt.args, got, notes, err, tt.want, tt.notes)
		}
	}
	_, _, err := GFlags(newFlags(), []string{"--enable_ha", "false"}, unset)
	if want := "write --enable_ha=false"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
}

// flagsOfMooncake is how many its master has, as docs/mooncake.md says.
const flagsOfMooncake = 97

// Every flag of Mooncake's master is known, and its default says nothing new.
func TestEveryFlagOfMooncake(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "mooncake_flags.txt"))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(string(b)) {
		kind, flag, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || kind == "#" {
			continue
		}
		name, text, _ := strings.Cut(flag, "=")
		seen[name] = true
		if name == "rpc_port" {
			text = "50051" // 0 stands for --port there
		}
		args, _, err := GFlags(newFlags(), []string{"-" + name + "=" + text}, unset)
		if err != nil {
			t.Fatal(err)
		}
		if _, warnings := mustLoad(t, args); len(warnings) != 0 {
			t.Errorf("-%s=%s: got warnings %v, want none", name, text, warnings)
		}
	}
	if len(seen) != flagsOfMooncake {
		t.Errorf("got %d flags, want %d", len(seen), flagsOfMooncake)
	}
	for _, s := range Unused() { // what has no effect here is a flag there, or one of those that are named here
		for name := range strings.FieldsSeq(s.Names) {
			if !seen[name] && s.Usage != toStderr && !slices.Contains(notOfThatCommit, name) {
				t.Errorf("a name without effect: got %s accepted, want only flags of Mooncake's master", name)
			}
		}
	}
}

// notOfThatCommit are names that are accepted for files and start lines of other versions.
var notOfThatCommit = []string{"client_suspicion_ttl_sec", "enable_oplog_snapshot", "snapshot_chunk_object_count", "weight_management_oplog_capability_confirmed"}

// The start line of Mooncake's guides starts a node.
func TestStartLineOfMooncakesGuides(t *testing.T) {
	args, _, err := GFlags(newFlags(), strings.Fields("-rpc_thread_num=64 -v=1 --enable_http_metadata_server=true --http_metadata_server_port=8080 "+
		"--enable_snapshot --enable_multi_tenants --enable_kv_events --offload_on_evict --promotion_on_hit --rpc_interface="+loopbackInterface(t)+" --allocation_strategy=local_first --nologtostderr"), unset)
	if err != nil {
		t.Fatal(err)
	}
	cfg, warnings := mustLoad(t, args)
	if cfg.Listen.RPCAddress != "127.0.0.1" {
		t.Errorf("got address %s, want that of the interface, 127.0.0.1", cfg.Listen.RPCAddress)
	}
	if !cfg.Listen.Metadata || cfg.Listen.HTTPMetadata() != "0.0.0.0:8080" {
		t.Errorf("got a metadata server %v at %s, want one at 0.0.0.0:8080", cfg.Listen.Metadata, cfg.Listen.HTTPMetadata())
	}
	if !cfg.Tenants.Enabled {
		t.Error("got no tenants, want them, as --enable_multi_tenants says")
	}
	if len(warnings) != 6 {
		t.Errorf("got %d warnings, want one for each of 6 settings: %v", len(warnings), warnings)
	}
}

// loopbackInterface returns the name of the interface that has 127.0.0.1.
func loopbackInterface(t *testing.T) string {
	t.Helper()
	list, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if a, err := interfaceAddress(i.Name); err == nil && a == "127.0.0.1" {
			return i.Name
		}
	}
	t.Fatal("interfaces: got none with 127.0.0.1, want one: all tests need it")
	return ""
}

// Flags of glog, which every program of Mooncake's has, and gflags' ways to write a
// boolean.
func TestGlogFlagsAndBooleans(t *testing.T) {
	for text, want := range map[string]bool{"y": true, "YES": true, "t": true, "1": true, "no": false, "N": false, "F": false, "0": false} {
		args, _, err := GFlags(newFlags(), []string{"--logbufsecs=30", "-vmodule=", "--minloglevel=0", "--logtostderr=yes", "--enable_offload=" + text}, unset)
		if err != nil {
			t.Fatal(err)
		}
		if cfg, warnings := mustLoad(t, args); cfg.Storage.Offload != want || len(warnings) != 0 {
			t.Errorf("%s: got %v, warnings %v; want %v and none", text, cfg.Storage.Offload, warnings, want)
		}
	}
	if _, warnings := mustLoad(t, []string{"--logbufsecs=0", "--vmodule=a=2"}); len(warnings) != 2 {
		t.Errorf("got warnings %v, want one for each of 2 flags", warnings)
	}
}

// The connection string of the HA backend names etcd, and comes before the older
// setting.
func TestBackendIsEtcd(t *testing.T) {
	for args, warned := range map[string]bool{
		"--ha_backend_type=etcd --ha_backend_connstring=http://a:1;b:2":          false,
		"--ha_backend_connstring=http://a:1;b:2 --etcd_endpoints=http://a:1;b:2": false,
		"--ha_backend_connstring= --etcd_endpoints=http://a:1;b:2":               false,
		"--ha_backend_connstring=http://a:1;b:2 --etcd_endpoints=c:3":            true,
	} {
		cfg, warnings := mustLoad(t, append(strings.Fields(args), "--advertise-address=b"))
		if want := []string{"http://a:1", "b:2"}; !slices.Equal(cfg.HA.EtcdEndpoints, want) || (len(warnings) == 1) != warned || len(warnings) > 1 {
			t.Errorf("%s: got %q, warnings %v; want %q, a warning: %v", args, cfg.HA.EtcdEndpoints, warnings, want, warned)
		}
	}
	if cfg, warnings, err := load(t, Standby, []string{"--ha_backend_connstring=a:1", "--advertise-address=b"}); err != nil || len(warnings) != 0 || cfg.HA.Embedded() {
		t.Errorf("a standby: got %v, warnings %v; want no error and none", err, warnings)
	}
}
