package etcdserver

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// Ticks of raft. A lone member has nobody to wait for, so they are short: it
// elects itself at most one election timeout after its start.
//
// Ticks bound lease TTLs from below; etcd silently raises shorter ones. With
// n = floor(election / heartbeat) the shortest is floor(3n/2) heartbeats, rounded
// up to whole seconds (etcd server 3.7, etcdserver.NewServer): 1 s here, 2 s with
// etcd's defaults. The key of an expired lease is deleted up to about 0.5 s after
// its TTL, because etcd looks for expired leases twice a second.
const (
	heartbeat = 20 * time.Millisecond
	election  = 100 * time.Millisecond
)

// How many raft entries etcd keeps: in memory for followers that lag, and in
// the write-ahead log for a restart. One commit of the journal is up to 1 MiB,
// so with etcd's defaults (5,000 and 10,000) that would be up to 5 GB and
// 10 GB. (Measured with values of 512 KiB: 126 MB of heap with 100 entries,
// 844 MB and growing with 5,000, no fewer writes per second.)
const (
	catchUpEntries  = 100
	snapshotEntries = 1000
)

// batchInterval is how often etcd commits its database, for which it syncs the disk twice
// and applies nothing meanwhile. What is younger is in the write-ahead log, from which a
// restart applies it again. (Measured in transactions of 700 bytes, one at a time: 255 µs
// and 198 µs of processor time with a second, 285 µs and 219 µs with etcd's 100 ms.)
const batchInterval = time.Second

// LonePeerURL is what a lone member is called in its own member list. Nobody
// listens there: port 0 says so.
const LonePeerURL = "http://127.0.0.1:0"

// Settings say how to run an etcd. The zero value of every field but DataDir is
// usable.
type Settings struct {
	// DataDir is the directory that holds the server's state. It is created
	// if need be, and locked while the server runs. Required.
	DataDir string

	// ClientAddr is the host:port on which clients are served; the host is one
	// IP address or "localhost". Port 0 picks a free port, a new one on every
	// start. Default "127.0.0.1:0".
	ClientAddr string

	// QuotaBytes caps etcd's database; past it etcd refuses writes with
	// NOSPACE until it is compacted, defragmented and disarmed. Default 0:
	// etcd's default, 2 GiB.
	QuotaBytes int64

	// TLS has the certificate for serving clients, and the CA that theirs must come from.
	// Default: plain text.
	TLS TLS

	// Member is the place of the server among several. Default: it is a lone one.
	Member Member

	// Logger receives etcd's warnings and errors. The zero Logger drops them.
	Logger zerolog.Logger

	// Counted and CountedMembers wrap the listeners of clients and of other members, to bound
	// the connections. One of clients takes three descriptors. Default: any number is taken.
	Counted, CountedMembers func(net.Listener) net.Listener

	// Configure changes what etcd is started with: tests and the laboratory make
	// members of clusters with it. Default: nothing is changed.
	Configure func(*embed.Config)
}

// TLS names files in PEM, and whose certificates are taken.
type TLS struct {
	CA, Cert, Key string // which etcd reads itself for the calls to other members

	// InUse returns the certificate to show to callers, and the authorities of theirs, nil
	// to ask for none. It is asked at each connection, must not block, and needs to be there
	// with Cert. Default: nil, for plain text.
	InUse func() (*tls.Certificate, *x509.CertPool)

	// Name is the only common name that clients may have. Default: any.
	Name string
}

func (t TLS) info() transport.TLSInfo {
	info := transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.CA, ClientCertAuth: t.CA != ""}
	if t.Name != "" {
		info.AllowedCNs = []string{t.Name}
	}
	return info
}

// validate reports all faults of settings with defaults at once.
func (s Settings) validate() error {
	var faults []error
	if s.DataDir == "" {
		faults = append(faults, errors.New("no data directory given"))
	}
	if host, _, err := net.SplitHostPort(s.ClientAddr); err != nil {
		faults = append(faults, fmt.Errorf("client address %q is not of the form host:port: %w", s.ClientAddr, err))
	} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || ip.IsUnspecified()) {
		faults = append(faults, fmt.Errorf(`client address %q: the host must be one IP address that clients can dial, or "localhost"`, s.ClientAddr))
	}
	if host, port, err := net.SplitHostPort(s.Member.PeerAddr); s.Member.Name != "" && (err != nil || host == "" || port == "0") {
		faults = append(faults, fmt.Errorf("peer address %q: the other members need a host and a port", s.Member.PeerAddr))
	}
	if s.TLS.Cert != "" && s.TLS.InUse == nil {
		faults = append(faults, errors.New("TLS: a certificate is given, and nothing that says which is in use"))
	}
	if s.QuotaBytes < 0 {
		faults = append(faults, fmt.Errorf("quota of %d bytes is negative", s.QuotaBytes))
	}
	return errors.Join(faults...)
}

// embedConfig translates settings, whose ports are open, for etcd.
func (s *Server) embedConfig() *embed.Config {
	c := embed.NewConfig()
	c.Dir, c.Name = s.DataDir, "understudy"
	client := url.URL{Scheme: "http", Host: s.ClientAddr}
	if s.TLS.Cert != "" {
		client.Scheme = "https"
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{s.clients.url()}, []url.URL{client}
	c.InitialClusterToken = rand.Text() // a new data directory is a new cluster
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: strings.TrimPrefix(LonePeerURL, "http://")}}
	c.InitialCluster = c.Name + "=" + LonePeerURL
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotEntries, catchUpEntries
	c.TickMs, c.ElectionMs = uint(heartbeat.Milliseconds()), uint(election.Milliseconds())
	c.QuotaBackendBytes, c.BackendBatchInterval = s.QuotaBytes, batchInterval
	c.AutoCompactionRetention = "0" // off: the journal compacts
	c.EnableGRPCGateway = false     // REST is not needed, and it costs a connection and goroutines
	if s.peers != nil {
		s.Member.configure(c, s.TLS)
	}
	if s.Configure != nil {
		s.Configure(c)
	}
	return c
}

// checkMembers refuses the data of one of several members, unless it is started
// with a peer port. etcd would take it without a word and, unable to reach the
// others, wait for a leader for ever. It also refuses the data of a single member that
// is to join others: it would run a second etcd beside theirs.
func (s *Server) checkMembers(stored []*membership.Member) error {
	switch {
	case len(stored) == 1 && stored[0].ID == s.etcd.Server.MemberID() && s.Member.Name != "" && !s.Member.Founds:
		return fmt.Errorf("%s has the data of an etcd of its own, not of the one that this node is to join: move it away; "+
			"or give --cluster-init to a master, if this is the etcd that others join", s.DataDir)
	case len(stored) <= 1 || len(s.etcd.Peers) > 0 || s.peers != nil:
		return nil
	}
	var urls []string
	for _, m := range stored {
		urls = append(urls, m.PeerURLs...)
	}
	slices.Sort(urls)
	return fmt.Errorf("%s has the data of one of %d members (%s): start it as one of them, or choose another data directory",
		s.DataDir, len(stored), strings.Join(urls, ", "))
}
