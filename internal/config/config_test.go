package config

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
)

func tcp(t *testing.T, s string) net.Addr {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestResolve(t *testing.T) {
	for _, tt := range []struct {
		args                string
		rpc, http           string
		advertise, web, ids string
		state               string // empty: the default
	}{
		{"", "0.0.0.0:50051", "0.0.0.0:9003", "127.0.0.1:50051", "127.0.0.1:9003", "127.0.0.1:50051", ""},
		{"", "[::]:50051", "[::]:9003", "127.0.0.1:50051", "127.0.0.1:9003", "127.0.0.1:50051", ""},
		{"--rpc_port=0", "10.0.0.1:41234", "10.0.0.1:41235", "10.0.0.1:41234", "10.0.0.1:41235", "10.0.0.1:41234", ""},
		{"", "[::1]:5", "[::1]:6", "[::1]:5", "[::1]:6", "[::1]:5", ""},
		{"--advertise-address=node-1", "0.0.0.0:41234", "0.0.0.0:9003", "node-1:41234", "node-1:9003", "node-1:41234", ""},
		{"--advertise-address=node-1:80", "0.0.0.0:41234", "0.0.0.0:9003", "node-1:80", "node-1:9003", "node-1:80", ""},
		{"--advertise-address=[::1]", "[::]:5", "[::]:6", "[::1]:5", "[::1]:6", "[::1]:5", ""},
		{"--advertise-address=10.0.0.1", "0.0.0.0:5", "10.9.9.9:6", "10.0.0.1:5", "10.9.9.9:6", "10.0.0.1:5", ""},
		{"", "10.0.0.1:5", "0.0.0.0:6", "10.0.0.1:5", "10.0.0.1:6", "10.0.0.1:5", ""},
		{"--advertise-address=nat", "10.0.0.1:5", "10.0.0.1:6", "nat:5", "nat:6", "nat:5", ""},
		{"--state-dir=/s --node-id=a", "10.0.0.1:5", "10.0.0.1:6", "10.0.0.1:5", "10.0.0.1:6", "a", "/s"},
		{"--node-id=a", "10.0.0.1:5", "10.0.0.1:6", "10.0.0.1:5", "10.0.0.1:6", "a", ""},
	} {
		cfg, _ := mustLoad(t, strings.Fields(tt.args))
		got, err := cfg.Resolve(tcp(t, tt.rpc), tcp(t, tt.http))
		if err != nil {
			t.Fatal(err)
		}
		want := Node{
			AdvertiseAddress: tt.advertise, HTTPAddress: tt.web, ID: tt.ids, DataDir: "./understudy-data",
			StateDir: tt.state, StateSaveInterval: 30 * time.Second,
		}
		if want.StateDir == "" {
			want.StateDir, want.StateBeside = "understudy-data/state/mooncake_cluster/"+tt.ids, true
		}
		if got.Node != want {
			t.Errorf("%q on %s: got %+v, want %+v", tt.args, tt.rpc, got.Node, want)
		}
	}
}

// Where members of etcd reach a node is judged before it listens, and must be what it
// serves then: its peers talk in plain text on loopback alone.
func TestPeerAddressIsJudged(t *testing.T) {
	for listens, want := range map[string]string{"10.0.0.1": "10.0.0.1:2380", "::1": "[::1]:2380", "0.0.0.0": "127.0.0.1:2380", "127.0.0.2": "127.0.0.2:2380"} {
		c := Default(Primary)
		c.Listen.RPCAddress, c.HA.ClusterInit = listens, true
		judged := c.PeerAddress()
		resolved, err := c.Resolve(tcp(t, net.JoinHostPort(listens, "5")), tcp(t, "127.0.0.1:6"))
		if err != nil || judged != want || resolved.PeerAddress() != want {
			t.Errorf("listening on %s: judged %s, served at %s, %v; want %s", listens, judged, resolved.PeerAddress(), err, want)
		}
	}
	_, _, err := load(t, Primary, []string{"--cluster-init", "--rpc_address=10.0.0.1"})
	wantFault(t, err, "etcd-peer-listen", "must be on loopback")
}

func TestResolveLeavesTheReceiverAlone(t *testing.T) {
	cfg, _ := mustLoad(t, nil)
	before := cfg.YAML()
	resolved, err := cfg.Resolve(tcp(t, "127.0.0.1:5"), tcp(t, "127.0.0.1:6"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.YAML() != before {
		t.Errorf("the receiver after Resolve: got\n%s\nwant it unchanged:\n%s", cfg.YAML(), before)
	}
	if !strings.Contains(resolved.YAML(), "derived from the listen address") || !strings.Contains(resolved.YAML(), "derived from the advertise address") {
		t.Errorf("got this, want the origins of both derived values:\n%s", resolved.YAML())
	}
	if _, err := Default(Primary).Resolve(tcp(t, "127.0.0.1:5"), tcp(t, "127.0.0.1:6")); err != nil {
		t.Error(err)
	}
}

func TestResolveNeedsPorts(t *testing.T) {
	ok, bad := tcp(t, "127.0.0.1:5"), &net.UnixAddr{Name: "/tmp/x", Net: "unix"}
	if _, err := Default(Primary).Resolve(bad, ok); err == nil || !strings.Contains(err.Error(), "gRPC") {
		t.Errorf("got %v, want an error with \"gRPC\"", err)
	}
	if _, err := Default(Primary).Resolve(ok, bad); err == nil || !strings.Contains(err.Error(), "HTTP") {
		t.Errorf("got %v, want an error with \"HTTP\"", err)
	}
}

func TestHA(t *testing.T) {
	c := Default(Primary)
	if !c.HA.Embedded() {
		t.Error("by default: got no embedded etcd, want one")
	}
	if c.HA.EtcdEndpoints = []string{"a:1"}; c.HA.Embedded() {
		t.Error("with etcd endpoints: got an embedded etcd, want none beside an external one")
	}
	c.HA.EtcdEndpoints, c.HA.Enabled = nil, false
	if c.HA.Embedded() {
		t.Error("without HA: got an embedded etcd, want none")
	}
}

// The effective configuration is a file that loads to the same configuration.
func TestYAMLLoadsAgain(t *testing.T) {
	first, _ := mustLoad(t, []string{
		"--rpc_port=7", "--etcd_endpoints=http://a:1;b:2", "--advertise-address=[::1]:5", "--journal-compact=off",
		"--root_fs_dir=/mnt/a b#c\"d", "--default_kv_lease_ttl=1500", "--journal-max-bytes=10000001", "--journal-queue-bytes=1025KiB", "--enable_ha=true",
	}, "UNDERSTUDY_CLUSTER_ID=x")
	for _, want := range []string{`"7"  `, "# flag --rpc_port", "# environment variable UNDERSTUDY_CLUSTER_ID", "# default"} {
		if !strings.Contains(first.YAML(), want) {
			t.Errorf("the configuration as YAML: got\n%s\nwant %s in it", first.YAML(), want)
		}
	}
	if strings.Contains(first.YAML(), "node-id") {
		t.Errorf("the configuration as YAML: got\n%s\nwant no line of node-id, which is empty", first.YAML())
	}
	second, _ := mustLoad(t, inFile(t, "a.yaml", first.YAML()))
	first.origins, second.origins = nil, nil
	if !reflect.DeepEqual(first, second) {
		t.Errorf("got %+v, want %+v", second, first)
	}
}

func TestSettingsAreDescribed(t *testing.T) {
	for _, section := range Sections() {
		for _, s := range section.Settings {
			if section.Title == "" || s.Usage == "" || s.From == "" || s.Allowed == "" || s.Kind == "" {
				t.Errorf("setting %s in section %q: got %+v, want a title, a meaning, a source, allowed values and a kind", s.name(), section.Title, s)
			}
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	c := Default(Primary)
	seen := map[string]bool{configPath: true}
	add := func(name string) {
		if seen[key(name)] {
			t.Errorf("names of settings: got %s twice, want it once, whether with - or _", name)
		}
		seen[key(name)] = true
	}
	for _, s := range settings(&c) {
		for _, name := range strings.Fields(s.Names) {
			add(name)
			if name != key(name) && name != s.name() {
				t.Errorf("an alias of %s: got %s, want underscores, as in Mooncake's names", s.name(), name)
			}
		}
	}
	for _, u := range Unused() {
		add(u.name())
	}
}

// The comment of each field names the flag that sets it, so that a reader finds
// its row in the table.
func TestCommentsNameFlags(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`--[a-z_-]+`)
	var got, want []string
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			got = append(got, flag.FindAllString(f.Doc.Text()+f.Comment.Text(), -1)...)
		}
		return true
	})
	for _, s := range settings(new(Config)) {
		want = append(want, "--"+s.name())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("fields name the flags\n%q, want\n%q", got, want)
	}
}

// command is a cobra command as cmd/master has it.
func command(run func(*cobra.Command) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: "master", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) },
	}
	BindFlags(cmd.Flags())
	cmd.SetFlagErrorFunc(cli.FlagError)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return cmd
}

func TestUnknownFlagOfACommand(t *testing.T) {
	for arg, want := range map[string]string{
		"--rpc_prot=1":        "unknown flag: --rpc_prot; did you mean --rpc_port?",
		"--rpc-prot=1":        "did you mean --rpc_port?",
		"--advertise_adress":  "did you mean --advertise-address?",
		"--hepl":              "did you mean --help?",
		"-rpc_port=1":         "did you mean --rpc_port?",
		"-metrics_port":       "did you mean --metrics_port?",
		"--noenable_ha":       "did you mean --enable_ha?",
		"--quite-another-one": "master --help lists all flags",
		"--rpc_port":          "flag needs an argument: --rpc_port",
	} {
		cmd := command(func(*cobra.Command) error { return errors.New("it ran") })
		cmd.SetArgs([]string{arg})
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", arg, err, want)
		}
	}
}

func TestCommandLoads(t *testing.T) {
	var got Config
	cmd := command(func(cmd *cobra.Command) (err error) {
		got, _, err = Load(Primary, cmd.Flags(), nil)
		return err
	})
	cmd.SetArgs([]string{"--rpc-port=0", "--metrics-port", "0", "--start-empty", "--rpc_enable_tcp_no_delay"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if got.Listen.RPCPort != 0 || got.Listen.MetricsPort != 0 || !got.HA.StartEmpty {
		t.Errorf("got %+v; want ports 0 and start-empty", got)
	}
}

func TestHelpShowsSettingsAndHidesUnusedNames(t *testing.T) {
	help := command(nil).Flags().FlagUsages()
	for _, want := range []string{"--rpc_port port", "(default 50051)", "--advertise-address string", "--start-empty ", "--log-format auto|json|console", "--config_path file"} {
		if !strings.Contains(help, want) {
			t.Errorf("help: got\n%s\nwant %q in it", help, want)
		}
	}
	if strings.Contains(help, "rpc_thread_num") {
		t.Errorf("help: got\n%s\nwant no rpc_thread_num, which has no effect", help)
	}
}

func TestShared(t *testing.T) {
	c := Default(Standby)
	if got := c.Shared(); len(got) != 0 {
		t.Errorf("defaults: got %v, want nothing", got)
	}
	c.Log.Level, c.Node.ID, c.Tenants.ConnectorURI = "debug", "b", "file" // of each node
	c.Tenants.Enabled, c.Lease.TTL = true, 7*time.Second
	if got, want := c.Shared(), map[string]string{"enable_multi_tenants": "true", "default_kv_lease_ttl": "7s"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The default of a setting is given as the value of a node would be.
func TestDefaultOf(t *testing.T) {
	for name, want := range map[string]string{"default_kv_lease_ttl": "10s", "enable_multi_tenants": "false", "root_fs_dir": ""} {
		if got, known := DefaultOf(name); got != want || !known {
			t.Errorf("%s: got %q, known %v; want %q", name, got, known, want)
		}
	}
	if got, known := DefaultOf("no_setting"); known {
		t.Errorf("the default of a name that is no setting: got %q, want none", got)
	}
}
