package app

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/journal"
)

func witnessOf(t *testing.T, id string, others ...*member) config.Config {
	c := machine(t, id, others...)
	c.HA.Witness = true
	return c
}

// get returns the answer to a request of a node's HTTP service, once it is as wanted.
func (m *member) get(path, want string) {
	m.t.Helper()
	code, text := 0, ""
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(text, want); {
		if time.Now().After(deadline) {
			m.t.Fatalf("%s: got %d %q, want %q", path, code, text, want)
		}
		resp, err := http.Get("http://" + m.cfg.Node.HTTPAddress + path) //nolint:noctx // of this process
		if err != nil {
			m.t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			m.t.Fatal(err)
		}
		_ = resp.Body.Close()
		code, text = resp.StatusCode, string(b)
	}
}

// Two nodes with metadata and a witness survive the loss of either node: the witness votes
// in etcd, and no more.
func TestWitness(t *testing.T) {
	t.Parallel() // it waits, for connections of etcd that are 5 s old and for a last member that stops alone
	a := run(t, machine(t, "a"))
	a.serves()
	b := run(t, machine(t, "b", a))
	b.promotable()
	a.voters(2)
	a.warned("no loss is survived")
	w := run(t, witnessOf(t, "w", a, b))
	a.voters(3)
	s := a.until("knows the witness", func(s *pb.StatusResponse) bool {
		return slices.ContainsFunc(s.GetJournal().GetEtcdMembers(), func(m *pb.EtcdMember) bool { return m.GetWitness().GetEtcdBytes() > 0 })
	})
	if w := strings.Join(s.GetWarnings(), "\n"); strings.Contains(w, "loss") {
		t.Errorf("two nodes and a witness: got the warning %q, want none: one may be lost", w)
	}
	if len(s.GetNodes()) != 2 {
		t.Errorf("nodes that could hold a state: got %v, want a and b", s.GetNodes())
	}
	a.showsMembersAndWitness("a", "b", "w")
	w.get("/health", `"role":"witness"`)
	w.get("/readyz", "it votes in etcd, and holds no metadata")
	w.get("/readyz?role=witness", "OK")
	w.get("/metrics", `understudy_role{role="witness"} 1`)
	w.get("/metrics", "understudy_etcd_db_bytes ")
	if w.rpcListener != nil {
		t.Error("a witness: got a port for gRPC, want none: it serves no metadata")
	}
	w.writesOnlyItsKey(a)

	remove := func() error {
		_, err := a.admin.RemoveMember(t.Context(), &pb.RemoveMemberRequest{Name: "w"})
		return err
	}
	if err := remove(); kindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "runs") {
		t.Errorf("removing a witness that runs: got %v, want that it is refused", err)
	}
	client := writer(t, client.Config{Addresses: []string{a.RPCAddress(), b.RPCAddress()}})
	put(t, client, "k")
	a.end()
	b.serves()
	put(t, client, "k2")
	b.warned("no further loss is survived: of 3 members of etcd that vote, a are away")

	again := machine(t, "a", b)
	again.Node.DataDir, again.HA.EtcdPeerListen = a.cfg.Node.DataDir, a.cfg.HA.EtcdPeerListen
	a = run(t, again)
	a.promotable()
	w.end()
	b.until("no longer knows the witness", func(s *pb.StatusResponse) bool {
		return !slices.ContainsFunc(s.GetJournal().GetEtcdMembers(), func(m *pb.EtcdMember) bool { return m.GetWitness() != nil })
	})
	a.until("has two members after the witness was removed", func(s *pb.StatusResponse) bool {
		return len(s.GetJournal().GetEtcdMembers()) == 2 || remove() == nil
	})
}

// writesOnlyItsKey demands that nothing in etcd is a witness's but its own key.
func (m *member) writesOnlyItsKey(node *member) {
	m.t.Helper()
	c := node.node.(*clusterNode).members
	resp, err := c.Get(m.t.Context(), "/", clientv3.WithPrefix())
	if err != nil {
		m.t.Fatal(err)
	}
	own := journal.NewLayout(m.cfg.HA.EtcdPrefix, m.cfg.HA.ClusterID).Witness("w")
	for _, kv := range resp.Kvs {
		if key := string(kv.Key); key != own && (strings.HasSuffix(key, "/w") || strings.Contains(string(kv.Value), m.cfg.Node.HTTPAddress)) {
			m.t.Errorf("keys of the witness in etcd: got %s = %q, want only %s", key, kv.Value, own)
		}
	}
}

// showsMembersAndWitness demands what showsMembers does, of the witness at the end that it
// is shown as such.
func (m *member) showsMembersAndWitness(names ...string) {
	m.t.Helper()
	list := m.etcdMembers()(m.t.Context())
	for i, e := range list {
		if i >= len(names) || e.Name != names[i] || e.Fault != "" || e.Size == 0 || e.Quota == 0 || e.Witness != (i == len(names)-1) {
			m.t.Errorf("the console's member %d: got %+v, want one of %v, with size and quota, and only the last a witness", i, e, names)
		}
	}
	if len(list) != len(names) {
		m.t.Errorf("the console shows %d members, want %d", len(list), len(names))
	}
}

// A witness whose etcd is full has a node lead it that can make space: without a primary
// the node whose member leads does.
func TestWitnessYieldsEtcdsLeadership(t *testing.T) {
	t.Parallel() // it waits, for connections of etcd that are 5 s old and for a last member that stops alone
	a := run(t, machine(t, "a"))
	a.serves()
	c := witnessOf(t, "w", a)
	c.HA.EtcdListen = etcdtest.UnusedAddress()
	of := run(t, c)
	a.voters(2)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.HA.EtcdListen}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	leads := func() bool {
		st, err := client.Status(t.Context(), c.HA.EtcdListen)
		if err != nil {
			t.Fatal(err)
		}
		return st.Leader == st.Header.MemberId
	}
	st, err := client.Status(t.Context(), c.HA.EtcdListen)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // etcd gives up a change of leader that a busy member is slow to take, and its call hangs
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err = a.node.(*clusterNode).members.MoveLeader(ctx, st.Header.MemberId)
		if cancel(); err == nil {
			break
		}
	}
	if err != nil || !leads() {
		t.Fatalf("the witness leads etcd: %t, %v; want that it does", leads(), err)
	}
	w := of.newWitness(&etcdConn{journal: client, sessions: client, members: client.Endpoints()})
	for range 10 { // as above; the next look of the witness would try again
		if err = w.yield(t.Context()); err == nil && !leads() {
			break
		}
	}
	if err != nil || leads() {
		t.Errorf("got %v, and that the witness leads: %t; want that it does not", err, leads())
	}
}
