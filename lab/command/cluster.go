package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/cluster"
)

const aboutCluster = `Starts an etcd of three members, a master and standbys as processes of their own on
free ports of this machine, and a Prometheus if the program prometheus is installed.
It prints their addresses when all standbys could take over, and stays until Ctrl-C.
Then all processes end, and what they have stored goes, unless --dir keeps it.

Kill processes as you like: each one that ends is named. They are not started
again. What stands after -- goes to the master and the standbys, such as
-- --client-ttl=2s.`

// alertsFile is the file of the alerts, relative to the root of a clone.
const alertsFile = "deploy/prometheus/alerts.yml"

type localOptions struct {
	members, standbys int
	dir               string
	prometheus        bool
	ownEtcd, witness  bool
	nodes             []string // flags of all nodes
}

// A local is a running cluster in the command's output.
type local struct {
	ClusterID  string         `json:"cluster_id"`
	Nodes      []localProcess `json:"nodes"` // the first is the primary
	Etcd       []localProcess `json:"etcd"`
	Prometheus string         `json:"prometheus,omitempty"`
	Dir        string         `json:"dir"`
}

// A localProcess has the addresses that it serves at.
type localProcess struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	RPC  string `json:"rpc,omitempty"`
	HTTP string `json:"http,omitempty"`
	Etcd string `json:"etcd,omitempty"`
}

func (g *globals) clusterCommand() *cobra.Command {
	o := localOptions{}
	cmd := &cobra.Command{
		Use:   "cluster [-- FLAGS OF NODES]",
		Short: "Run a cluster on this machine until Ctrl-C: etcd, a master, standbys, Prometheus",
		Long:  aboutCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && cmd.ArgsLenAtDash() != 0:
				return cli.Misusef("unexpected argument %q: flags of nodes stand after --", args[0])
			case o.members != 1 && o.members != 3 && o.members != 5:
				return cli.Misusef("--etcd-members is %d: it must be 1, 3 or 5", o.members)
			case o.standbys < 1 || o.standbys > 8:
				return cli.Misusef("--standbys is %d: it must be from 1 to 8", o.standbys)
			}
			if o.witness && !o.ownEtcd {
				return cli.Misusef("--witness needs --own-etcd: it is a member of the nodes' own etcd")
			}
			o.nodes = args
			return g.RunLong(cmd, func(ctx context.Context) error { return g.cluster(ctx, cmd, o) })
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.members, "etcd-members", 3, "members of etcd: 1, 3 or 5")
	f.BoolVar(&o.ownEtcd, "own-etcd", false, "the master and each standby run a member of etcd themselves; then --etcd-members does not count")
	f.BoolVar(&o.witness, "witness", false, "beside them a node with a member of etcd and no metadata; with --own-etcd")
	f.IntVar(&o.standbys, "standbys", 2, "standbys beside the master, from 1 to 8")
	f.StringVar(&o.dir, "dir", "", "folder in which to keep data and logs, in a new one for each run; none keeps nothing")
	f.BoolVar(&o.prometheus, "prometheus", true, "run Prometheus, if it is installed")
	return cmd
}

func (g *globals) cluster(ctx context.Context, cmd *cobra.Command, o localOptions) error {
	if o.dir != "" {
		if err := os.MkdirAll(o.dir, 0o755); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(o.dir, "understudy-cluster-*")
	if err != nil {
		return err
	}
	if o.dir == "" {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	names := []string{"master"}
	for i := range o.standbys {
		names = append(names, fmt.Sprintf("standby-%d", i+1))
	}
	if o.ownEtcd {
		o.members = len(names)
	}
	if o.witness {
		o.members++
	}
	cmd.PrintErrf("starting %d members of etcd, a master and %d standbys\n", o.members, o.standbys)
	c, err := cluster.Start(ctx, cluster.Config{Dir: dir, ID: "lab", Etcd: o.members, OwnEtcd: o.ownEtcd, Witness: o.witness, Names: names, Args: o.nodes})
	if err != nil {
		return err
	}
	defer c.Stop()
	l := describe(c)
	if exe, err := exec.LookPath("prometheus"); o.prometheus && err == nil {
		p, err := c.StartPrometheus(ctx, exe, alerts())
		if err != nil {
			return err
		}
		defer p.Stop()
		l.Prometheus = p.URL
	}
	if err := g.Print(cmd, l, func(w io.Writer) { l.print(w) }); err != nil {
		return err
	}
	stay(ctx, cmd, c)
	return nil
}

// alerts returns the file of our alerts if this runs in a clone.
func alerts() string {
	path, err := filepath.Abs(alertsFile)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

func describe(c *cluster.Cluster) local {
	l := local{ClusterID: c.ID, Dir: c.Dir}
	for _, n := range c.Nodes {
		l.Nodes = append(l.Nodes, localProcess{Name: n.Name, PID: n.PID, RPC: n.Addr(), HTTP: n.HTTP})
	}
	for i, m := range c.Members {
		l.Etcd = append(l.Etcd, localProcess{Name: m.Name, PID: m.PID(), Etcd: c.Endpoints()[i]})
	}
	return l
}

func (l local) print(w io.Writer) {
	t := cli.NewTable(w, "NAME", "PID", "CALLS", "HTTP")
	var addresses []string
	for _, n := range l.Nodes {
		t.Row(n.Name, fmt.Sprint(n.PID), n.RPC, "http://"+n.HTTP)
		addresses = append(addresses, n.RPC)
	}
	for _, m := range l.Etcd {
		t.Row(m.Name, fmt.Sprint(m.PID), m.Etcd, "-")
	}
	t.End()
	for _, n := range l.Nodes {
		fmt.Fprintf(w, "console: http://%s/  (%s)\n", n.HTTP, n.Name)
	}
	if l.Prometheus != "" {
		fmt.Fprintf(w, "Prometheus: %s\n", l.Prometheus)
	}
	fmt.Fprintf(w, "\nData and logs are under %s. For masterctl:\n\n  export UNDERSTUDY_CLUSTER_ID=%s UNDERSTUDY_ADDRESS=%s\n\nCtrl-C ends it all.\n",
		l.Dir, l.ClusterID, strings.Join(addresses, ","))
}

// stay waits until the context ends, and prints which processes end before.
func stay(ctx context.Context, cmd *cobra.Command, c *cluster.Cluster) {
	running := make(map[string]<-chan struct{})
	for _, n := range c.Nodes {
		running[n.Name] = n.Ended()
	}
	for _, m := range c.Members {
		running[m.Name] = m.Ended()
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		for name, ended := range running {
			select {
			case <-ended:
				cmd.PrintErrln(name + " has ended")
				delete(running, name)
			default:
			}
		}
	}
}
