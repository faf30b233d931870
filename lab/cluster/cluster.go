package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/netfault"
	"github.com/understudy-store/understudy/promote"
)

// A Config says what a cluster consists of. A zero field means no such part, or the nodes'
// default.
type Config struct {
	Dir      string   // for data and logs, a folder for each process
	ID       string   // of the cluster
	Etcd     int      // members; none for a lone master without HA
	Names    []string // of nodes: the first is a master, the others are standbys
	Embedded bool     // the first node runs etcd; with Etcd 1
	OwnEtcd  bool     // each node runs a member of etcd; in place of Etcd
	Witness  bool     // besides the nodes, a witness, which holds no metadata; with OwnEtcd
	Proxies  bool     // between each two processes, and in front of nodes
	Access   Access   // of clients
	Program  string   // executable of the nodes; empty for this one
	Old      string   // executable of the nodes' first start, of an older release; empty for Program
	Args     []string // of all nodes, besides the usual ones
	// NodeArgs are those of the i-th node.
	NodeArgs                                       func(i int) []string
	SessionTTL, FailoverAfter, EventsTTL, LeaseTTL time.Duration
	KeepHistory                                    bool          // nobody compacts etcd
	Patience                                       time.Duration // bounds each wait for the cluster; default 90 s
}

// A Cluster is etcd members and nodes, as child processes.
type Cluster struct {
	Config
	Members []*Member
	Nodes   []*Node
	Client  *clientv3.Client // not affected by faults; nil without etcd
	Layout  journal.Layout
	entry   *netfault.Proxy // with Access.Forward the address that clients know, else nil
	behind  *Node           // the node that the entry leads to

	embedded string // where the etcd of a node listens
}

// Start starts a cluster and waits until all standbys could take over.
func Start(ctx context.Context, cfg Config) (c *Cluster, err error) {
	c = &Cluster{Config: cfg, Layout: journal.NewLayout(pb.DefaultEtcdPrefix, cfg.ID)}
	c.Patience = cmp.Or(c.Patience, patience)
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.Dir, err = filepath.Abs(c.Dir); err == nil { // each process works in a folder of its own
		err = os.MkdirAll(c.Dir, 0o755)
	}
	if err != nil {
		return c, err
	}
	if c.OwnEtcd {
		c.Etcd = len(c.Names)
	}
	if c.Witness {
		c.Etcd++
	}
	if err := c.startEtcd(ctx); err != nil {
		return c, err
	}
	for i, name := range c.Names {
		role := promote.Standby
		if i == 0 {
			role = promote.Primary
		}
		n, err := c.Add(name)
		if err == nil {
			err = c.StartNode(ctx, n, role)
		}
		if err == nil && i == 0 {
			_, err = n.UntilServes(ctx)
		}
		if err != nil {
			return c, err
		}
	}
	if c.Witness {
		if err := c.StartWitness(ctx); err != nil {
			return c, err
		}
	}
	if err := c.Settled(ctx); err != nil || !c.Access.Forward || !c.Proxies {
		return c, err
	}
	if c.entry, err = netfault.Listen(""); err == nil {
		c.Enter(c.Nodes[len(c.Nodes)-1])
	}
	return c, err
}

func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	if c.Etcd == 0 {
		return nil
	}
	if err := c.makeMembers(); err != nil {
		return err
	}
	switch {
	case c.OwnEtcd: // the nodes start them
	case c.Embedded:
		// A fixed address: nodes must not take a new etcd for one that no other node can know.
		err = onFreePort(ctx, func(address string) error {
			c.embedded, c.Members[0].listens = address, address
			return nil
		})
	default:
		err = c.StartMembers(ctx, c.Members...)
	}
	if err != nil {
		return err
	}
	c.Client, err = etcdclient.New(c.Endpoints())
	return err
}

// Stop ends all processes, at once: nothing of them is needed any more.
func (c *Cluster) Stop() {
	if c.Client != nil {
		_ = c.Client.Close()
	}
	for _, n := range c.Nodes {
		n.close()
	}
	if c.entry != nil {
		c.entry.Close()
	}
	for _, m := range c.Members {
		m.close()
	}
}

// Add adds a node, which does not run yet.
func (c *Cluster) Add(name string) (n *Node, err error) {
	n = &Node{Name: name, Program: c.Old, patience: c.Patience}
	c.Nodes = append(c.Nodes, n)
	if !c.Proxies {
		return n, nil
	}
	if n.Front, err = netfault.Listen(""); err != nil {
		return nil, err
	}
	if c.OwnEtcd {
		return n, nil
	}
	for _, m := range c.Members {
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

// StartNode starts a node, for the first time or again. For a restarted node the role does
// not matter: it joins as a standby.
func (c *Cluster) StartNode(ctx context.Context, n *Node, role promote.Role, more ...string) error {
	if n.Process != nil {
		_ = n.Conn.Close()
		if n.Alive() {
			n.Kill()
		}
	}
	n.paused = false
	command := masterCommand
	if role == promote.Standby {
		command = standbyCommand
	}
	return onFreePort(ctx, func(address string) error {
		n.listens = address
		if n.Front != nil {
			n.Front.SetTarget(address)
		}
		p, err := StartProcess(ctx, cmp.Or(n.Program, c.Program), c.Dir, n.Name, slices.Concat([]string{command}, c.arguments(n, role), more)...)
		if err != nil {
			return err
		}
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			p.Kill()
			return err
		}
		n.Process, n.Conn, n.Admin = p, conn, pb.NewAdminServiceClient(conn)
		if m := c.memberIn(n); m != nil {
			m.process = p
			c.leadToMembers()
		}
		return nil
	})
}

// memberIn returns the member of etcd that a node runs; nil for none.
func (c *Cluster) memberIn(n *Node) *Member {
	i := slices.Index(c.Nodes, n)
	if c.Embedded && i == 0 || c.OwnEtcd && i < len(c.Names) {
		return c.Members[i]
	}
	return nil
}

// NodeOf returns the node that runs a member of etcd, where each runs one; nil for that of
// the witness.
func (c *Cluster) NodeOf(m *Member) *Node {
	if i := slices.Index(c.Members, m); i < len(c.Names) {
		return c.Nodes[i]
	}
	return nil
}

// ForgetState deletes the state files of a node that does not run.
func (c *Cluster) ForgetState(n *Node) error {
	return os.RemoveAll(filepath.Join(c.Dir, n.Name, "data", "state"))
}

func (c *Cluster) arguments(n *Node, role promote.Role) []string {
	host, port, _ := net.SplitHostPort(n.listens)
	args := []string{
		"--rpc_address=" + host, "--rpc_port=" + port, "--metrics_port=0", "--advertise-address=" + n.Addr(),
		"--node-id=" + n.Name, "--cluster_id=" + c.ID, "--log-format=json", "--data-dir=" + filepath.Join(c.Dir, n.Name, "data"),
	}
	if c.LeaseTTL > 0 {
		args = append(args, "--default-kv-lease-ttl="+c.LeaseTTL.String(), "--lease-critical-window="+min(c.LeaseTTL/2, time.Second).String())
	}
	if c.Etcd == 0 {
		args = append(args, "--enable_ha=false")
	} else {
		args = append(args, c.etcdArguments(n, role)...)
	}
	if c.Access.Forward {
		args = append(args, "--forward")
	}
	if c.Access.Generation != "" {
		args = append(args, "--mooncake-generation="+c.Access.Generation)
	}
	args = append(args, c.Args...)
	if c.NodeArgs != nil {
		args = append(args, c.NodeArgs(slices.Index(c.Nodes, n))...)
	}
	return args
}

func (c *Cluster) etcdArguments(n *Node, role promote.Role) []string {
	etcd, compact := c.Endpoints(), "on"
	if c.Proxies {
		etcd = etcd[:0]
		for _, p := range n.etcd {
			etcd = append(etcd, p.Addr())
		}
	}
	if c.KeepHistory {
		compact = "off"
	}
	args := []string{"--etcd_endpoints=" + strings.Join(etcd, ","), "--journal-compact=" + compact}
	switch m := c.memberIn(n); {
	case c.OwnEtcd:
		args[0] = "--etcd-listen=" + m.listens
		args = append(args, "--etcd-peer-listen="+m.peersAt, c.joining(n, role))
	case m != nil:
		args[0] = "--etcd-listen=" + c.embedded
	}
	if c.SessionTTL > 0 {
		args = append(args, "--session-ttl="+c.SessionTTL.String())
	}
	if n.Program == "" {
		args = append(args, "--refound-wait=1s")
	}
	if c.FailoverAfter > 0 && n.Program == "" {
		args = append(args, "--failover-after="+c.FailoverAfter.String())
	}
	if c.EventsTTL > 0 {
		args = append(args, "--events-ttl="+c.EventsTTL.String())
	}
	return args
}

// joining returns the flag with which a node founds etcd, or joins it. The first node founds
// it.
func (c *Cluster) joining(n *Node, role promote.Role) string {
	if n == c.Nodes[0] && role == promote.Primary {
		return "--cluster-init"
	}
	var others []string
	for _, other := range c.Nodes {
		if other != n {
			others = append(others, other.Addr())
		}
	}
	return "--join=" + strings.Join(others, ",")
}

// Enter makes the entry lead to a node, as a load balancer would after it finds that the
// earlier one is dead.
func (c *Cluster) Enter(n *Node) {
	if c.entry == nil || c.behind == n {
		return
	}
	c.behind = n
	c.entry.SetTarget(n.Addr())
	c.entry.Set(netfault.Cut)
	c.entry.Heal()
}

// Avoid makes the entry lead to another node if it leads to n, which is about to go.
func (c *Cluster) Avoid(n *Node) {
	if c.behind != n {
		return
	}
	if others := c.Standbys(n); len(others) > 0 {
		c.Enter(others[0])
	}
}

// ClientConfig says how clients find the cluster. With Access.Forward they know
// the entry, or without proxies the last node.
func (c *Cluster) ClientConfig() client.Config {
	entry := c.Nodes[len(c.Nodes)-1].Addr()
	if c.entry != nil {
		entry = c.entry.Addr()
	}
	cfg := c.Access.client(c.Addrs(), entry, c.Endpoints())
	cfg.ClusterID = c.ID
	return cfg
}

// Addrs returns the addresses at which clients and peers reach the nodes.
func (c *Cluster) Addrs() (list []string) {
	for _, n := range c.Nodes {
		list = append(list, n.Addr())
	}
	return list
}

// Alive returns the nodes that run and are not paused.
func (c *Cluster) Alive() (list []*Node) {
	for _, n := range c.Nodes {
		if n.Alive() && !n.paused {
			list = append(list, n)
		}
	}
	return list
}

// Standbys returns the nodes that run, except the primary.
func (c *Cluster) Standbys(primary *Node) []*Node {
	return slices.DeleteFunc(c.Alive(), func(n *Node) bool { return n == primary })
}

// first waits until wanted returns true for the status of one of some nodes. It asks the
// nodes in parallel, since a node that is cut off from etcd takes seconds to answer.
func (c *Cluster) first(ctx context.Context, nodes []*Node, what string, wanted func(*pb.StatusResponse) bool) (*Node, *pb.StatusResponse, error) {
	type answer struct {
		node   *Node
		status *pb.StatusResponse
		err    error
	}
	answers := make(chan answer, len(nodes))
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithTimeoutCause(ctx, c.Patience, fmt.Errorf("it is not so after %v that a node %s", c.Patience, what))
	defer cancel()
	for _, n := range nodes {
		asking.Go(func() {
			s, err := n.Until(ctx, what, wanted)
			answers <- answer{n, s, err}
		})
	}
	err := errors.New("no node runs that could be one that " + what)
	for range nodes {
		a := <-answers
		if a.err == nil {
			return a.node, a.status, nil
		}
		err = a.err
	}
	return nil, nil, err
}

// Primary waits until a node serves in a term after the given one, and returns
// it with that term.
func (c *Cluster) Primary(ctx context.Context, after uint64) (*Node, uint64, error) {
	n, s, err := c.first(ctx, c.Alive(), fmt.Sprintf("serves in a term after %d", after), func(s *pb.StatusResponse) bool {
		return Serves(s) && s.GetHeader().GetTerm() > after
	})
	return n, s.GetHeader().GetTerm(), err
}

// AnyPromotable waits until some standby could take over.
func (c *Cluster) AnyPromotable(ctx context.Context, primary *Node) (*Node, error) {
	n, _, err := c.first(ctx, c.Standbys(primary), "could take over", Promotable)
	return n, err
}

// Settled waits until one node serves and all others that run could take over.
func (c *Cluster) Settled(ctx context.Context) error {
	primary, _, err := c.Primary(ctx, 0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Patience, fmt.Errorf("it is not so after %v that all standbys could take over", c.Patience))
	defer cancel()
	for _, n := range c.Standbys(primary) {
		if err := n.UntilPromotable(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Head reads the journal's head.
func (c *Cluster) Head(ctx context.Context) (journal.Cursor, error) {
	return (&journal.Reader{Client: c.Client, Layout: c.Layout}).Head(ctx)
}

// Compact compacts etcd's history up to the journal's head.
func (c *Cluster) Compact(ctx context.Context) error {
	at, err := c.Head(ctx)
	if err != nil {
		return err
	}
	_, err = c.Client.Compact(ctx, at.Revision, clientv3.WithCompactPhysical())
	return err
}
