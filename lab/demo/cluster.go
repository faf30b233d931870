package demo

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/lab/procs"
	"github.com/understudy-store/understudy/lab/rig"
	"github.com/understudy-store/understudy/promote"
)

const clusterID = "demo"

// A pair is an etcd, a master and a standby, as child processes.
type pair struct {
	dir   string
	opts  Options
	etcd  *procs.Process
	nodes []*rig.Node
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
	if p.etcd, err = rig.StartEtcd(ctx, dir, "etcd", "--listen=127.0.0.1:0", "--data-dir="+filepath.Join(dir, "etcd", "data")); err != nil {
		return p, err
	}
	master, err := p.startNode(ctx, "master", config.Primary)
	if err != nil {
		return p, err
	}
	if _, err := master.Until(ctx, "serves", rig.Serves); err != nil {
		return p, err
	}
	standby, err := p.startNode(ctx, "standby", config.Standby)
	if err != nil {
		return p, err
	}
	if err := promotable(ctx, standby); err != nil {
		return p, err
	}
	// A handover goes by what the standby has registered, which is a little old.
	_, err = master.Until(ctx, "knows that the standby could take over", func(s *pb.StatusResponse) bool {
		return slices.ContainsFunc(s.GetNodes(), func(n *pb.Node) bool { return n.GetNodeId() == standby.NodeID && n.GetPromotable() })
	})
	return p, err
}

func (p *pair) startNode(ctx context.Context, name string, role promote.Role) (*rig.Node, error) {
	args := append(p.opts.Way.Args(),
		"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--node-id="+name, "--cluster_id="+clusterID,
		"--etcd_endpoints="+strings.Join(p.etcd.Etcd, ","), "--journal-compact=on", "--log-format=json",
		"--session-ttl="+p.opts.SessionTTL.String(), "--default-kv-lease-ttl="+p.opts.LeaseTTL.String(),
		"--lease-critical-window="+min(p.opts.LeaseTTL/2, time.Second).String(),
		"--data-dir="+filepath.Join(p.dir, name, "data"))
	n, err := rig.StartNode(ctx, p.dir, name, role, "", args...)
	if err != nil {
		return nil, err
	}
	p.nodes = append(p.nodes, n)
	return n, nil
}

// standby is the node that takes over.
func (p *pair) standby() *rig.Node { return p.nodes[1] }

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
		n.Close()
	}
	if p.etcd != nil {
		p.etcd.Kill()
	}
}

func promotable(ctx context.Context, n *rig.Node) error {
	_, err := n.Until(ctx, "could take over", rig.Promotable)
	return err
}
