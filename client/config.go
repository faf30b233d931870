package client

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// MaxAddresses is how many addresses a Config may list.
const MaxAddresses = 64

// Config says whom a Client talks to, and how. Addresses, EtcdEndpoints or both
// must be set; a zero field means its default.
type Config struct {
	// Addresses are host:port of the RPC services of nodes. One that answers is
	// enough to find the primary; the more of them, the surer.
	Addresses []string
	// EtcdEndpoints are those of the cluster's etcd, whose leader key is watched.
	EtcdEndpoints []string
	// EtcdPrefix is the nodes' --etcd-prefix. Default /understudy.
	EtcdPrefix string
	// ClusterID is the nodes' --cluster_id. An answer from a node of another cluster is
	// an error. Default mooncake_cluster.
	ClusterID string

	// ClientID names this client as the writer of its puts and the owner of its
	// segments. Default: a random one.
	ClientID uuid.UUID
	// Tenant owns the keys of all calls. Default: the server's default tenant.
	Tenant string

	// Timeout bounds calls whose context has no deadline. Default 30 s.
	Timeout time.Duration
	// PingInterval is how often a client with mounted segments pings the server.
	// Default 1 s; the server forgets a client after 10 s without a ping.
	PingInterval time.Duration
	// MaxMessageBytes is the largest message in either direction, the nodes'
	// --max-message-bytes. Default 16 MiB.
	MaxMessageBytes int
	// TLSFiles encrypt the connections to nodes with --tls-cert. Those with --tls-ca demand
	// a certificate. The files may be replaced while the client runs. Default: plain text.
	TLSFiles TLSFiles
	// TLS is in place of TLSFiles, and fixed but for what its functions return. Default: none.
	TLS *tls.Config
	// EtcdTLSFiles or EtcdTLS, EtcdUser and EtcdPassword are for an etcd that demands them.
	// With a user, New waits up to 5 s for etcd.
	EtcdTLSFiles           TLSFiles
	EtcdTLS                *tls.Config
	EtcdUser, EtcdPassword string
	// TokenFile names a file with a token for nodes with --roles-tokens, alone in it: it says
	// who this client is. The file is read by New, and again beside calls, once a second at most,
	// for which they wait 100 ms at most; while it has no token, or cannot be read, the one read
	// before stays in use. It needs TLS. Default: none.
	TokenFile string
	// Token is in place of TokenFile, and fixed. Default: none.
	Token string
	// DialOptions apply to each connection to a node, after what this package sets:
	// interceptors (grpc.WithChainUnaryInterceptor), a dialer, credentials. An
	// interceptor sees each call to a node by itself: repeats, questions who leads,
	// pings. It does not see calls to etcd. Default: none.
	DialOptions []grpc.DialOption
	// Transport carries the calls. TLS, TLSFiles and DialOptions are for the default: gRPC.
	Transport Transport

	// Observer gets what a client does. Default: none.
	Observer Observer
	// Log gets, at debug level, what Observer does not. Default: no log.
	Log *slog.Logger

	access access // what the files say; set by New
}

// An Observer gets what a client does, on the goroutine that does it. Its methods
// must not block, nor call the client.
type Observer interface {
	// Call is called after each call: how many attempts it took, how it ended
	// (errs.OK for success), and how long the caller waited.
	Call(method string, attempts int, kind errs.Kind, took time.Duration)
	// LeaderChanged is called for each new primary, and for one that was elected again.
	LeaderChanged(l Leader)
	// Remounted is called after segments were mounted again because the server had
	// forgotten them, with the error if that failed; then it will be tried again.
	Remounted(segments int, err error)
}

// A Leader is a primary that has answered.
type Leader struct {
	Address string // host:port of its RPC service
	NodeID  string
	Term    uint64 // grows with each election; 0 without HA
}

func (c *Config) setDefaults() {
	c.EtcdPrefix = cmp.Or(c.EtcdPrefix, pb.DefaultEtcdPrefix)
	c.ClusterID = cmp.Or(c.ClusterID, pb.DefaultClusterID)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.PingInterval = cmp.Or(c.PingInterval, time.Second)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, pb.DefaultMaxMessageBytes)
	if c.Transport == nil {
		c.Transport = grpcTransport{}
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.ClientID == uuid.Nil {
		c.ClientID = uuid.New()
	}
}

func (c *Config) secret() bool { return c.TLS != nil || c.TLSFiles.given() }

// checkAccess reports what does not fit together of the fields that say who this client is.
func (c *Config) checkAccess(fault func(format string, args ...any)) {
	for name, f := range map[string]struct {
		files TLSFiles
		fixed *tls.Config
	}{"TLS": {c.TLSFiles, c.TLS}, "EtcdTLS": {c.EtcdTLSFiles, c.EtcdTLS}} {
		if f.files.given() && f.fixed != nil {
			fault("%s and %sFiles are set; set one of them", name, name)
		}
		if (f.files.Cert == "") != (f.files.Key == "") {
			fault("%sFiles has a Cert or a Key alone; set both or none", name)
		}
	}
	if c.Token != "" && c.TokenFile != "" {
		fault("Token and TokenFile are set; set one of them")
	}
	if (c.Token != "" || c.TokenFile != "") && !c.secret() {
		fault("Token or TokenFile is set, and TLS is not: whoever listens would have the token")
	}
}

// check returns all faults at once, as one InvalidParams.
func (c *Config) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(c.Addresses) == 0 && len(c.EtcdEndpoints) == 0 {
		fault("neither Addresses nor EtcdEndpoints are set; set one of them, to find the primary by")
	}
	if n := len(c.Addresses); n > MaxAddresses {
		fault("Addresses has %d entries, at most %d are possible", n, MaxAddresses)
	}
	for _, address := range c.Addresses {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			fault("Addresses has %q, which is not host:port", address)
		}
	}
	if strings.Contains(c.ClusterID, "/") {
		fault("ClusterID is %q; it cannot contain a slash", c.ClusterID)
	}
	if n := len(c.Tenant); n > pb.MaxTenantBytes {
		fault("Tenant has %d bytes, at most %d are possible", n, pb.MaxTenantBytes)
	}
	for name, d := range map[string]time.Duration{"Timeout": c.Timeout, "PingInterval": c.PingInterval} {
		if d < 0 {
			fault("%s is %v; it cannot be negative", name, d)
		}
	}
	if _, ours := c.Transport.(grpcTransport); !ours && (c.secret() || len(c.DialOptions) > 0) {
		fault("Transport is set, and so are TLS or DialOptions, which are for gRPC only")
	}
	c.checkAccess(fault)
	if c.MaxMessageBytes < 0 {
		fault("MaxMessageBytes is %d; it cannot be negative", c.MaxMessageBytes)
	}
	if len(faults) == 0 {
		return nil
	}
	return &errs.Error{Kind: errs.InvalidParams, Op: "client.New", Err: errors.Join(faults...)}
}
