package ctl

import (
	"strings"
	"syscall"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// While etcd stands still the primary serves until its failover time is over, and
// status says so.
func TestStatusWhileEtcdStandsStill(t *testing.T) {
	c := startCluster(t, "--session-ttl=20s", "--failover-after=20s")
	master, standby := c.pair()
	if err := c.etcd.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	o := run(t, "status", "-o", "json", "--etcd_endpoints", strings.Join(c.etcd.Etcd, ","), "--address", master.RPC+","+standby.RPC)
	s := clitest.Decode[statusResult](t, o.Want(t, cli.StatusFailed, "etcd does not answer"))
	if s.Leader == nil || s.Leader.NodeID != "a" || len(s.Nodes) != 2 || s.Nodes[0].Error+s.Nodes[1].Error != "" {
		t.Errorf("got %+v, want two nodes without an error, of which a leads", s)
	}
	_, of, o2 := diagnosed(t, "--address", master.RPC+","+standby.RPC) // it asks the etcd that the nodes use
	if etcd := of("etcd"); o2.Status != cli.StatusFailed || len(etcd) != 1 || etcd[0].Verdict != bad || !strings.Contains(etcd[0].Text, "does not answer") {
		t.Errorf("got %+v with status %d, want that etcd does not answer", etcd, o2.Status)
	}
	if strings.Contains(o.Out, "no standby could take over") {
		t.Errorf("it says what nobody knows:\n%s", o.Out)
	}
}
