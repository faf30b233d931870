package ctl

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/config"
	wire "github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/lab/rig"
)

// Names of the global flags.
const (
	flagAddress   = "address"
	flagEtcd      = "etcd-endpoints"
	flagPrefix    = "etcd-prefix"
	flagClusterID = "cluster-id"
	flagTimeout   = "timeout"
	flagOutput    = "output"
	flagProtocol  = "protocol"
	flagSpeaks    = "mooncake-generation"
)

const defaultTimeout = 10 * time.Second

// globals are the values of the flags that all commands have.
type globals struct {
	addresses []string
	etcd      []string
	prefix    string
	clusterID string
	timeout   time.Duration
	json      bool
	protocol  client.Protocol
	speaks    string // generation of Mooncake's protocol
}

// newGlobals takes its defaults from those of the nodes.
func newGlobals() *globals {
	ha := config.Default(config.Primary).HA
	return &globals{prefix: ha.EtcdPrefix, clusterID: ha.ClusterID}
}

// defaultAddress is where a master on this machine listens without flags.
func defaultAddress() string {
	return fmt.Sprintf("127.0.0.1:%d", config.Default(config.Primary).Listen.RPCPort)
}

func (g *globals) bind(flags *pflag.FlagSet) {
	flags.Var(&listFlag{&g.addresses, checkAddress}, flagAddress,
		"host:port of nodes, separated by ','; one is enough to find the others (default "+defaultAddress()+")")
	flags.Var(&listFlag{&g.etcd, checkEndpoint}, flagEtcd, "etcd members of the cluster, separated by ','")
	flags.StringVar(&g.prefix, flagPrefix, g.prefix, "root of all keys in etcd")
	flags.StringVar(&g.clusterID, flagClusterID, g.clusterID, "name of the cluster")
	flags.Var(protocolFlag{&g.protocol}, flagProtocol, "how clients talk to masters: grpc, or mooncake as Mooncake's own do; looking after the cluster needs grpc")
	flags.StringVar(&g.speaks, flagSpeaks, "", "releases whose clients to talk like, with --protocol=mooncake (default "+wire.Names()[0]+")")
	flags.DurationVar(&g.timeout, flagTimeout, defaultTimeout, "how long the whole command may take; demo, replay, bench and what follows or stays end by it only if it is given")
	flags.VarP(&outputFlag{&g.json}, flagOutput, "o", "what to print: table or json")
}

// begin ends the reading of the command line: it takes over the environment,
// and returns the command's context with its time limit.
func (g *globals) begin(cmd *cobra.Command) (context.Context, context.CancelFunc, error) {
	if err := g.complete(cmd); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), g.timeout)
	return ctx, cancel, nil
}

// beginLong is begin for a command that has a time limit only if it is given
// one.
func (g *globals) beginLong(cmd *cobra.Command) (context.Context, context.CancelFunc, error) {
	if cmd.Flags().Changed(flagTimeout) {
		return g.begin(cmd)
	}
	if err := g.complete(cmd); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	return ctx, cancel, nil
}

func (g *globals) complete(cmd *cobra.Command) error {
	if g.timeout <= 0 {
		return usagef("--%s is %v: it must be above 0", flagTimeout, g.timeout)
	}
	if err := g.environment(cmd.Flags()); err != nil {
		return err
	}
	if len(g.addresses) == 0 && len(g.etcd) == 0 {
		g.addresses = []string{defaultAddress()}
	}
	return nil
}

// environment takes values over from the environment. A cluster named by flags
// is not mixed with one named there.
func (g *globals) environment(flags *pflag.FlagSet) error {
	where := flags.Changed(flagAddress) || flags.Changed(flagEtcd)
	for _, name := range []string{flagAddress, flagEtcd, flagPrefix, flagClusterID} {
		f := flags.Lookup(name)
		variable := config.EnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		value, ok := os.LookupEnv(variable)
		if !ok || f.Changed || where && (name == flagAddress || name == flagEtcd) {
			continue
		}
		if err := f.Value.Set(value); err != nil {
			return usagef("the environment variable %s is %q: %w", variable, value, err)
		}
	}
	return nil
}

// clientConfig says how to reach the cluster as a client.
func (g *globals) clientConfig(id uuid.UUID) client.Config {
	return client.Config{
		Addresses: g.addresses, EtcdEndpoints: g.etcd, EtcdPrefix: g.prefix, ClusterID: g.clusterID, ClientID: id,
		Protocol: g.protocol, Generation: g.speaks,
	}
}

// needsGRPC refuses what Mooncake's protocol does not have, as a fault of the
// command line.
func (g *globals) needsGRPC(what string) error {
	if g.protocol == client.GRPC {
		return nil
	}
	return usagef("the %s of the nodes needs gRPC; leave out --%s=%v, masters speak both at one port", what, flagProtocol, g.protocol)
}

// A protocolFlag is the name of a protocol.
type protocolFlag struct{ *client.Protocol }

func (f protocolFlag) Type() string { return "grpc|mooncake" }

func (f protocolFlag) Set(s string) (err error) {
	*f.Protocol, err = client.ParseProtocol(s)
	return err
}

// wayFlags are those of commands whose clients may come by several ways.
func wayFlags(flags *pflag.FlagSet, w *rig.Way) {
	flags.BoolVar(&w.Forward, "forward", false, "let nodes pass calls on to the primary, and clients know one node alone; with --protocol=mooncake")
	flags.BoolVar(&w.AsOriginal, "as-original", false, "let clients find the primary no sooner than Mooncake's own: after three failed Pings; with --protocol=mooncake")
}

// way completes a way with the protocol.
func (g *globals) way(w *rig.Way) error {
	w.Protocol = g.protocol
	if fault := w.Check(); fault != "" {
		return usagef("--forward and --as-original: %s", fault)
	}
	return nil
}

// A listFlag is a list of addresses, separated by ',' or ';'. Given again, it
// adds to the list.
type listFlag struct {
	list  *[]string
	check func(string) error
}

func (f *listFlag) String() string { return "" }
func (f *listFlag) Type() string   { return "list" }

func (f *listFlag) Set(s string) error {
	for e := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ';' }) {
		e = strings.TrimSpace(e)
		if err := f.check(e); err != nil {
			return err
		}
		if !slices.Contains(*f.list, e) {
			*f.list = append(*f.list, e)
		}
	}
	return nil
}

func checkAddress(s string) error {
	if host, port, err := net.SplitHostPort(s); err != nil || host == "" || port == "" {
		return fmt.Errorf("%q must be host:port, such as %s", s, defaultAddress())
	}
	return nil
}

func checkEndpoint(s string) error {
	rest := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s, "http://"), "https://"), "/")
	if host, port, err := net.SplitHostPort(rest); err != nil || host == "" || port == "" {
		return fmt.Errorf("%q must be host:port or http(s)://host:port, such as 127.0.0.1:2379", s)
	}
	return nil
}

// An outputFlag says what to print.
type outputFlag struct{ json *bool }

func (f *outputFlag) Type() string { return "table|json" }

func (f *outputFlag) String() string {
	if *f.json {
		return "json"
	}
	return "table"
}

func (f *outputFlag) Set(s string) error {
	if s != "table" && s != "json" {
		return fmt.Errorf("must be table or json")
	}
	*f.json = s == "json"
	return nil
}
