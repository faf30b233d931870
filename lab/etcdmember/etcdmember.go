// Package etcdmember runs etcd servers as members of one cluster, all of which are known
// when it starts, for tests and drills. In the product members join one by one: see
// package etcdserver.
//
// It must not change how a lone server behaves.
package etcdmember

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

// Peers says which cluster a server is a member of. The zero value means a lone server.
type Peers struct {
	// Name of the member, unique in its cluster.
	Name string
	// Cluster maps the names of all members of a new cluster, this one included,
	// to the host:port at which their peers reach them. It is read on the first
	// start only.
	Cluster map[string]string
	// Listen is the host:port on which peers are served, for example behind a
	// proxy. Port 0 picks a free port. Default: this member's address in Cluster.
	Listen string
	// Heartbeat and Election are raft's ticks. Default: etcd's own, 100 ms and 1 s.
	Heartbeat, Election time.Duration
}

// wasMember is part of etcd's error for a member that the others know and that has lost its
// data.
const wasMember = "has already been bootstrapped"

// Start runs a member and returns when it serves. A member of several serves when a majority
// of them has been started.
func Start(ctx context.Context, s etcdserver.Settings, p Peers) (*etcdserver.Server, error) {
	server, err := Launch(s, p)
	if err != nil {
		return nil, err
	}
	if err := server.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return server, nil
}

// Launch is Start without the wait.
//
// The error says what to do in three cases: the directory is that of a lone server but a
// cluster is wanted; the reverse; the others know the member but the directory lacks its
// data.
func Launch(s etcdserver.Settings, p Peers) (*etcdserver.Server, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	if len(p.Cluster) == 0 {
		return etcdserver.Launch(s)
	}
	configure := s.Configure
	s.Configure = func(c *embed.Config) {
		p.configure(c)
		if configure != nil {
			configure(c)
		}
	}
	server, err := etcdserver.Launch(s)
	if err != nil && strings.Contains(err.Error(), wasMember) {
		return nil, fmt.Errorf("%w: the others know this member, and %s does not have its data; put its directory back, "+
			"or begin a new cluster with empty directories for all members", err, s.DataDir)
	}
	if err != nil {
		return nil, err
	}
	// etcd uses the list of members in the directory, whatever its settings say. So it would
	// serve alone, and no other member would have a copy of its data.
	stored := server.Embedded().Server.Cluster().Members()
	if len(p.Cluster) > 1 && len(stored) == 1 && slices.Equal(stored[0].PeerURLs, []string{etcdserver.LonePeerURL}) {
		return nil, errors.Join(server.Close(), fmt.Errorf(
			"%s has the data of a lone member, which others cannot join: leave out the initial cluster, or choose another data directory", s.DataDir))
	}
	return server, nil
}

// Addr returns the host:port on which a member serves its peers, "" for a lone
// one.
func Addr(s *etcdserver.Server) string {
	if peers := s.Embedded().Peers; len(peers) > 0 {
		return peers[0].Addr().String()
	}
	return ""
}

func (p Peers) validate() error {
	if len(p.Cluster) == 0 {
		if p.Listen != "" {
			return fmt.Errorf("peer address %q without an initial cluster: a lone member opens no peer port", p.Listen)
		}
		return nil
	}
	if _, ok := p.Cluster[p.Name]; !ok {
		return fmt.Errorf("member %q is not in the initial cluster (%s)", p.Name, strings.Join(slices.Sorted(maps.Keys(p.Cluster)), ", "))
	}
	for name, address := range p.Cluster {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" || port == "0" {
			return fmt.Errorf("peer address %q of member %q: others need a host and a port to reach it", address, name)
		}
	}
	return nil
}

func (p Peers) configure(c *embed.Config) {
	own, defaults := p.Cluster[p.Name], embed.NewConfig()
	c.Name = p.Name
	c.InitialClusterToken = "understudy" // the same for all members of a cluster
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{httpURL(own)}, []url.URL{httpURL(own)}
	if p.Listen != "" {
		c.ListenPeerUrls = []url.URL{httpURL(p.Listen)}
	}
	var members []string
	for name, address := range p.Cluster {
		members = append(members, name+"=http://"+address)
	}
	c.InitialCluster = strings.Join(members, ",")
	c.TickMs, c.ElectionMs = defaults.TickMs, defaults.ElectionMs
	if p.Heartbeat > 0 {
		c.TickMs, c.ElectionMs = uint(p.Heartbeat.Milliseconds()), uint(p.Election.Milliseconds())
	}
	// A follower that is further behind gets the database as a snapshot. If it gets two of
	// them in quick succession, it may panic (etcd issue 18055). With 500 entries, a follower
	// that was stopped for 7 s did so in one of twelve runs.
	c.SnapshotCatchUpEntries = defaults.SnapshotCatchUpEntries
}

func httpURL(hostport string) url.URL { return url.URL{Scheme: "http", Host: hostport} }
