package etcdserver

import (
	"cmp"
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

// Ticks of a member, used where a Member leaves them zero.
//
// A lone member has nobody to wait for, so its ticks are short: it elects
// itself at most one election timeout after its start. Members of a cluster
// use etcd's own defaults, which suit a local network.
//
// Ticks bound lease TTLs from below; etcd silently raises shorter ones. With
// n = floor(election / heartbeat) the shortest is floor(3n/2) heartbeats, rounded
// up to whole seconds (etcd server 3.7, etcdserver.NewServer): 1 s for a lone
// member, 2 s with etcd's defaults. The key of an expired lease is deleted up to
// about 0.5 s after its TTL, because etcd looks for expired leases twice a second.
const (
	loneHeartbeat    = 20 * time.Millisecond
	loneElection     = 100 * time.Millisecond
	clusterHeartbeat = 100 * time.Millisecond
	clusterElection  = time.Second
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

// A Member says how to run one etcd member. The zero value of every field but
// DataDir is usable.
type Member struct {
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

	// QuotaBytes caps etcd's database; past it etcd refuses writes with
	// NOSPACE until it is compacted, defragmented and disarmed. Default 0:
	// etcd's default, 2 GiB.
	QuotaBytes int64

	// HeartbeatInterval and ElectionTimeout are raft's ticks, in whole
	// milliseconds; the election timeout is at least five heartbeats and at
	// most 50 s. They bound lease TTLs from below. Default: 20 ms and 100 ms for
	// a lone member, 100 ms and 1 s otherwise.
	HeartbeatInterval, ElectionTimeout time.Duration

	// UnsafeNoFsync makes etcd skip fsync: for tests only, data is lost when
	// the machine dies.
	UnsafeNoFsync bool

	// Logger receives etcd's warnings and errors. The zero Logger drops them.
	Logger zerolog.Logger
}

func (m Member) lone() bool { return len(m.InitialCluster) == 0 }

func (m Member) withDefaults() Member {
	m.Name = cmp.Or(m.Name, "understudy")
	m.ClientAddr = cmp.Or(m.ClientAddr, "127.0.0.1:0")
	heartbeat, election := clusterHeartbeat, clusterElection
	if m.lone() {
		heartbeat, election = loneHeartbeat, loneElection
	} else {
		m.PeerAddr = cmp.Or(m.PeerAddr, m.InitialCluster[m.Name])
	}
	m.HeartbeatInterval = cmp.Or(m.HeartbeatInterval, heartbeat)
	m.ElectionTimeout = cmp.Or(m.ElectionTimeout, election)
	return m
}

// validate reports all faults of a configuration with defaults at once.
func (m Member) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if m.DataDir == "" {
		fault("no data directory given")
	}
	if wildcard, err := checkListen(m.ClientAddr); err != nil {
		fault("client address %q: %w", m.ClientAddr, err)
	} else if wildcard && m.AdvertiseClientAddr == "" {
		fault("client address %q listens on all interfaces: name one that clients can dial, or give the address to advertise to them", m.ClientAddr)
	}
	if a := m.AdvertiseClientAddr; a != "" {
		if err := checkAdvertise(a); err != nil {
			fault("advertised client address %q: %w", a, err)
		}
	}
	if m.QuotaBytes < 0 {
		fault("quota of %d bytes is negative", m.QuotaBytes)
	}
	h, e := m.HeartbeatInterval, m.ElectionTimeout
	if h < time.Millisecond || h%time.Millisecond != 0 || e%time.Millisecond != 0 {
		fault("heartbeat interval %v and election timeout %v must be whole milliseconds, at least 1ms", h, e)
	}
	if e < 5*h || e > 50*time.Second {
		fault("election timeout %v must be from five heartbeat intervals (%v) to 50s", e, 5*h)
	}
	return errors.Join(append(faults, m.validatePeers()...)...)
}

func (m Member) validatePeers() []error {
	if m.lone() {
		if m.PeerAddr != "" {
			return []error{fmt.Errorf("peer address %q without an initial cluster: a lone member opens no peer port", m.PeerAddr)}
		}
		return nil
	}
	var faults []error
	if _, ok := m.InitialCluster[m.Name]; !ok {
		faults = append(faults, fmt.Errorf("member %q is not in the initial cluster (%s)", m.Name,
			strings.Join(slices.Sorted(maps.Keys(m.InitialCluster)), ", ")))
	} else if _, err := checkListen(m.PeerAddr); err != nil {
		faults = append(faults, fmt.Errorf("peer address %q: %w", m.PeerAddr, err))
	}
	for name, addr := range m.InitialCluster {
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
func (m Member) embedConfig() *embed.Config {
	ec := embed.NewConfig()
	ec.Dir, ec.Name = m.DataDir, m.Name
	ec.ListenClientUrls = []url.URL{httpURL(m.ClientAddr)}
	ec.AdvertiseClientUrls = []url.URL{httpURL(m.AdvertiseClientAddr)}
	ec.SnapshotCount = snapshotEntries
	ec.InitialClusterToken = "understudy" // the same for all members of a cluster
	if m.lone() {
		ec.InitialClusterToken = rand.Text() // a new data directory is a new cluster
		ec.ListenPeerUrls = nil
		ec.AdvertisePeerUrls = []url.URL{httpURL(strings.TrimPrefix(lonePeerURL, "http://"))}
		ec.InitialCluster = m.Name + "=" + lonePeerURL
		ec.SnapshotCatchUpEntries = loneCatchUpEntries
	} else {
		ec.ListenPeerUrls = []url.URL{httpURL(m.PeerAddr)}
		ec.AdvertisePeerUrls = []url.URL{httpURL(m.InitialCluster[m.Name])}
		members := make([]string, 0, len(m.InitialCluster))
		for name, addr := range m.InitialCluster {
			members = append(members, name+"=http://"+addr)
		}
		ec.InitialCluster = strings.Join(members, ",")
	}
	ec.TickMs = uint(m.HeartbeatInterval.Milliseconds())
	ec.ElectionMs = uint(m.ElectionTimeout.Milliseconds())
	ec.QuotaBackendBytes = m.QuotaBytes
	ec.UnsafeNoFsync = m.UnsafeNoFsync
	ec.AutoCompactionRetention = "0" // off: the journal compacts
	ec.EnableGRPCGateway = false     // REST is not needed, and it costs a connection and goroutines
	return ec
}

func httpURL(hostport string) url.URL { return url.URL{Scheme: "http", Host: hostport} }
