package ctl

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/cli"
	wire "github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// defaultAddress is where a master on this machine listens without flags.
var defaultAddress = net.JoinHostPort("127.0.0.1", strconv.Itoa(pb.DefaultPort))

// Flags are the flags of every command: which cluster, and how to connect to it.
type Flags struct {
	cli.Flags
	Mooncake   bool   // talk over Mooncake's protocol, and not gRPC
	Generation string // of Mooncake's protocol; empty for the newest

	addresses, etcd   []string
	prefix, clusterID string
	tenant            string // whose keys these are; empty for the default one

	tls, etcdTLS               certs.Files
	etcdUser, etcdPasswordFile string
	tokenFile                  string
	held                       held
	variables                  map[string]string // of the environment from which flags have their values, by flag
}

// Program makes a command the root of a program, with the flags that find a
// cluster.
func Program(root *cobra.Command) *Flags {
	f := &Flags{}
	f.Complete = f.environment
	cli.Program(root, &f.Flags)
	f.bind(root.PersistentFlags())
	completeFlag(root, "output", values(cli.Outputs()...))
	completeFlag(root, "protocol", values("grpc", "mooncake"))
	completeFlag(root, "mooncake-generation", values(wire.Names()...))
	return f
}

func (f *Flags) bind(flags *pflag.FlagSet) {
	listVar(flags, &f.addresses, nodeAddress, "address",
		"`list` of nodes, as host or host:port, separated by ','; one is enough to find the others (default "+defaultAddress+")")
	listVar(flags, &f.etcd, endpoint, "etcd-endpoints", "`list` of the etcd members of the cluster, separated by ','")
	flags.StringVar(&f.prefix, "etcd-prefix", pb.DefaultEtcdPrefix, "root of all keys in etcd")
	flags.StringVar(&f.clusterID, "cluster-id", pb.DefaultClusterID, "name of the cluster")
	flags.StringVar(&f.tenant, "tenant", "", "owner of the keys, where masters run with --enable_multi_tenants (default \"default\"; rm-all: all tenants)")
	flags.StringVar(&f.tls.CA, "tls-ca", "", "`file` with the authorities of the nodes' certificates; with it or tls-cert nodes are called over TLS")
	flags.StringVar(&f.tls.Cert, "tls-cert", "", "`file` with the certificate to show to nodes")
	flags.StringVar(&f.tls.Key, "tls-key", "", "`file` with its key")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` with the token that says who you are, in place of --tls-cert")
	flags.StringVar(&f.etcdTLS.CA, "etcd-ca", "", "`file` with the authorities of etcd's certificates; for https endpoints those of --tls-ca and --tls-cert are the default")
	flags.StringVar(&f.etcdTLS.Cert, "etcd-cert", "", "`file` with the certificate to show to etcd")
	flags.StringVar(&f.etcdTLS.Key, "etcd-key", "", "`file` with its key")
	flags.StringVar(&f.etcdUser, "etcd-user", "", "user of etcd")
	flags.StringVar(&f.etcdPasswordFile, "etcd-password-file", "", "`file` with the password of --etcd-user")
	flags.Func("protocol", "how clients talk to masters, `grpc|mooncake`: the latter as Mooncake's own do; commands on nodes need grpc (default grpc)",
		func(s string) error {
			if s != "grpc" && s != "mooncake" {
				return fmt.Errorf("%q is no protocol; there are grpc and mooncake", s)
			}
			f.Mooncake = s == "mooncake"
			return nil
		})
	flags.StringVar(&f.Generation, "mooncake-generation", "", "Mooncake releases to speak the protocol of, with --protocol=mooncake (default "+wire.Names()[0]+")")
}

// listVar adds a flag of addresses, separated by ',' or ';', which read checks and completes.
// Given again, it adds to the list.
func listVar(flags *pflag.FlagSet, list *[]string, read func(string) (string, error), name, usage string) {
	flags.Func(name, usage, func(s string) error {
		for e := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ';' }) {
			e, err := read(strings.TrimSpace(e))
			if err != nil {
				return err
			}
			if !slices.Contains(*list, e) {
				*list = append(*list, e)
			}
		}
		if len(*list) == 0 {
			return errors.New("the list is empty")
		}
		return nil
	})
}

// nodeAddress reads host:port of a node. A host alone has the default port.
func nodeAddress(s string) (string, error) {
	if isHostPort(s) {
		return s, nil
	}
	host := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if host == "" || net.ParseIP(host) == nil && strings.ContainsAny(host, ":/[] \t") {
		return "", fmt.Errorf("%q must be host or host:port, with a port from 1 to 65535, such as %s", s, defaultAddress)
	}
	return net.JoinHostPort(host, strconv.Itoa(pb.DefaultPort)), nil
}

func endpoint(s string) (string, error) {
	if !isHostPort(strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s, "http://"), "https://"), "/")) {
		return "", fmt.Errorf("%q must be host:port or http(s)://host:port, with a port from 1 to 65535, such as 127.0.0.1:2379", s)
	}
	return s, nil
}

func isHostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	n, err2 := strconv.ParseUint(port, 10, 16)
	return err == nil && err2 == nil && host != "" && n > 0
}

// environment takes values from the environment for flags that are not given. If flags name
// the cluster, it takes no addresses.
func (f *Flags) environment(flags *pflag.FlagSet) error {
	names := []string{"etcd-prefix", "cluster-id", "tls-ca", "tls-cert", "tls-key", "token-file", "etcd-ca", "etcd-cert", "etcd-key", "etcd-user", "etcd-password-file"}
	if !flags.Changed("address") && !flags.Changed("etcd-endpoints") {
		names = append(names, "address", "etcd-endpoints")
	}
	f.variables = map[string]string{}
	for _, name := range names {
		variable := cli.EnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		value, given := os.LookupEnv(variable)
		if flag := flags.Lookup(name); given && value != "" && !flag.Changed {
			if err := flag.Value.Set(value); err != nil {
				return cli.Misusef("the environment variable %s is %q: %w", variable, value, err)
			}
			f.variables[name] = variable
		}
	}
	if len(f.addresses) == 0 && len(f.etcd) == 0 {
		f.addresses = []string{defaultAddress}
	}
	if f.clusterID == "" {
		return cli.Misusef("--cluster-id is empty: give the masters' --cluster_id, or leave it out for %q", pb.DefaultClusterID)
	}
	return nil
}

// named writes flags for a message, each with the environment variable from which it has its
// value, if it has.
func (f *Flags) named(flags ...string) string {
	var list []string
	for _, name := range flags {
		text := "--" + name
		if variable := f.variables[name]; variable != "" {
			text += " (set by " + variable + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// Client returns the configuration of a client with an id.
func (f *Flags) Client(id uuid.UUID) (client.Config, error) {
	c := client.Config{Addresses: f.addresses, EtcdEndpoints: f.etcd, EtcdPrefix: f.prefix, ClusterID: f.clusterID, ClientID: id, Tenant: f.tenant}
	access, err := f.etcdAccess(f.etcd)
	if err != nil {
		return c, err
	}
	if c.EtcdUser = access.User; access.User != "" {
		if c.EtcdPassword, err = access.Password(); err != nil {
			return c, err
		}
	}
	if _, err = f.secrecy(); err != nil {
		return c, err
	}
	if _, err = f.token(); err != nil {
		return c, err
	}
	c.TLSFiles, c.EtcdTLSFiles, c.TokenFile = client.TLSFiles(f.tls), client.TLSFiles(f.etcdFiles(f.etcd)), f.tokenFile
	switch {
	case f.Mooncake && f.tls.Given():
		return c, cli.Misusef("--protocol=mooncake has no TLS; leave out %s", f.named("tls-ca", "tls-cert"))
	case f.Mooncake:
		t, err := mooncakeclient.NewTransport(f.Generation)
		if err != nil {
			return c, cli.Misuse(err)
		}
		c.Transport = t
	case f.Generation != "":
		return c, cli.Misusef("--mooncake-generation is for --protocol=mooncake only")
	}
	return c, nil
}
