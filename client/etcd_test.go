package client_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// elected writes into etcd that a node is elected, as the node itself does.
func elected(t *testing.T, etcd *clientv3.Client, n *node, term metadata.Term, state promote.LeaderState) {
	t.Helper()
	value, err := json.Marshal(promote.Leader{NodeID: n.id, RPC: n.hint, Term: term, State: state})
	if err != nil {
		t.Fatal(err)
	}
	writeLeader(t, etcd, string(value))
}

func writeLeader(t *testing.T, etcd *clientv3.Client, value string) {
	t.Helper()
	if _, err := etcd.Put(soon(t, 30*time.Second), journal.NewLayout("/prefix", clusterID).Leader(), value); err != nil {
		t.Fatal(err)
	}
}

// silence makes nodes give no hints.
func (c *cluster) silence() {
	for _, n := range c.nodes {
		h := n.gate.Hint()
		h.NodeID, h.RPC = "", ""
		n.gate.SetHint(h)
	}
}

// A client that knows etcd needs no address. It goes on at each primary that etcd names,
// whether or not the earlier one refuses calls. Without etcd it uses the leaders that nodes
// name.
func TestLeaderInEtcd(t *testing.T) {
	server := etcdtest.Start(t)
	etcd := server.Client(t)
	cl := newCluster(t, 3)
	link := newLink(t, cl.nodes[0].address)
	cl.nodes[0].hint = link.address
	w := new(witness)
	c := connect(t, client.Config{EtcdEndpoints: server.Endpoints(), EtcdPrefix: "/prefix/", Observer: w})

	_, err := c.ExistKey(soon(t, 100*time.Millisecond), "k")
	wantKind(t, "while nobody is elected", err, errs.Unavailable)
	first := make(chan error, 1)
	go func() { _, err := c.ExistKey(context.Background(), "k"); first <- err }()
	within(t, "the call to begin", func() bool { return client.Calls(c) == 1 })
	elected(t, etcd, cl.nodes[0], 1, promote.Elected)
	within(t, "asking the elected node", func() bool { return cl.nodes[0].asked.Load() > 1 })
	cl.lead(0)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	mountMemory(t, c)

	// It hangs, and etcd names another one.
	link.freeze()
	hanging := make(chan error, 1)
	go func() { hanging <- c.Remove(context.Background(), "k", client.Removal{}) }()
	within(t, "the call to begin", func() bool { return client.Calls(c) > 0 })
	cl.lead(1)
	cl.silence()
	elected(t, etcd, cl.nodes[1], 2, promote.Serving)
	wantKind(t, "a call that hangs at the old one", <-hanging, errs.ObjectNotFound)

	// What etcd says may be nonsense.
	for _, nonsense := range []string{"", "{", `{"rpc_address":"","term":9}`, `{"rpc_address":"127.0.0.1:1"}`} {
		writeLeader(t, etcd, nonsense)
	}
	put(t, c, "k")

	server.Stop(0)
	put(t, c, "without etcd")
	cl.lead(2) // the old one gives a hint
	put(t, c, "without etcd, at another one")
	server.Start(0)
	cl.lead(1)
	cl.silence()
	elected(t, etcd, cl.nodes[1], 4, promote.Serving)
	put(t, c, "with etcd again")
	if led := w.found(t, 4); len(led) != 4 || led[3].NodeID != "node-1" || led[3].Term != 4 {
		t.Errorf("leaders %+v, want 4 entries, \"node-1\" and Term 4", led)
	}
}

// etcd only says which node to ask. A wrong address there leads nowhere, and does no harm if
// there are other addresses.
func TestWrongAddressInEtcd(t *testing.T) {
	server := etcdtest.Start(t)
	etcd := server.Client(t)
	cl := newCluster(t, 1)
	cl.lead(0)
	stranger := newNode(cl, "stranger", "elsewhere")
	stranger.gate.Open(cl.newMaster(99))
	elected(t, etcd, stranger, 1, promote.Serving)
	c := connect(t, client.Config{EtcdEndpoints: server.Endpoints(), EtcdPrefix: "/prefix"})
	_, err := c.ExistKey(soon(t, 300*time.Millisecond), "k")
	wantKind(t, "only a stranger", err, errs.Unavailable)
	elected(t, etcd, cl.nodes[0], 1, promote.Serving)
	mountMemory(t, c)
	put(t, c, "k")
}

// A term that etcd names has begun: the client drops answers of earlier terms, even if no node
// serves yet.
func TestTermInEtcdFencesTheOldOne(t *testing.T) {
	server := etcdtest.Start(t)
	etcd := server.Client(t)
	cl := newCluster(t, 2)
	old := cl.lead(0)
	elected(t, etcd, old, 1, promote.Serving)
	c := connect(t, client.Config{EtcdEndpoints: server.Endpoints(), EtcdPrefix: "/prefix"})
	mountMemory(t, c)
	elected(t, etcd, cl.nodes[1], 2, promote.Elected)
	within(t, "the client to ask the new primary", func() bool { return cl.nodes[1].asked.Load() > 0 })
	_, err := c.ExistKey(soon(t, 200*time.Millisecond), "k")
	wantKind(t, "while the old one answers", err, errs.Unavailable)
	cl.lead(1)
	old.gate.Close(service.Hint{})
	put(t, c, "k")
}

// A client finds a primary that was elected in an etcd that was wiped, although etcd's revisions
// begin anew.
func TestLeaderInAnEtcdThatWasWiped(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	etcd := server.Client(t)
	cl := newCluster(t, 3)
	cl.lead(0)
	for range 100 {
		elected(t, etcd, cl.nodes[0], 1, promote.Serving)
	}
	c := connect(t, client.Config{EtcdEndpoints: server.Endpoints(), EtcdPrefix: "/prefix"})
	mountMemory(t, c)
	put(t, c, "k")
	for _, tc := range []struct {
		name  string
		leads int
		wait  bool // with a call that waits for a leader meanwhile
	}{{"before the next call", 1, false}, {"while a call waits", 2, true}} {
		cl.rest()
		server.Wipe()
		exists := make(chan error, 1)
		call := func() {
			_, err := c.ExistKey(soon(t, 40*time.Second), "k")
			exists <- err
		}
		if tc.wait {
			go call()
			within(t, "the call to begin", func() bool { return client.Calls(c) > 0 })
		}
		cl.lead(tc.leads)
		cl.silence()
		elected(t, etcd, cl.nodes[tc.leads], metadata.Term(cl.term), promote.Serving)
		if !tc.wait {
			go call()
		}
		wantKind(t, tc.name, <-exists, errs.OK)
	}
}
