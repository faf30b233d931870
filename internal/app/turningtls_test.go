package app

import (
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/security/certs"
	"github.com/understudy-store/understudy/promote"
)

// A cluster of three nodes goes from plain text to TLS and roles, one restart after the
// other, in the order of docs/security.md: each node gets the state from the primary of
// then, whatever that speaks, and no object is lost.
func TestTurningTLSOn(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	authority := newAuthority(t)
	files := nodeFiles(t, authority)
	nodes := make(map[string]*member)
	start := func(id string, change func(*config.Config)) {
		role := promote.Standby
		if id == "a" && nodes[id] == nil {
			role = config.Primary
		}
		c := settings(role, id, etcd) // with an empty directory: it needs a snapshot
		c.Client.TTL = time.Hour      // nobody pings for the memory
		change(&c)
		if nodes[id] != nil {
			nodes[id].end() // a primary hands over
		}
		nodes[id] = run(t, c)
	}
	plain := func(*config.Config) {}
	both := func(c *config.Config) { *c = secure(*c, files); c.Security.Required = false }
	only := func(c *config.Config) { *c = secure(*c, files) }
	roles := func(c *config.Config) { *c = secure(*c, files); c.Security.Roles = true }

	start("a", plain)
	nodes["a"].serves()
	cl, err := client.New(client.Config{Addresses: []string{nodes["a"].RPCAddress()}})
	if err != nil {
		t.Fatal(err)
	}
	mount(t, cl)
	put(t, cl, "k")
	cl.Close()
	for _, id := range []string{"b", "c"} {
		start(id, plain)
		nodes[id].promotable()
	}
	for i, change := range []func(*config.Config){both, only, roles} {
		for _, id := range [][]string{{"c", "b", "a"}, {"a", "b", "c"}, {"c", "a", "b"}}[i] {
			start(id, change)
			nodes[id].promotable()
			for other, n := range nodes {
				if other != id {
					n.until("serves or could take over", func(s *pb.StatusResponse) bool { return s.GetNode().GetPromotable() })
				}
			}
		}
	}
	for id, n := range nodes {
		if err := askOver(t, n.RPCAddress(), nil); status.Code(err) != codes.Unavailable {
			t.Errorf("%s without TLS: got %v, want Unavailable", id, err)
		}
	}
	same(t, nodes["a"], nodes["b"], nodes["c"])
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.RPCAddress())
	}
	id := uuid.New()
	caller := issue(t, authority, "client", certs.Subject{Name: "host", Role: "client", ClientID: id})
	reader, err := client.New(client.Config{Addresses: addresses, TLS: tlsOf(t, caller), ClientID: id})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if there, err := reader.ExistKey(t.Context(), "k"); err != nil || !there {
		t.Errorf("the object of before: got %v, %v; want it", there, err)
	}
}

// For the time of the change a node calls others with TLS or without, whatever they speak,
// but none that shows a wrong certificate.
func TestPeersOfBothKinds(t *testing.T) {
	ours, foreign := newAuthority(t), newAuthority(t)
	files := nodeFiles(t, ours)
	of := func(change func(*config.Config)) string {
		c := settings(config.Primary, "a", nil)
		change(&c)
		m := run(t, c)
		for _, err := m.gate.Master(); err != nil; _, err = m.gate.Master() {
			select {
			case <-t.Context().Done():
				t.Fatal(err)
			case <-time.After(time.Millisecond):
			}
		}
		return m.RPCAddress()
	}
	plain := of(func(*config.Config) {})
	secret := of(func(c *config.Config) { *c = secure(*c, files) })
	forged := of(func(c *config.Config) { *c = secure(*c, nodeFiles(t, foreign)) })
	source, err := certs.Load(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	byName := of(func(c *config.Config) {
		*c = secure(*c, issue(t, ours, "named", certs.Subject{Name: "named", Role: "node", Hosts: []string{"localhost"}}))
	})
	_, port, err := net.SplitHostPort(byName)
	if err != nil {
		t.Fatal(err)
	}
	p := &peers{clusterID: "mooncake_cluster", nodeID: "s", certs: source, mayBePlain: true}
	for address, good := range map[string]bool{plain: true, secret: true, forged: false, "localhost:" + port: true, byName: false} {
		if _, err := p.Standing(t.Context(), address); (err == nil) != good {
			t.Errorf("%s: got %v, want an answer: %t", address, err, good)
		}
	}
}

// A node with an etcd of its own gets the files at a restart, and goes on from its data.
func TestTurningTLSOnWithEmbeddedEtcd(t *testing.T) {
	files := nodeFiles(t, newAuthority(t))
	c := settings(config.Primary, "a", []string{})
	c.Node.DataDir = t.TempDir()
	a := run(t, c)
	a.serves()
	put(t, writer(t, client.Config{Addresses: []string{a.RPCAddress()}}), "k")
	a.end()
	a = run(t, secure(c, files))
	a.serves()
	cl, err := client.New(client.Config{Addresses: []string{a.RPCAddress()}, TLS: tlsOf(t, files)})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if there, err := cl.ExistKey(t.Context(), "k"); err != nil || !there {
		t.Errorf("the object of before: got %v, %v; want it", there, err)
	}
}
