package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/internal/etcd/members"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/security/certs"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/promote"
)

// machine are the settings of a node that runs a member of etcd: it founds the cluster, or
// joins others.
func machine(t *testing.T, id string, others ...*member) config.Config {
	t.Helper()
	role := config.Primary
	if len(others) > 0 {
		role = config.Standby
	}
	c := settings(role, id, nil)
	c.HA.Enabled, c.HA.ClusterInit = true, len(others) == 0
	for _, m := range others {
		c.HA.Join = append(c.HA.Join, m.RPCAddress())
	}
	c.HA.EtcdPeerListen = etcdtest.UnusedAddress()
	c.Node.DataDir, c.HA.HandoverTimeout = t.TempDir(), time.Second
	return c
}

// voters waits until a node knows so many members that vote, all alive.
func (m *member) voters(n int) *pb.StatusResponse {
	m.t.Helper()
	return m.until("knows the members that vote", func(s *pb.StatusResponse) bool {
		list := s.GetJournal().GetEtcdMembers()
		return len(list) == n && !slices.ContainsFunc(list, func(e *pb.EtcdMember) bool { return e.GetLearner() || !e.GetAlive() })
	})
}

func (m *member) warned(text string) {
	m.t.Helper()
	m.until("warns: "+text, func(s *pb.StatusResponse) bool { return strings.Contains(strings.Join(s.GetWarnings(), "\n"), text) })
}

// showsMembers demands that a node's console has space and latency of all members of etcd,
// though it reaches its own only.
func (m *member) showsMembers(names ...string) {
	m.t.Helper()
	leaders := 0
	list := m.etcdMembers()(m.t.Context())
	for i, e := range list {
		if e.Leader {
			leaders++
		}
		if i >= len(names) || e.Name != names[i] || e.Fault != "" || e.Size == 0 || e.Quota == 0 || e.Took == 0 || e.ByNode == (e.Name == m.cfg.Node.ID) {
			m.t.Errorf("the console's member %d: got %+v, want one of %v, with size, quota and latency, asked by a node if not its own", i, e, names)
		}
	}
	if len(list) != len(names) || leaders != 1 {
		m.t.Errorf("the console shows %d members and %d leaders, want %d and 1", len(list), leaders, len(names))
	}
}

// Nodes that wait to join, and ask each other, quote each other once, and no more with each
// round.
func TestNodesThatWaitToJoin(t *testing.T) {
	why := errors.New("no answer")
	for range 100 {
		why = fmt.Errorf("AddMember: UNAVAILABLE_IN_CURRENT_MODE: %s: b: %s; c: %s", waitsToJoin, refusalOf(why), refusalOf(why))
	}
	if got := why.Error(); len(got) > 400 || !strings.Contains(got, "too; c: AddMember") {
		t.Errorf("after 100 rounds: got a refusal of %d bytes, want at most 400, with each node quoted once: %.1000s", len(got), got)
	}
	if got := refusalOf(errors.New(strings.Repeat("ü", 400))); len(got) > longestRefusal+3 || !strings.HasSuffix(got, "ü...") {
		t.Errorf("a long refusal: got %d bytes, want at most %d, cut between letters: %s", len(got), longestRefusal+3, got)
	}
}

// Three machines and nothing else: each node carries a member of etcd. Any of them may go;
// one that has lost its directory is let in again when it is replaced.
func TestThreeMachines(t *testing.T) {
	t.Parallel() // it waits, for connections of etcd that are 5 s old and for a last member that stops alone
	a := run(t, machine(t, "a"))
	a.serves()
	b := run(t, machine(t, "b", a))
	b.promotable()
	a.voters(2)
	a.warned("no loss is survived: etcd has 2 members that vote")
	c := run(t, machine(t, "c", b, a))
	c.promotable()
	s := a.voters(3)
	if w := strings.Join(s.GetWarnings(), "\n"); strings.Contains(w, "loss") {
		t.Errorf("three members that vote: got the warning %q, want none: one may be lost", w)
	}
	b.showsMembers("a", "b", "c")
	w := writer(t, client.Config{Addresses: []string{a.RPCAddress(), b.RPCAddress(), c.RPCAddress()}})
	put(t, w, "k")

	replace := func(at *member, name string) error {
		_, err := at.admin.RemoveMember(t.Context(), &pb.RemoveMemberRequest{Name: name, Replace: true})
		return err
	}
	if err := replace(b, "c"); kindOf(err) != errs.Unavailable {
		t.Errorf("removing a node that runs: got %v, want that it is refused", err)
	}
	a.end() // the founder, the primary
	b.until("serves, or knows who does", func(s *pb.StatusResponse) bool {
		return s.GetLeaderNodeId() == "b" || s.GetLeaderNodeId() == "c"
	})
	b.warned("no further loss is survived: of 3 members of etcd that vote, a are away")
	b.until("has the primary log that a is away", func(*pb.StatusResponse) bool {
		return strings.Contains(b.log.String()+c.log.String(), `"member":"a","error":"its node is not registered","message":"a member of etcd is away"`)
	})
	if list := b.etcdMembers()(t.Context()); len(list) != 3 || !strings.Contains(list[0].Fault, "not registered") {
		t.Errorf("the console shows %+v, want that a is away", list)
	}
	put(t, w, "k2")

	// It comes back with an empty directory, which no vote may come from, and founds nothing.
	foundsNothing := func() {
		t.Helper()
		again := machine(t, "a")
		again.HA.EtcdPeerListen = a.cfg.HA.EtcdPeerListen
		if err := ends(t, again); err == nil || !strings.Contains(err.Error(), "as one of its members") {
			t.Errorf("founding anew beside the others: got %v, want that it is refused", err)
		}
	}
	foundsNothing()
	again := machine(t, "a", b, c)
	again.HA.EtcdPeerListen = a.cfg.HA.EtcdPeerListen
	returned := run(t, again)
	returned.says("etcd has the member a at http://" + again.HA.EtcdPeerListen + " already")
	returned.waits("etcd has the member a at ")
	b.until("no longer has it registered", func(s *pb.StatusResponse) bool { return len(s.GetNodes()) == 2 })
	returned.end()
	if err := replace(b, "a"); err != nil {
		t.Fatal(err)
	}
	foundsNothing() // an operator may forget that its unit founds
	returned = run(t, again)
	returned.promotable()
	same(t, b, returned, c)
	b.voters(3)
	returned.end()
	returned = run(t, again) // with its directory: nobody is asked
	returned.promotable()
	if text := returned.log.String(); strings.Contains(text, "this node joins etcd") {
		t.Errorf("a member with its data starts: got that it joins etcd anew, want that it goes on as the member it is:\n%s", text)
	}
}

// waits waits until a node says over HTTP that it waits for etcd: it lives, and is not ready.
func (m *member) waits(what string) {
	m.t.Helper()
	ask := func(path string) (code int, text string) {
		resp, err := http.Get("http://" + m.cfg.Node.HTTPAddress + path) //nolint:noctx // of this process
		if err != nil {
			m.t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			m.t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	deadline := time.Now().Add(time.Minute)
	for code, text := ask("/readyz"); !strings.Contains(text, what); code, text = ask("/readyz") {
		if code != http.StatusServiceUnavailable || time.Now().After(deadline) {
			m.t.Fatalf("/readyz: got %d %s, want 503 and %q", code, text, what)
		}
	}
	if code, text := ask("/health"); code != http.StatusOK || !strings.Contains(text, what) {
		m.t.Errorf("/health: got %d %s, want 200 and %q", code, text, what)
	}
}

// says waits until a node has logged something.
func (m *member) says(text string) {
	m.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(m.log.String(), text) {
		select {
		case <-deadline:
			m.t.Fatalf("the log of %s after a minute: got %s, want %q in it", m.cfg.Node.ID, m.log, text)
		case <-tick.C:
		}
	}
}

// The join token does not go in plain text, also while --tls-required=false lets other calls
// do: somebody between the nodes could have them do it.
func TestJoinTokenGoesOverTLS(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := secure(machine(t, "b"), nodeFiles(t, newAuthority(t)))
	c.Security.Required, c.HA.ClusterInit, c.HA.Join = false, false, []string{l.Addr().String()}
	run(t, c)
	for range 3 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 1)
		_, err = io.ReadFull(conn, first)
		if _ = conn.Close(); err != nil || first[0] != 0x16 { // a handshake's record
			t.Fatalf("it began with %q, %v; want TLS", first, err)
		}
	}
}

// A member runs before its node is registered: while it catches up without a vote, and while
// its node loads what it kept. Until it has gone it is not taken away.
func TestAMemberThatRunsStays(t *testing.T) {
	t.Parallel() // it waits, for connections of etcd that are 5 s old and for a last member that stops alone
	files := nodeFiles(t, newAuthority(t))
	a := run(t, secure(machine(t, "a"), files))
	a.serves()
	secrecy := etcdserver.TLS{CA: files.CA, Cert: files.Cert, Key: files.Key, InUse: a.certs.InUse}
	m := etcdserver.Member{Name: "b", PeerAddr: machine(t, "b").HA.EtcdPeerListen}
	url := etcdserver.PeerURL(m.PeerAddr, secrecy)
	var added *pb.AddMemberResponse
	for added == nil { // etcd takes no member in before its first one is 5 s old
		var err error
		if added, err = a.admin.AddMember(t.Context(), &pb.AddMemberRequest{Name: m.Name, PeerUrl: url}); err != nil && kindOf(err) != errs.Unavailable {
			t.Fatal(err)
		}
	}
	m.InitialCluster = added.GetInitialCluster()
	settings := etcdserver.Settings{DataDir: t.TempDir(), TLS: secrecy, Member: m}
	b, err := etcdserver.Launch(settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, replace := range []bool{true, false} {
		_, err := a.admin.RemoveMember(t.Context(), &pb.RemoveMemberRequest{Name: "b", Replace: replace})
		if kindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "stop it first") {
			t.Errorf("a member that runs, replaced (%t): got %v, want that it is refused", replace, err)
		}
	}
	if err := b.Close(); err != nil { // no majority is left
		t.Fatal(err)
	}
	a.until("says whose member does not answer", func(s *pb.StatusResponse) bool {
		list := s.GetJournal().GetEtcdMembers()
		return len(s.GetNodes()) == 0 && len(list) == 2 && list[0].GetAlive() && list[1].GetName() == "b" && !list[1].GetAlive()
	})
}

// A node whose certificate does not have its address would get a vote, and no other member could
// call it: with two that vote, it could not be taken away again either.
func TestCertificateOfAnotherAddress(t *testing.T) {
	t.Parallel()
	files := issue(t, newAuthority(t), "node", certs.Subject{Name: "node", Role: "node", Hosts: []string{"localhost"}})
	for _, joins := range [][]string{nil, {"127.0.0.1:1"}} {
		c := secure(machine(t, "b"), files)
		c.HA.ClusterInit, c.HA.Join = joins == nil, joins
		if err := ends(t, c); err == nil || !strings.Contains(err.Error(), "--tls-cert") || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("joins %v: got %v, want that the certificate lacks the address", joins, err)
		}
	}
}

// Beyond loopback members talk over TLS, and a node shows the secret to join.
func TestJoiningIsGuarded(t *testing.T) {
	t.Parallel() // it waits, for connections of etcd that are 5 s old and for a last member that stops alone
	files := nodeFiles(t, newAuthority(t))
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("s", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	guarded := func(c config.Config) config.Config {
		c = secure(c, files)
		c.Security.Roles, c.HA.JoinTokenFile = true, token
		return c
	}
	a := run(t, guarded(machine(t, "a")))
	a.serves()
	for name, ctx := range map[string]context.Context{
		"no token": t.Context(), "another token": rpc.WithJoinToken(t.Context(), strings.Repeat("t", 32)),
	} {
		_, err := a.admin.AddMember(ctx, &pb.AddMemberRequest{Name: "x", PeerUrl: "https://127.0.0.1:1"})
		if kindOf(err) != errs.IllegalClient {
			t.Errorf("%s: got %v, want that it is refused", name, err)
		}
	}
	shown := rpc.WithJoinToken(t.Context(), strings.Repeat("s", 32))
	for _, at := range []string{"http://127.0.0.1:1", "https://10.0.0.1:1"} {
		if _, err := a.admin.AddMember(shown, &pb.AddMemberRequest{Name: "x", PeerUrl: at}); kindOf(err) != errs.InvalidParams {
			t.Errorf("a member at %s: got %v, want that it is refused", at, err)
		}
	}
	b := run(t, guarded(machine(t, "b", a)))
	b.promotable()
	if list := a.voters(2).GetJournal().GetEtcdMembers(); !strings.HasPrefix(list[1].GetPeerUrl(), "https://") {
		t.Errorf("members are %v, want https", list)
	}
	if strings.Contains(a.log.String(), strings.Repeat("s", 32)) {
		t.Error("the log of a node with a join token: got the token in it, want no secret")
	}
}

// A node that was a member, and has lost etcd's directory alone, founds no other etcd,
// whichever way it is started.
func TestAMemberFoundsNoSecondEtcd(t *testing.T) {
	t.Parallel()
	c := machine(t, "a")
	a := run(t, c)
	a.serves()
	a.end()
	if err := os.RemoveAll(filepath.Join(c.Node.DataDir, "etcd")); err != nil {
		t.Fatal(err)
	}
	lone := c
	lone.HA.ClusterInit, lone.HA.EtcdPeerListen = false, ""
	for name, c := range map[string]config.Config{"--cluster-init": c, "alone": lone} {
		if err := ends(t, c); err == nil || !strings.Contains(err.Error(), "was a member of an etcd") {
			t.Errorf("%s: got %v, want that it founds none", name, err)
		}
	}
}

// A certificate need have the advertised host alone: a node reaches its own etcd on loopback
// though that has no name of it.
func TestCertificateOfTheAdvertisedHost(t *testing.T) {
	t.Parallel()
	const host = "127.0.0.2"
	files := issue(t, newAuthority(t), "node", certs.Subject{Name: "node", Role: "node", Hosts: []string{host}})
	at := func(c config.Config) config.Config {
		c = secure(c, files)
		c.Listen.RPCAddress, c.Security.Roles = host, true
		_, port, err := net.SplitHostPort(c.HA.EtcdPeerListen)
		if err != nil {
			t.Fatal(err)
		}
		c.HA.EtcdPeerListen = net.JoinHostPort(host, port)
		return c
	}
	run(t, at(machine(t, "a"))).serves()
	lone := at(machine(t, "c"))
	lone.HA.ClusterInit, lone.HA.EtcdPeerListen = false, ""
	run(t, lone).serves()
}

// A node with an etcd of its own does not become a second one beside that which it is to
// join; a master may open its own to others.
func TestOwnEtcdIsNoMember(t *testing.T) {
	t.Parallel() // it waits, for connections of etcd that are 5 s old and for a last member that stops alone
	lone := settings(config.Primary, "a", nil)
	lone.HA.Enabled, lone.Node.DataDir = true, t.TempDir()
	first := run(t, lone)
	first.serves()
	first.end()

	c := machine(t, "a", first)
	c.Node.DataDir = lone.Node.DataDir
	if err := ends(t, c); err == nil || !strings.Contains(err.Error(), "has the data of an etcd of its own") {
		t.Errorf("got %v, want that its data are refused", err)
	}
	c = machine(t, "a")
	c.Node.DataDir = lone.Node.DataDir
	a := run(t, c)
	a.serves()
	if list := a.voters(1).GetJournal().GetEtcdMembers(); list[0].GetPeerUrl() != "http://"+c.HA.EtcdPeerListen {
		t.Errorf("the member is %v, want one that others reach", list)
	}
}

// A node that could never join says so, and leaves no member behind that never starts.
func TestAPlaceThatCannotBe(t *testing.T) {
	t.Parallel()
	c := machine(t, "a")
	c.HA.ClusterInit, c.HA.Join = false, []string{"127.0.0.1:1"}
	c.Node.AdvertiseAddress = "127.0.0.1:1"
	if err := ends(t, c); err == nil || !strings.Contains(err.Error(), "names this node alone") {
		t.Errorf("joining itself: got %v, want that it is refused", err)
	}
	c = machine(t, "a")
	l, err := net.Listen("tcp", c.HA.EtcdPeerListen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.HA.ClusterInit, c.HA.Join = false, []string{"127.0.0.1:1"}
	if err := ends(t, c); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a peer address that is taken: got %v, want that it asks nobody to let it in", err)
	}
}

// ends runs a node that is to end by itself.
func ends(t *testing.T, c config.Config) error {
	t.Helper()
	a, err := New(c, "v-test", zerolog.New(new(waittest.Buffer)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return a.Run(ctx)
}

func kindOf(err error) errs.Kind {
	if err == nil {
		return errs.OK
	}
	e, _ := rpcerr.Parse(err)
	return errs.KindOf(e)
}

func membersOf(names string) (list []members.Member) {
	for name := range strings.FieldsSeq(names) {
		list = append(list, members.Member{Name: strings.ToLower(name), Learner: name != strings.ToLower(name)})
	}
	return list
}

func TestMemberWarnings(t *testing.T) {
	nodes := []promote.NodeInfo{{ID: "a"}, {ID: "b"}, {ID: "e"}}
	for _, tt := range []struct {
		members string // those in capitals have no vote
		want    string
	}{
		{"a", ""},
		{"a B", ""},
		{"a b", "no loss is survived"},
		{"a b C", "no loss is survived"},
		{"a C", "no other node can join"},
		{"a b c", "c are away"},
		{"a b w", ""},
		{"a c w", "c are away"},
		{"a b c d", "c, d are away"},
		{"a b c w x", "no further loss is survived: of 5 members of etcd that vote, c, x are away"},
		{"a b c e w", "of 5 members of etcd that vote, c are away, and the loss of 1 more is survived"},
	} {
		got := strings.Join(memberWarnings(membersOf(tt.members), alive(nodes, []promote.Witness{{ID: "w"}})), "; ")
		if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: got %q, want %q", tt.members, got, tt.want)
		}
	}
}

// A node that cannot be let in is told how it could.
func TestAddMemberSaysWhatIsMissing(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("7", minJoinToken)), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		ha    config.HA
		shown string
	}{
		"--etcd_endpoints in place of --join": {config.HA{Enabled: true, EtcdEndpoints: []string{"etcd:2379"}}, ""},
		"start it again with --cluster-init":  {config.HA{Enabled: true}, ""},
		"must show a join token":              {config.HA{Enabled: true, ClusterInit: true, JoinTokenFile: token}, ""},
		"another one than this node's":        {config.HA{Enabled: true, ClusterInit: true, JoinTokenFile: token}, "8"},
		"the other nodes have no join token":  {config.HA{Enabled: true, ClusterInit: true}, "8"},
	} {
		n := &clusterNode{app: &App{cfg: config.Config{HA: c.ha}}}
		if _, err := n.AddMember(t.Context(), c.shown, "b", "http://127.0.0.1:2380"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
