package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/lab/etcdmember"
	"github.com/understudy-store/understudy/lab/netfault"
)

// MinLeaseTTL is the shortest lease TTL that a cluster grants. Shorter ones
// are raised to it.
const MinLeaseTTL = time.Second

// startTimeout bounds a start, and whatever else waits for a leader. It is what a test
// may lose when something hangs; a start takes far less.
const startTimeout = 30 * time.Second

// Ticks of a cluster of three: long enough for a loaded machine not to cause elections,
// and short enough for MinLeaseTTL.
const (
	heartbeat = 50 * time.Millisecond
	election  = 500 * time.Millisecond
)

// An Option changes what Start starts.
type Option func(*options)

type options struct {
	nodes int
	quota int64
}

// WithNodes sets the number of members, 1 or 3. Default 1.
func WithNodes(n int) Option { return func(o *options) { o.nodes = n } }

// WithQuota caps the database of every member, in bytes. Default: etcd's 2 GiB.
func WithQuota(bytes int64) Option { return func(o *options) { o.quota = bytes } }

// A Cluster is a running etcd. Members are numbered from 0. Methods are to be
// called from the test's goroutine; they fail the test that the cluster was
// started for, or the one that they are given.
type Cluster struct {
	t     testing.TB
	nodes []*node
}

// Start runs an etcd that ends with the test, data included. It returns when
// the etcd serves.
func Start(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	o := options{nodes: 1}
	for _, opt := range opts {
		opt(&o)
	}
	if o.nodes != 1 && o.nodes != 3 {
		t.Fatalf("etcdtest: %d nodes; it is 1 or 3", o.nodes)
	}
	c := &Cluster{t: t}
	t.Cleanup(c.close)
	for i := range o.nodes {
		n, err := newNode(o, i, t.TempDir())
		if err != nil {
			t.Fatalf("etcdtest: %v", err)
		}
		c.nodes = append(c.nodes, n)
	}
	if o.nodes > 1 {
		members := make(map[string]string)
		for _, n := range c.nodes {
			members[n.member.Name] = n.peers.Addr()
		}
		for _, n := range c.nodes {
			n.member.Cluster = members
		}
	}
	c.StartAll()
	return c
}

// Endpoints returns the addresses of all members, as host:port. They stay the
// same whatever is done to the members.
func (c *Cluster) Endpoints() []string {
	endpoints := make([]string, len(c.nodes))
	for i := range c.nodes {
		endpoints[i] = c.Endpoint(i)
	}
	return endpoints
}

// Endpoint returns the address of one member, as host:port.
func (c *Cluster) Endpoint(i int) string { return c.nodes[i].clients.Addr() }

// Start starts a stopped member on its data, with its links whole. It returns
// when the member serves, so most members must be up: to start several, use
// StartAll.
func (c *Cluster) Start(i int) {
	c.t.Helper()
	c.start(c.nodes[i])
}

// StartAll starts all stopped members at once, as Start does.
func (c *Cluster) StartAll() {
	c.t.Helper()
	c.start(c.nodes...)
}

func (c *Cluster) start(nodes ...*node) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := each(nodes, func(n *node) error { return n.start(ctx) }); err != nil {
		c.t.Fatalf("etcdtest: %v", err)
	}
}

// Stop stops a member, if it is up, and drops its clients. Its data and its endpoint
// stay; connections are refused meanwhile. A leader hands its leadership over first if it
// can, as in an orderly shutdown of etcd.
func (c *Cluster) Stop(i int) {
	c.t.Helper()
	if err := c.nodes[i].stop(); err != nil {
		c.t.Fatalf("etcdtest: %v", err)
	}
}

// Wipe stops the only member, deletes its data, and starts it again.
func (c *Cluster) Wipe() {
	c.t.Helper()
	c.Stop(0)
	if err := os.RemoveAll(c.nodes[0].cfg.DataDir); err != nil {
		c.t.Fatalf("etcdtest: %v", err)
	}
	c.Start(0)
}

// Backup copies the data of the only member, which is down meanwhile. It returns a
// function that replaces the data that the member has then by the copy.
func (c *Cluster) Backup() (restore func()) {
	c.t.Helper()
	dir, kept := c.nodes[0].cfg.DataDir, c.nodes[0].cfg.DataDir+".backup"
	replace := func(to, from string) {
		c.t.Helper()
		c.Stop(0)
		if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
			c.t.Fatalf("etcdtest: %v", err)
		}
		c.Start(0)
	}
	replace(kept, dir)
	return func() { replace(dir, kept) }
}

// StopAll stops all members at once. No leadership is handed over.
func (c *Cluster) StopAll() {
	c.t.Helper()
	if err := each(c.nodes, (*node).halt); err != nil {
		c.t.Fatalf("etcdtest: %v", err)
	}
}

// Leader returns the member that leads, among those that are up and not
// paused, or -1 while there is none.
func (c *Cluster) Leader() int { return slices.IndexFunc(c.nodes, (*node).leads) }

// WaitLeader returns the member that leads, as soon as there is one.
func (c *Cluster) WaitLeader(t testing.TB) int {
	t.Helper()
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		if i := c.Leader(); i >= 0 {
			return i
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatalf("etcdtest: no leader within %v", startTimeout)
		}
	}
}

// Pause makes a member hang for everyone else: connections of clients and
// peers stay open, and new ones are accepted, but no byte passes, and raft
// messages in both directions are lost. The member itself runs on: a lone one
// still expires leases, one of three loses its leadership.
func (c *Cluster) Pause(i int) { c.nodes[i].pause() }

// Resume ends Pause. What clients had sent arrives now.
func (c *Cluster) Resume(i int) { c.nodes[i].resume() }

// CutClients resets all client connections of a member and refuses new ones.
// Its peers are not affected.
func (c *Cluster) CutClients(i int) { c.nodes[i].clients.Set(netfault.Cut) }

// LoseBusiest loses all further packets of one connection, without a reset: that of
// clients to member i which has carried most. Other connections work, and so do new ones.
func (c *Cluster) LoseBusiest(i int) { c.nodes[i].clients.LoseBusiest() }

// HealClients ends CutClients.
func (c *Cluster) HealClients(i int) { c.nodes[i].clients.Heal() }

func (c *Cluster) close() {
	if err := each(c.nodes, (*node).halt); err != nil {
		c.t.Errorf("etcdtest: %v", err)
	}
	for _, n := range c.nodes {
		n.clients.Close()
		n.peers.Close()
	}
}

// each runs f on all nodes at once.
func each(nodes []*node, f func(*node) error) error {
	errs := make([]error, len(nodes))
	var running sync.WaitGroup
	for i, n := range nodes {
		running.Go(func() {
			if err := f(n); err != nil {
				errs[i] = fmt.Errorf("member %s: %w", n.member.Name, err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// A node is one member and its links. The links outlive the server.
type node struct {
	cfg     etcdserver.Settings
	member  etcdmember.Peers
	clients *netfault.Proxy
	peers   *netfault.Proxy // unused by a lone member

	mu     sync.Mutex
	server *etcdserver.Server // nil while it is down
	paused bool
}

func newNode(o options, i int, dir string) (*node, error) {
	clients, err := netfault.Listen("")
	if err != nil {
		return nil, err
	}
	peers, err := netfault.Listen("")
	if err != nil {
		clients.Close()
		return nil, err
	}
	n := &node{clients: clients, peers: peers}
	n.member.Name = fmt.Sprintf("etcd%d", i)
	n.cfg = etcdserver.Settings{
		DataDir:    filepath.Join(dir, "etcd"),
		QuotaBytes: o.quota,
		Logger:     zerolog.Nop(),
		Configure: func(c *embed.Config) {
			c.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: clients.Addr()}}
			c.UnsafeNoFsync = true
			c.BcryptCost = 4 // the lowest, as passwords of tests guard nothing
		},
	}
	if o.nodes > 1 {
		n.member.Listen = "127.0.0.1:0"
		n.member.Heartbeat, n.member.Election = heartbeat, election
	}
	return n, nil
}

func (n *node) start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server != nil {
		return nil
	}
	server, err := etcdmember.Launch(n.cfg, n.member)
	if err != nil {
		return err
	}
	n.healLocked()
	n.clients.SetTarget(server.ClientAddr)
	n.peers.SetTarget(etcdmember.Addr(server)) // others need it before any of them is ready
	if err := server.WaitReady(ctx); err != nil {
		return errors.Join(err, server.Close())
	}
	n.server = server
	return nil
}

func (n *node) stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server == nil {
		return nil
	}
	n.clients.SetTarget("")
	n.peers.SetTarget("")
	err := n.server.Close()
	n.server = nil
	return err
}

// halt is stop without handing over leadership, which takes several seconds
// when the others are stopping too.
func (n *node) halt() error {
	n.mu.Lock()
	if n.server != nil {
		n.server.Embedded().Server.HardStop()
	}
	n.mu.Unlock()
	return n.stop()
}

func (n *node) pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = true
	n.clients.Set(netfault.Stall)
	n.peers.Set(netfault.Stall)
	if n.server != nil {
		// The links stall what others dial; this drops what passes over the
		// connections that the member itself has dialled.
		n.server.Embedded().Server.PauseSending()
	}
}

func (n *node) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server != nil {
		n.server.Embedded().Server.ResumeSending()
	}
	n.healLocked()
}

func (n *node) healLocked() {
	n.paused = false
	n.clients.Heal()
	n.peers.Heal()
}

func (n *node) leads() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server == nil || n.paused {
		return false
	}
	etcd := n.server.Embedded().Server
	return etcd.Leader() == etcd.MemberID()
}
