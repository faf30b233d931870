package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/daemon"
	"github.com/understudy-store/understudy/internal/procs"
)

// Names of the hidden commands under which this program runs as a child.
const (
	etcdCommand    = "__etcd"
	masterCommand  = "__master"
	standbyCommand = "__standby"
)

// Children returns the hidden commands that Run starts as child processes.
func Children() []*cobra.Command {
	list := []*cobra.Command{
		EtcdCommand(etcdCommand),
		daemon.Command(masterCommand, config.Primary),
		daemon.Command(standbyCommand, config.Standby),
	}
	for _, c := range list {
		c.Hidden = true
		c.PreRun = func(*cobra.Command, []string) {
			procs.DieWithParent()
			forgetSettings()
		}
	}
	return list
}

// forgetSettings takes settings of nodes out of a child's environment: a demo
// is what its flags say, whatever the shell has set for other clusters.
func forgetSettings() {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, config.EnvPrefix) {
			_ = os.Unsetenv(name)
		}
	}
}

const clusterID = "demo"

// A pair is an etcd, a master and a standby, as child processes.
type pair struct {
	dir   string
	opts  Options
	etcd  *procs.Process
	nodes []*node
}

// A node is a master or standby process, and a way to ask it.
type node struct {
	*procs.Process
	conn  *grpc.ClientConn
	admin pb.AdminServiceClient
}

// startPair starts a fresh cluster in a folder of its own and waits until the
// standby could take over.
func startPair(ctx context.Context, dir string, opts Options) (p *pair, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p = &pair{dir: dir, opts: opts}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.etcd, err = procs.Start(ctx, dir, "etcd", etcdCommand, "--listen=127.0.0.1:0", "--data-dir="+filepath.Join(dir, "etcd", "data")); err != nil {
		return p, err
	}
	master, err := p.startNode(ctx, "master", masterCommand)
	if err != nil {
		return p, err
	}
	if err := master.until(ctx, "serves", func(s *pb.StatusResponse) bool { return s.GetNode().GetRole() == pb.Role_ROLE_PRIMARY }); err != nil {
		return p, err
	}
	standby, err := p.startNode(ctx, "standby", standbyCommand)
	if err != nil {
		return p, err
	}
	return p, standby.promotable(ctx)
}

func (p *pair) startNode(ctx context.Context, name, command string) (*node, error) {
	proc, err := procs.Start(ctx, p.dir, name, command,
		"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--node-id="+name, "--cluster_id="+clusterID,
		"--etcd_endpoints="+strings.Join(p.etcd.Etcd, ","), "--journal-compact=on", "--log-format=json",
		"--session-ttl="+p.opts.SessionTTL.String(), "--default-kv-lease-ttl="+p.opts.LeaseTTL.String(),
		"--lease-critical-window="+min(p.opts.LeaseTTL/2, time.Second).String(),
		"--data-dir="+filepath.Join(p.dir, name, "data"))
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(proc.RPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		proc.Kill()
		return nil, err
	}
	n := &node{Process: proc, conn: conn, admin: pb.NewAdminServiceClient(conn)}
	p.nodes = append(p.nodes, n)
	return n, nil
}

// addresses are those of all nodes that run.
func (p *pair) addresses() (list []string) {
	for _, n := range p.nodes {
		if n.Alive() {
			list = append(list, n.RPC)
		}
	}
	return list
}

// stop ends all processes, at once: nothing of them is needed any more.
func (p *pair) stop() {
	for _, n := range p.nodes {
		_ = n.conn.Close()
		n.Kill()
	}
	if p.etcd != nil {
		p.etcd.Kill()
	}
}

// nodeTimeout bounds how long a node may take to become what it should.
const nodeTimeout = 60 * time.Second

// until waits until a node's status is as wanted.
func (n *node) until(ctx context.Context, what string, cond func(*pb.StatusResponse) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nodeTimeout, fmt.Errorf("%s: it is not so after %v that it %s; see %s", n.Name, nodeTimeout, what, n.Log))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, err := n.admin.Status(ctx, &pb.StatusRequest{}); err == nil && cond(s) {
			return nil
		}
		if !n.Alive() {
			return fmt.Errorf("%s has ended; see %s", n.Name, n.Log)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (n *node) promotable(ctx context.Context) error {
	return n.until(ctx, "could take over", func(s *pb.StatusResponse) bool { return s.GetNode().GetPromotable() })
}

// sameDigest compares a follower's digest with the primary's at one sequence.
func sameDigest(ctx context.Context, primary, follower *node) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	a, err := primary.admin.Digest(ctx, &pb.DigestRequest{})
	if err != nil {
		return false, fmt.Errorf("digest of %s: %w", primary.Name, err)
	}
	b, err := follower.admin.Digest(ctx, &pb.DigestRequest{Sequence: a.GetSequence()})
	if err != nil {
		return false, fmt.Errorf("digest of %s: %w", follower.Name, err)
	}
	return a.GetDigest() == b.GetDigest(), nil
}
