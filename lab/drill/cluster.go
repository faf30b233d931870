package drill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/lab/rig"
	"github.com/understudy-store/understudy/promote"
)

const (
	clusterID = "drill"
	prefix    = "/understudy"
)

// A shape says what a cluster consists of.
type shape struct {
	etcd  int      // members: 1 (also for 0) or 3
	nodes int      // the first one a master; default 2
	lone  bool     // one master without HA
	args  []string // of all nodes, besides the usual ones
	// nodeArgs are those of the i-th node; may be nil.
	nodeArgs func(i int) []string
	// sessionTTL, eventsTTL and leaseTTL default to the options' and to 1 s.
	sessionTTL, eventsTTL, leaseTTL time.Duration
	keepHistory                     bool // nobody compacts etcd
}

// A cluster is etcd members and nodes, as child processes.
type cluster struct {
	shape
	dir     string
	members []*member
	nodes   []*node
	etcd    *clientv3.Client // past all faults
	layout  journal.Layout
	way     rig.Way         // of the recorded clients
	entry   *netfault.Proxy // with way.Forward what they know, else nil
	behind  *node           // where the entry leads to
	program string          // executable of the nodes
	broken  bool            // a safeguard is missing in it
}

// A node is one of the cluster's, over all its lives.
type node struct {
	*rig.Node // its present life, or its last one
	name      string
	front     *netfault.Proxy   // its clients and peers reach it here
	etcd      []*netfault.Proxy // its ways to the members
	paused    bool              // by a signal: it answers nobody
	crashed   bool              // it had ended by itself when it was to be killed
}

// start starts a cluster and waits until all standbys could take over.
func start(ctx context.Context, dir string, s shape, o Options) (c *cluster, err error) {
	c = &cluster{shape: s, dir: dir, layout: journal.NewLayout(prefix, clusterID), way: o.Way, program: o.program, broken: o.Break != ""}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c, err
	}
	if !s.lone {
		if err := c.makeMembers(max(1, s.etcd)); err != nil {
			return c, err
		}
		if err := c.startMembers(ctx, c.members...); err != nil {
			return c, err
		}
		if c.etcd, err = etcdclient.New(c.endpoints()); err != nil {
			return c, err
		}
	}
	for i := range s.nodes {
		role := config.Standby
		if i == 0 {
			role = config.Primary
		}
		n, err := c.newNode(fmt.Sprintf("node-%d", i+1))
		if err != nil {
			return c, err
		}
		if err := c.startNode(ctx, n, role); err != nil {
			return c, err
		}
		if i == 0 {
			if _, err := n.Until(ctx, "serves", rig.Serves); err != nil {
				return c, err
			}
		}
	}
	if err := c.settled(ctx); err != nil || !c.way.Forward {
		return c, err
	}
	if c.entry, err = netfault.Listen(""); err != nil {
		return c, err
	}
	c.enter(c.nodes[len(c.nodes)-1])
	return c, nil
}

// enter has clients who know the entry alone come in through a node, as a load
// balancer would that finds the one before dead.
func (c *cluster) enter(n *node) {
	if c.entry == nil || c.behind == n {
		return
	}
	c.behind = n
	c.entry.SetTarget(n.front.Addr())
	c.entry.Set(netfault.Cut)
	c.entry.Heal()
}

// avoid has them come in through another node than one that goes.
func (c *cluster) avoid(n *node) {
	if c.behind != n {
		return
	}
	if others := c.standbys(n); len(others) > 0 {
		c.enter(others[0])
	}
}

// newNode makes a node's proxies.
func (c *cluster) newNode(name string) (*node, error) {
	n := &node{name: name}
	c.nodes = append(c.nodes, n)
	var err error
	if n.front, err = netfault.Listen(""); err != nil {
		return nil, err
	}
	for _, m := range c.members {
		target := ""
		if m.process != nil {
			target = m.process.Etcd[0]
		}
		p, err := netfault.Listen(target)
		if err != nil {
			return nil, err
		}
		n.etcd = append(n.etcd, p)
	}
	return n, nil
}

// startTries is how often the start of a process is tried: another one may take
// the port that was free.
const startTries = 3

// startNode starts a node that does not run. A restarted one joins as a
// standby, whatever its role.
func (c *cluster) startNode(ctx context.Context, n *node, role promote.Role, more ...string) error {
	if n.Node != nil {
		n.Close()
	}
	n.paused = false
	var err error
	for range startTries {
		var address string
		if address, err = freePort(); err != nil {
			return err
		}
		n.front.SetTarget(address)
		if n.Node, err = rig.StartNodeOf(ctx, c.program, c.dir, n.name, role, address, append(c.arguments(n, address), more...)...); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

func (c *cluster) arguments(n *node, address string) []string {
	_, port, _ := net.SplitHostPort(address)
	args := []string{
		"--rpc_address=127.0.0.1", "--rpc_port=" + port, "--metrics_port=0", "--node-id=" + n.name,
		"--advertise-address=" + n.front.Addr(), "--cluster_id=" + clusterID, "--log-format=json",
		"--default-kv-lease-ttl=" + c.leaseTTL.String(), "--lease-critical-window=" + min(c.leaseTTL/2, time.Second).String(),
		"--data-dir=" + filepath.Join(c.dir, n.name, "data"),
	}
	if c.lone {
		args = append(args, "--enable_ha=false")
	} else {
		var ways []string
		for _, p := range n.etcd {
			ways = append(ways, p.Addr())
		}
		compact := "on"
		if c.keepHistory {
			compact = "off"
		}
		args = append(args, "--etcd_endpoints="+strings.Join(ways, ","), "--etcd_prefix="+prefix, "--journal-compact="+compact,
			"--session-ttl="+c.sessionTTL.String(), "--events-ttl="+c.eventsTTL.String())
	}
	args = append(args, c.way.Args()...)
	args = append(args, c.args...)
	if c.nodeArgs != nil {
		args = append(args, c.nodeArgs(slices.Index(c.nodes, n))...)
	}
	return args
}

// setEtcd breaks, or heals, a node's ways to etcd.
func (n *node) setEtcd(f netfault.Fault) {
	for _, p := range n.etcd {
		p.Set(f)
	}
}

// client says how recorded clients find the cluster.
func (c *cluster) client() client.Config {
	entry := ""
	if c.entry != nil {
		entry = c.entry.Addr()
	}
	cfg := c.way.Client(c.fronts(), entry, c.endpoints())
	cfg.ClusterID, cfg.EtcdPrefix = clusterID, prefix
	return cfg
}

// fronts are where clients and peers reach each node.
func (c *cluster) fronts() (list []string) {
	for _, n := range c.nodes {
		list = append(list, n.front.Addr())
	}
	return list
}

// Kill kills a node, and notes if it had ended by itself.
func (n *node) Kill() {
	n.crashed = n.crashed || !n.Alive()
	n.Node.Kill()
}

// pause stops a node's process, so that it hangs for everyone.
func (n *node) pause() error {
	n.paused = true
	return n.Signal(syscall.SIGSTOP)
}

// resume lets it go on.
func (n *node) resume() error {
	n.paused = false
	return n.Signal(syscall.SIGCONT)
}

// alive are the nodes that run and are not paused.
func (c *cluster) alive() (list []*node) {
	for _, n := range c.nodes {
		if n.Node != nil && n.Alive() && !n.paused {
			list = append(list, n)
		}
	}
	return list
}

const (
	// settleTimeout bounds how long a cluster may take to come to rest.
	settleTimeout = 90 * time.Second
	// brokenTimeout is that of one without a safeguard: it may never do.
	brokenTimeout = 15 * time.Second
)

// soon bounds how long something of a cluster is waited for.
func (c *cluster) soon(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	limit := settleTimeout
	if c.broken {
		limit = brokenTimeout
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("it is not so after %v that %s; see the logs", limit, what))
}

// primary waits until a node serves in a term after the given one, and returns
// it with that term. Each node is asked by itself: one that is cut off from etcd
// takes seconds to answer.
func (c *cluster) primary(ctx context.Context, after uint64) (*node, uint64, error) {
	ctx, cancel := c.soon(ctx, fmt.Sprintf("a node serves in a term after %d", after))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	type serving struct {
		node *node
		term uint64
	}
	nodes := c.alive()
	found := make(chan serving, len(nodes))
	for _, n := range nodes {
		asking.Go(func() {
			_ = poll(ctx, settleTimeout, "it serves", func(ctx context.Context) (bool, error) {
				s, err := n.Status(ctx)
				term := s.GetHeader().GetTerm()
				if err != nil || !rig.Serves(s) || term <= after {
					return false, nil
				}
				found <- serving{n, term}
				return true, nil
			})
		})
	}
	select {
	case f := <-found:
		return f.node, f.term, nil
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
}

// standbys are the nodes that run, but one.
func (c *cluster) standbys(primary *node) (list []*node) {
	for _, n := range c.alive() {
		if n != primary {
			list = append(list, n)
		}
	}
	return list
}

// settled waits until one node serves and all others that run could take over.
func (c *cluster) settled(ctx context.Context) error {
	primary, _, err := c.primary(ctx, 0)
	if err != nil {
		return err
	}
	ctx, cancel := c.soon(ctx, "all standbys could take over")
	defer cancel()
	for _, n := range c.standbys(primary) {
		if _, err := n.Until(ctx, "could take over", rig.Promotable); err != nil {
			return err
		}
	}
	return nil
}

// anyPromotable waits until some standby could take over.
func (c *cluster) anyPromotable(ctx context.Context, primary *node) (*node, error) {
	ctx, cancel := c.soon(ctx, "a standby could take over")
	defer cancel()
	standbys := c.standbys(primary)
	if len(standbys) == 0 {
		return nil, errors.New("there is no standby")
	}
	type found struct {
		node *node
		err  error
	}
	first := make(chan found, len(standbys))
	for _, n := range standbys {
		go func() {
			_, err := n.Until(ctx, "could take over", rig.Promotable)
			first <- found{n, err}
		}()
	}
	var err error
	for range standbys {
		f := <-first
		if f.err == nil {
			return f.node, nil
		}
		err = f.err
	}
	return nil, err
}

// stop ends all processes, at once: nothing of them is needed any more.
func (c *cluster) stop() {
	if c.etcd != nil {
		_ = c.etcd.Close()
	}
	for _, n := range c.nodes {
		if n.Node != nil {
			n.Close()
		}
		for _, p := range append(n.etcd, n.front) {
			if p != nil {
				p.Close()
			}
		}
	}
	if c.entry != nil {
		c.entry.Close()
	}
	for _, m := range c.members {
		if m.process != nil {
			m.process.Kill()
		}
		for _, p := range []*netfault.Proxy{m.clients, m.peers} {
			if p != nil {
				p.Close()
			}
		}
	}
}

// head reads the journal's end, past all faults.
func (c *cluster) head(ctx context.Context) (journal.Cursor, error) {
	return (&journal.Reader{Client: c.etcd, Layout: c.layout}).Head(ctx)
}

// compact cuts etcd's history at its end.
func (c *cluster) compact(ctx context.Context) error {
	at, err := c.head(ctx)
	if err != nil {
		return err
	}
	_, err = c.etcd.Compact(ctx, at.Revision, clientv3.WithCompactPhysical())
	return err
}
