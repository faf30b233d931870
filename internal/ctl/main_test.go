package ctl

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/lab/clitest"
	lab "github.com/understudy-store/understudy/lab/cluster"
)

// TestMain makes this binary a node or an etcd when it was started as one.
func TestMain(m *testing.M) {
	if status, child := lab.RunChild(); child {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}

// run runs masterctl in this process.
func run(t *testing.T, args ...string) clitest.Outcome {
	t.Helper()
	return clitest.Run(t, Command(), args...)
}

// A cluster is an etcd with nodes, all processes of their own.
type cluster struct {
	t     *testing.T
	dir   string
	flags []string // of all nodes
	etcd  *lab.Process
}

func startCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), flags: flags}
	c.etcd = c.start("etcd", "__etcd", "--listen=127.0.0.1:0", "--data-dir="+c.dir+"/etcd/data")
	return c
}

func (c *cluster) start(name string, args ...string) *lab.Process {
	c.t.Helper()
	p, err := lab.StartProcess(c.t.Context(), "", c.dir, name, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(p.Kill)
	return p
}

// node starts a node of the cluster: command is __master or __standby.
func (c *cluster) node(name, command string) *lab.Process {
	c.t.Helper()
	return c.start(name, append([]string{
		command, "--etcd_endpoints=" + strings.Join(c.etcd.Etcd, ","), "--session-ttl=2s", "--refound-wait=100ms", "--node-id=" + name,
		"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--journal-compact=on", "--log-format=json",
	}, c.flags...)...)
}

// pair starts a master and a standby, and waits until that could take over.
func (c *cluster) pair() (master, standby *lab.Process) {
	c.t.Helper()
	master = c.node("a", "__master")
	c.serves("a", master)
	standby = c.node("b", "__standby")
	clitest.Eventually(c.t, "b could take over", func() bool {
		_, b := statusBy(c.t, "b", "--address", master.RPC)
		return b.Promotable
	})
	return master, standby
}

// serves waits until a node serves.
func (c *cluster) serves(id string, at *lab.Process) {
	c.t.Helper()
	clitest.Eventually(c.t, id+" serves", func() bool {
		s, _ := statusBy(c.t, id, "--address", at.RPC)
		return s.Leader != nil && s.Leader.NodeID == id
	})
}

// lone starts a master without a cluster.
func lone(t *testing.T, name string, args ...string) *lab.Process {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	return c.start(name, append([]string{
		"__master", "--enable_ha=false", "--node-id=" + name,
		"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--log-format=json",
	}, args...)...)
}

// statusBy returns the status, and in it the one node of an id.
func statusBy(t *testing.T, id string, where ...string) (s statusResult, n nodeResult) {
	t.Helper()
	o := run(t, append([]string{"status", "-o", "json"}, where...)...)
	if o.Out == "" {
		return s, n
	}
	s = clitest.Decode[statusResult](t, o)
	for _, node := range s.Nodes {
		if node.NodeID == id {
			n = node
		}
	}
	return s, n
}

// mount mounts a segment and returns when that is done.
func mount(t *testing.T, args ...string) *clitest.Background {
	t.Helper()
	b := clitest.Start(t, Command(), append([]string{"segments", "mount"}, args...)...)
	clitest.Eventually(t, "it is mounted", func() bool {
		if b.Ended() {
			t.Fatalf("segments mount %q: got it ended with %s, want it to hold the segment", args, b.Err.String())
		}
		return strings.Contains(b.Err.String(), "stays mounted")
	})
	return b
}
