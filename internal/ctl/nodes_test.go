package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/journal"
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
	for _, check := range []string{"etcd version", "etcd alarms", "etcd latency", "keepalives"} {
		if list := of(check); len(list) != 1 || list[0].Verdict != skips || !strings.HasPrefix(list[0].Text, "not checked: no member of etcd answers masterctl") {
			t.Errorf("doctor on %s: got %+v, want it to say that this was not checked", check, list)
		}
	}
	if strings.Contains(o.Out, "no standby could take over") {
		t.Errorf("status while etcd stands still: got\n%s\nwant no word on standbys: nobody knows of them", o.Out)
	}
}

// A node answers at the address that doctor was given, but not at the one that it advertises,
// where clients look for it.
func TestDoctorTriesAdvertisedAddresses(t *testing.T) {
	at, dead := deadAddress(t), deadAddress(t)
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	n := lone(t, "a", "--rpc_port="+port, "--advertise-address="+dead)
	var of func(check string) []finding
	var o clitest.Outcome
	clitest.Eventually(t, "it serves", func() bool {
		var d diagnosis
		d, of, o = diagnosed(t, "--address", at)
		return d.Serves
	})
	for check, text := range map[string]string{
		"nodes":   "a answers at " + at + ", but not at " + dead + ", which it advertises to clients and other nodes: connection refused",
		"primary": "a serves in term 1, but not at " + dead + ", where clients look for it",
	} {
		if list := of(check); len(list) != 1 || list[0].Verdict != bad || list[0].Text != text || list[0].Help == "" {
			t.Errorf("doctor says of %s: %+v, want %q", check, list, text)
		}
	}
	if o.Status != cli.StatusFailed {
		t.Errorf("doctor ends with %d, want %d", o.Status, cli.StatusFailed)
	}
	n.Kill()
	at = lone(t, "a").RPC
	clitest.Eventually(t, "one that advertises rightly serves", func() bool {
		d, of, _ := diagnosed(t, "--address", at)
		return d.Serves && len(of("nodes")) == 1 && of("nodes")[0].Text == "1 of 1 answer at the addresses that they advertise"
	})
}

// A primary that is not reached where it advertises to be is named, with what to look at.
func TestStatusNamesASilentPrimary(t *testing.T) {
	dead := deadAddress(t)
	all := nodes{{id: "m", address: dead, err: errors.New("connection refused")}, {id: "s", address: "s:1", status: &pb.StatusResponse{
		Node: &pb.Node{NodeId: "s", Role: pb.Role_ROLE_STANDBY, Promotable: true}, Journal: &pb.JournalStatus{}, LeaderNodeId: "m", LeaderAddress: dead,
	}}}
	s := statusOf("c", all)
	var out strings.Builder
	statusTable(&out, &s)
	for _, want := range []string{"why, says s: m is the primary, as far as is known, and does not answer at " + dead, "what to do: if it runs, correct its --advertise-address"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q", out.String(), want)
		}
	}
	d := &diagnosis{}
	if d.checkNodes(all); !strings.Contains(fmt.Sprint(d.Findings), "no node serves: m is the primary, as far as is known") {
		t.Errorf("doctor on a silent primary: got %+v, want that no node serves, and who is the primary", d.Findings)
	}
}

// Two masters of one cluster id, each with an etcd of its own, both serve, with journals
// of their own.
func TestSeveralPrimaries(t *testing.T) {
	var at []string
	for _, id := range []string{"a", "b"} {
		c := startCluster(t)
		n := c.node(id, "__master")
		c.serves(id, n)
		at = append(at, n.RPC)
	}
	where := []string{"--address", strings.Join(at, ",")}
	says := "2 nodes serve: a at " + at[0] + " in term 1, b at " + at[1] + " in term 1; "
	o := run(t, append(where, "status")...).Want(t, cli.StatusFailed, "warning of a, b: "+says, "warning of a, b: the states of these nodes come from different journals: a from ")
	if !strings.Contains(o.Out, "--etcd_endpoints") {
		t.Errorf("got\n%s\nwant it said what may be wrong", o.Out)
	}
	d, of, o := diagnosed(t, where...)
	for check, text := range map[string]string{"primary": says, "journal": "different journals: a from "} {
		if list := of(check); len(list) != 1 || list[0].Verdict != bad || !strings.Contains(list[0].Text+"; "+list[0].Help, text) {
			t.Errorf("doctor on %s: got %+v, want one that is bad and says %q", check, list, text)
		}
	}
	for _, x := range of("warnings") {
		if strings.Contains(x.Text, "nodes serve") || strings.Contains(x.Text, "different journals") {
			t.Errorf("doctor's warnings: got %+v, want it said once, in its own finding", x)
		}
	}
	if o.Status != cli.StatusFailed || !d.Serves {
		t.Errorf("the doctor ends with %d, want %d", o.Status, cli.StatusFailed)
	}
}

// testWrongAddress checks that a node that advertises another one's address is not taken for it.
func testWrongAddress(t *testing.T, c *cluster, a nodeResult) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: c.etcd.Etcd})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	key := journal.NewLayout(pb.DefaultEtcdPrefix, pb.DefaultClusterID).Node("ghost")
	lease, err := etcd.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Put(t.Context(), key, `{"node_id":"ghost","rpc_address":"`+a.Address+`"}`, clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = etcd.Delete(context.WithoutCancel(t.Context()), key) }()
	for _, from := range [][]string{{"--address", a.Address}, {"--etcd-endpoints", strings.Join(c.etcd.Etcd, ",")}} {
		run(t, append([]string{"status"}, from...)...).Want(t, cli.StatusFailed, "ghost", "node a answers there", "--advertise-address", "serves", "standby")
	}
	run(t, "doctor", "--address", a.Address).Want(t, cli.StatusFailed, "ghost "+a.Address, "node a answers there")
}
