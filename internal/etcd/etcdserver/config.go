package etcdserver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/server/v3/embed"
)

// Ticks of a member, used where Config leaves them zero.
//
// A lone member has nobody to wait for, so its ticks are short: it elects
// itself at most one election timeout after its start. Members of a cluster
// use etcd's own defaults, which suit a local network.
const (
	LoneHeartbeat    = 20 * time.Millisecond
	LoneElection     = 100 * time.Millisecond
	ClusterHeartbeat = 100 * time.Millisecond
	ClusterElection  = time.Second
)

// How many raft entries etcd keeps: in memory for followers that lag, and in
// the write-ahead log for a restart. One commit of the journal is up to 1 MiB,
// so with etcd's defaults (5,000 and 10,000) that would be up to 5 GB and
// 10 GB. (Measured with values of 512 KiB: 126 MB of heap with 100 entries,
// 844 MB and growing with 5,000, no fewer writes per second.)
//
// A member of a cluster keeps etcd's 5,000 all the same. A follower further behind
// gets the database as a snapshot instead, and one that gets two of them in short
// order may panic (etcd issue 18055): with 500 a follower that was stopped for 7 s
// did in one of twelve runs.
const (
	loneCatchUpEntries = 100
	snapshotEntries    = 1000
)

// lonePeerURL is what a lone member is called in its own member list. Nobody
// listens there: port 0 says so.
const lonePeerURL = "http://127.0.0.1:0"

// A Config says how to run one etcd member. The zero value of every field but
// DataDir is usable.
type Config struct {
	// DataDir is the directory that holds the member's state. It is created
	// if need be, and locked while the server runs. Required.
	DataDir string

	// Name of the member, unique in its cluster. Default "understudy".
	Name string

	// ClientAddr is the host:port on which clients are served; the host is an
	// IP address or "localhost". Port 0 picks a free port, a new one on every
	// start. Default "127.0.0.1:0".
	ClientAddr string

	// AdvertiseClientAddr is the host:port given to clients. Default: the
	// address that is really listened on. Required if ClientAddr listens on
	// all interfaces.
	AdvertiseClientAddr string

	// InitialCluster maps the names of all members of a new cluster, this one
	// included, to the host:port at which their peers reach them. It is read
	// on the first start only. Empty: a lone member, which opens no peer port
	// and comes up again on its data whatever its ports are.
	InitialCluster map[string]string

	// PeerAddr is the host:port on which peers are served. Default: this
	// member's address in InitialCluster; set it to listen elsewhere, for
	// example behind a proxy. Port 0 picks a free port.
	PeerAddr string

	// ClusterToken keeps clusters apart that were made with the same member
	// addresses: all members of one cluster need the same. Default: random for
	// a lone member, so that a new data directory is a new cluster; otherwise
	// "understudy".
	ClusterToken string

	// QuotaBytes caps etcd's database; past it etcd refuses writes with
	// NOSPACE until it is compacted, defragmented and disarmed. Default 0:
	// etcd's default, 2 GiB.
	QuotaBytes int64

	// HeartbeatInterval and ElectionTimeout are raft's ticks, in whole
	// milliseconds; the election timeout is at least five heartbeats and at
	// most 50 s. They bound lease TTLs from below, see MinLeaseTTL. Defaults:
	// LoneHeartbeat and LoneElection for a lone member, ClusterHeartbeat and
	// ClusterElection otherwise.
	HeartbeatInterval, ElectionTimeout time.Duration

	// UnsafeNoFsync makes etcd skip fsync: for tests only, data is lost when
	// the machine dies.
	UnsafeNoFsync bool

	// Logger receives etcd's warnings and errors. The zero Logger drops them.
	Logger zerolog.Logger
}

// MinLeaseTTL returns the shortest lease TTL that a member with these ticks
// grants; etcd silently raises shorter ones to it. With
// n = floor(election / heartbeat) it is floor(3n/2) heartbeats, rounded up to
// whole seconds (etcd server 3.7, etcdserver.NewServer). LoneHeartbeat and
// LoneElection give 1 s, etcd's defaults (100 ms and 1 s) give 2 s.
//
// The key of an expired lease is deleted up to about 0.5 s after its TTL,
// because etcd looks for expired leases twice a second.
func MinLeaseTTL(heartbeat, election time.Duration) time.Duration {
	n := election.Milliseconds() / heartbeat.Milliseconds()
	ttl := time.Duration(3*n/2) * heartbeat
	return (ttl + time.Second - 1).Truncate(time.Second)
}

// MinLeaseTTL returns the shortest lease TTL that a member with this
// configuration grants.
func (c Config) MinLeaseTTL() time.Duration {
	c = c.withDefaults()
	return MinLeaseTTL(c.HeartbeatInterval, c.ElectionTimeout)
}

func (c Config) lone() bool { return len(c.InitialCluster) == 0 }

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "understudy"
	}
	if c.ClientAddr == "" {
		c.ClientAddr = "127.0.0.1:0"
	}
	heartbeat, election, token := ClusterHeartbeat, ClusterElection, "understudy"
	if c.lone() {
		heartbeat, election, token = LoneHeartbeat, LoneElection, rand.Text()
	} else if c.PeerAddr == "" {
		c.PeerAddr = c.InitialCluster[c.Name]
	}
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = heartbeat
	}
	if c.ElectionTimeout == 0 {
		c.ElectionTimeout = election
	}
	if c.ClusterToken == "" {
		c.ClusterToken = token
	}
	return c
}

// validate reports all faults of a configuration with defaults at once.
func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if c.DataDir == "" {
		fault("no data directory given")
	}
	if wildcard, err := checkListen(c.ClientAddr); err != nil {
		fault("client address %q: %w", c.ClientAddr, err)
	} else if wildcard && c.AdvertiseClientAddr == "" {
		fault("client address %q listens on all interfaces: name one that clients can dial, or give the address to advertise to them", c.ClientAddr)
	}
	if a := c.AdvertiseClientAddr; a != "" {
		if err := checkAdvertise(a); err != nil {
			fault("advertised client address %q: %w", a, err)
		}
	}
	if c.QuotaBytes < 0 {
		fault("quota of %d bytes is negative", c.QuotaBytes)
	}
	h, e := c.HeartbeatInterval, c.ElectionTimeout
	if h < time.Millisecond || h%time.Millisecond != 0 || e%time.Millisecond != 0 {
		fault("heartbeat interval %v and election timeout %v must be whole milliseconds, at least 1ms", h, e)
	}
	if e < 5*h || e > 50*time.Second {
		fault("election timeout %v must be from five heartbeat intervals (%v) to 50s", e, 5*h)
	}
	return errors.Join(append(faults, c.validatePeers()...)...)
}

func (c Config) validatePeers() []error {
	if c.lone() {
		if c.PeerAddr != "" {
			return []error{fmt.Errorf("peer address %q without an initial cluster: a lone member opens no peer port", c.PeerAddr)}
		}
		return nil
	}
	var faults []error
	if _, ok := c.InitialCluster[c.Name]; !ok {
		faults = append(faults, fmt.Errorf("member %q is not in the initial cluster (%s)", c.Name,
			strings.Join(slices.Sorted(maps.Keys(c.InitialCluster)), ", ")))
	} else if _, err := checkListen(c.PeerAddr); err != nil {
		faults = append(faults, fmt.Errorf("peer address %q: %w", c.PeerAddr, err))
	}
	for name, addr := range c.InitialCluster {
		if err := checkAdvertise(addr); err != nil {
			faults = append(faults, fmt.Errorf("peer address %q of member %q: %w", addr, name, err))
		}
	}
	return faults
}

// checkListen checks an address to listen on, and reports whether it means
// all interfaces.
func checkListen(addr string) (wildcard bool, err error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, fmt.Errorf("not of the form host:port: %w", err)
	}
	if host == "localhost" {
		return false, nil
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return false, errors.New(`the host must be an IP address or "localhost"`)
	}
	return ip.IsUnspecified(), nil
}

func checkAdvertise(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return fmt.Errorf("not of the form host:port: %w", err)
	case host == "" || port == "" || port == "0":
		return errors.New("others need a host and a port to reach it")
	}
	return nil
}

// embedConfig translates a valid configuration, whose ports are picked, for
// etcd.
func (c Config) embedConfig() *embed.Config {
	ec := embed.NewConfig()
	ec.Dir, ec.Name = c.DataDir, c.Name
	ec.ListenClientUrls = []url.URL{httpURL(c.ClientAddr)}
	ec.AdvertiseClientUrls = []url.URL{httpURL(c.AdvertiseClientAddr)}
	ec.InitialClusterToken = c.ClusterToken
	ec.SnapshotCount = snapshotEntries
	if c.lone() {
		ec.ListenPeerUrls = nil
		ec.AdvertisePeerUrls = []url.URL{httpURL(strings.TrimPrefix(lonePeerURL, "http://"))}
		ec.InitialCluster = c.Name + "=" + lonePeerURL
		ec.SnapshotCatchUpEntries = loneCatchUpEntries
	} else {
		ec.ListenPeerUrls = []url.URL{httpURL(c.PeerAddr)}
		ec.AdvertisePeerUrls = []url.URL{httpURL(c.InitialCluster[c.Name])}
		members := make([]string, 0, len(c.InitialCluster))
		for name, addr := range c.InitialCluster {
			members = append(members, name+"=http://"+addr)
		}
		ec.InitialCluster = strings.Join(members, ",")
	}
	ec.TickMs = uint(c.HeartbeatInterval.Milliseconds())
	ec.ElectionMs = uint(c.ElectionTimeout.Milliseconds())
	ec.QuotaBackendBytes = c.QuotaBytes
	ec.UnsafeNoFsync = c.UnsafeNoFsync
	ec.AutoCompactionRetention = "0" // off: the journal compacts
	ec.EnableGRPCGateway = false     // REST is not needed, and it costs a connection and goroutines
	return ec
}

func httpURL(hostport string) url.URL { return url.URL{Scheme: "http", Host: hostport} }
