package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// The primary rotates through three nodes in one process, by handover and by
// shutdown, while a client puts: nothing is lost (D), and all have one state (S).
func TestPrimaryRotatesByHandoverAndShutdown(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, settings(config.Primary, "a", etcd))
	a.serves()
	b, c := run(t, settings(config.Standby, "b", etcd)), run(t, settings(config.Standby, "c", etcd))
	b.promotable()
	c.promotable()
	cl := writer(t, client.Config{EtcdEndpoints: etcd})
	var keys []string
	more := func() {
		t.Helper()
		for range 20 {
			keys = append(keys, fmt.Sprint("k", len(keys)))
			put(t, cl, keys[len(keys)-1])
		}
	}
	more()
	same(t, a, b, c)

	nodes := map[string]*member{"a": a, "b": b, "c": c}
	others := func(but *member) (list []*member) {
		for _, n := range nodes {
			if n != but {
				n.promotable()
				list = append(list, n)
			}
		}
		return list
	}
	a.knows(2)
	h, err := a.admin.Handover(t.Context(), &pb.HandoverRequest{Term: 1})
	if err != nil || h.GetLeaderNodeId() == "a" {
		t.Fatalf("handing over: %v, %v; want another primary than a", h, err)
	}
	second := nodes[h.GetLeaderNodeId()]
	second.serves()
	more()
	same(t, second, others(second)...)

	second.knows(2)
	second.end()
	delete(nodes, second.cfg.Node.ID)
	more()
	var left *member // one of the two
	for _, left = range nodes {
	}
	last := nodes[left.until("knows the third primary", func(s *pb.StatusResponse) bool {
		return nodes[s.GetLeaderNodeId()] != nil
	}).GetLeaderNodeId()]
	if term := last.serves().GetState().GetTerm(); term != 3 {
		t.Errorf("term %d after two handovers, want 3", term)
	}
	same(t, last, others(last)...)

	found, err := cl.BatchGetReplicaList(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found {
		if f.Err != nil {
			t.Errorf("%s: %v; want an object that survives", keys[i], f.Err)
		}
	}
}

// A complete node that goes is logged once by the primary, and warned of until it is back or
// given up.
func TestNodesThatAreAway(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, settings(config.Primary, "a", etcd))
	a.serves()
	b, c := run(t, settings(config.Standby, "b", etcd)), run(t, settings(config.Standby, "c", etcd))
	b.promotable()
	c.promotable()
	listed := func(m *member, ids ...string) {
		t.Helper()
		m.until(fmt.Sprint("lists ", ids), func(*pb.StatusResponse) bool {
			list, err := m.node.(*clusterNode).CompleteNodes(t.Context())
			return err == nil && slices.Equal(list, ids)
		})
	}
	listed(a, "b", "c")
	warns := func(m *member, text string) {
		t.Helper()
		m.until("warns of nodes that are away: "+text, func(s *pb.StatusResponse) bool {
			said := strings.Join(s.GetWarnings(), "\n")
			if text == "" {
				return !strings.Contains(said, "away")
			}
			return strings.Contains(said, text)
		})
	}
	warns(a, "")
	c.end()
	warns(a, "nodes that hold the whole state are away: c; start them, or strike them off if they do not come back: masterctl forget --yes c")
	warns(b, "are away: c;")
	a.says(`"peer":"c","message":"a node is away"`)
	b.end()
	warns(a, "are away: b, c;")
	a.says(`"peer":"b","message":"a node is away"`)
	run(t, settings(config.Standby, "c", etcd)).promotable()
	a.says(`"message":"a node is back"`)
	warns(a, "are away: b;")
	if _, err := a.admin.Forget(t.Context(), &pb.ForgetRequest{NodeId: "b"}); err != nil {
		t.Fatal(err)
	}
	warns(a, "")
	for text, want := range map[string]int{`"peer":"b","message":"a node is away"`: 1, `"peer":"c","message":"a node is away"`: 1, "a node is back": 1} {
		if got := strings.Count(a.log.String(), text); got != want {
			t.Errorf("the log of a has %d lines with %s, want %d:\n%s", got, text, want, a.log)
		}
	}
	if strings.Contains(b.log.String(), "a node is away") {
		t.Errorf("the log of a standby: got that a node is away, want only the primary to say it:\n%s", b.log)
	}
}

// The journal's tail shows each kind of event in words and as JSON, on every
// node.
func TestEvents(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, settings(config.Primary, "a", etcd))
	a.serves()
	b := run(t, settings(config.Standby, "b", etcd))
	b.promotable()
	cl := writer(t, client.Config{Addresses: []string{a.RPCAddress()}})
	ctx := t.Context()
	put(t, cl, "k")
	if _, err := cl.GetReplicaList(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	open, err := cl.PutStart(ctx, client.PutItem{Key: "open", Size: 100}, client.PutConfig{})
	if err == nil {
		err = cl.PutRevoke(ctx, open.Ref(), client.SelectAll)
	}
	if err == nil {
		err = cl.Remove(ctx, "k", client.Removal{Force: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	put(t, cl, "x1")
	if n, err := cl.RemoveByRegex(ctx, "^x", client.Removal{}); n.Removed != 1 || err != nil {
		t.Fatal(n, err)
	}
	put(t, cl, "y")
	if n, err := cl.RemoveAll(ctx, client.Removal{}); n.Removed != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := cl.UnmountSegment(ctx, mount(t, cl)); err != nil {
		t.Fatal(err)
	}
	put(t, cl, "z")
	if _, err := cl.GetReplicaList(ctx, "z"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"TERM_START term 1, lease TTL 1s, guard 0s, empty false", "MOUNT_SEGMENT ", `PUT_START object 17592186044417 key "k", 100 bytes, 1 replicas`,
		"PUT_END object ", "PUT_REVOKE object ", "REMOVE object ", `REMOVE_BY_REGEX 1 objects matching "^x"`, "REMOVE_ALL ", "UNMOUNT_SEGMENT 1 segment",
		"LEASE_RENEWALS 1 leases",
	}
	for _, n := range []*member{a, b} {
		got := tail(t, n)
		for _, w := range want {
			if !slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, w) }) {
				t.Errorf("the journal's tail at %s: got\n%s\nwant an event that begins with %q", n.cfg.Node.ID, strings.Join(got, "\n"), w)
			}
		}
	}
}

// tail follows a node's journal from its beginning to the first renewals after an unmount, and
// returns the events as type and words.
func tail(t *testing.T, n *member) (list []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := n.admin.Events(ctx, &pb.EventsRequest{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	unmounted := false
	for last := uint64(0); ; {
		e, err := stream.Recv()
		if err != nil {
			t.Fatalf("got %v\n%s, want no error", err, strings.Join(list, "\n"))
		}
		if e.GetSequence() < last || e.GetTerm() != 1 || !json.Valid([]byte(e.GetJson())) {
			t.Errorf("event %v after sequence %d; want term 1, no earlier sequence, and JSON", e, last)
		}
		last = e.GetSequence()
		list = append(list, e.GetType()+" "+e.GetText())
		unmounted = unmounted || e.GetType() == "UNMOUNT_SEGMENT"
		if unmounted && e.GetType() == "LEASE_RENEWALS" {
			return list
		}
	}
}

// An operator starts a cluster empty whose state nobody has any more.
func TestStartEmptyByOrder(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, settings(config.Primary, "a", etcd))
	a.serves()
	put(t, writer(t, client.Config{Addresses: []string{a.RPCAddress()}}), "k")
	a.end()
	b := run(t, settings(config.Primary, "b", etcd))
	b.until("says why it does not serve", func(s *pb.StatusResponse) bool {
		return strings.Contains(s.GetNode().GetNotPromotableReason(), "not complete")
	})
	if _, err := b.admin.Forget(t.Context(), &pb.ForgetRequest{NodeId: "a"}); err != nil {
		t.Fatal(err)
	}
	resp, err := b.admin.StartEmpty(t.Context(), &pb.StartEmptyRequest{Term: 1})
	begun := resp.GetHeader().GetTerm()
	if err != nil || begun < 2 {
		t.Fatalf("got %v, %v; want a term above 1 and no error", resp, err)
	}
	s := b.serves()
	if !s.GetState().GetStartedEmpty() || s.GetState().GetObjects() != 0 {
		t.Errorf("its state: %v; want one that started empty, without objects", s.GetState())
	}
	again, err := b.admin.StartEmpty(t.Context(), &pb.StartEmptyRequest{Term: 1})
	if err != nil || again.GetHeader().GetTerm() != begun {
		t.Errorf("the same order again: got %v, %v; want %d and no error", again, err, begun)
	}
}

// An address in etcd may belong to another cluster by now. A standby reports it,
// and takes nothing from there.
func TestPeerOfAnotherCluster(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	etcd := server.Endpoints()
	other := settings(config.Primary, "stranger", etcd)
	other.HA.ClusterID = "elsewhere"
	stranger := run(t, other)
	stranger.serves()

	layout := journal.NewLayout("/understudy", "mooncake_cluster")
	leader, err := json.Marshal(promote.Leader{NodeID: "gone", RPC: stranger.RPCAddress(), Term: 1, State: promote.Serving})
	if err != nil {
		t.Fatal(err)
	}
	head, err := json.Marshal(journal.Head{Term: 1, Seq: 7, Time: 1})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{layout.Leader(): string(leader), layout.Head(): string(head)} {
		if _, err := server.Client(t).Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	s := run(t, settings(config.Standby, "s", etcd))
	const want = `this node belongs to cluster "elsewhere", node "s" asks for cluster "mooncake_cluster": give both the same --cluster_id, ` +
		`or let them have different addresses`
	tried := func() int { return strings.Count(s.log.String(), "no snapshot yet") }
	s.until("says why it has no state, again and again", func(st *pb.StatusResponse) bool {
		return strings.Contains(fmt.Sprint(st.GetWarnings()), want) && strings.Contains(st.GetNode().GetNotPromotableReason(), want) && tried() > 3
	})
	if warned := strings.Count(s.log.String(), "no snapshot can be loaded"); warned != 1 {
		t.Errorf("after %d attempts its log warns of it %d times, want 1", tried(), warned)
	}
	p := &peers{clusterID: "mooncake_cluster", nodeID: "s"}
	if err := p.WaitApplied(t.Context(), promote.NodeInfo{RPC: stranger.RPCAddress()}, 1); err == nil || !strings.Contains(err.Error(), `belongs to cluster "elsewhere"`) {
		t.Errorf("a stranger's word for having applied a sequence: %v; want an error that names its cluster", err)
	}
	p.clusterID = "elsewhere"
	if err := p.WaitApplied(t.Context(), promote.NodeInfo{ID: "other", RPC: stranger.RPCAddress()}, 0); err == nil || !strings.Contains(err.Error(), `answers there, not "other"`) {
		t.Errorf("the word of a node at another one's address: %v; want an error that names both", err)
	}
}

// Why no snapshot comes from an address is one sentence, with what to look at.
func TestNoSnapshotIsOneSentence(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = (&peers{clusterID: "mooncake_cluster", nodeID: "s"}).Fetch(t.Context(), at, nil)
	want := "no snapshot comes from " + at + ", where the primary should be: connection refused; see that it runs, and its --advertise-address"
	if err == nil || err.Error() != want || errs.KindOf(err) != errs.Unresolved {
		t.Errorf("got %v of kind %v, want %q", err, errs.KindOf(err), want)
	}
}

// A snapshot names the head that it begins at: without it a node that has just loaded
// one would depose nobody until the next commit, and might mix two histories.
func TestSnapshotNamesItsHead(t *testing.T) {
	t.Parallel()
	a := run(t, settings(config.Primary, "a", etcdtest.Start(t).Endpoints()))
	a.serves()
	p := &peers{clusterID: "mooncake_cluster", nodeID: "s"}
	at, err := p.Fetch(t.Context(), a.RPCAddress(), func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if h := at.Head; h.FailoverAfter() == 0 || h.History == "" || h.Bytes == 0 || at.Value() == "" || at.Revision == 0 {
		t.Errorf("%+v; want a head with failover time, history, bytes, value and revision", at)
	}
}

// A node that cannot take its second port gives the first one back.
func TestPortsAreGivenBack(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	c := settings(config.Primary, "a", nil)
	c.Listen.RPCPort = 20_000 + rand.IntN(10_000) // below the ports that are given out
	c.Listen.MetricsPort = taken.Addr().(*net.TCPAddr).Port
	for range 2 { // the second time it would be the first port that is taken
		if _, err := New(c, "v-test", zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "--metrics_port") {
			t.Errorf("got %v, want an error with \"--metrics_port\"", err)
		}
	}
}

// Whatever of a node fails ends all of it, with the reason, and nothing stays
// behind (TestMain).
func TestNodeThatFails(t *testing.T) {
	t.Run("a server", func(t *testing.T) {
		a, err := New(settings(config.Primary, "a", nil), "v-test", zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		_ = a.rpcListener.Close()
		if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "serving coro_rpc") {
			t.Errorf("it ended with %v, want an error with \"serving coro_rpc\"", err)
		}
	})
	t.Run("the ready file", func(t *testing.T) {
		c := settings(config.Primary, "a", nil)
		c.Node.ReadyFile = t.TempDir() + "/none/ready"
		a, err := New(c, "v-test", zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--ready-file") {
			t.Errorf("it ended with %v, want an error with \"--ready-file\"", err)
		}
	})
	t.Run("its etcd at the start", func(t *testing.T) {
		c := settings(config.Primary, "a", nil)
		c.HA.Enabled, c.Node.DataDir = true, "/dev/null"
		a, err := New(c, "v-test", zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("it ended with %v, want an error with \"--data-dir\"", err)
		}
	})
}

// What a node without HA does not have, it says.
func TestWithoutHA(t *testing.T) {
	a := run(t, settings(config.Primary, "a", nil))
	a.serves()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := a.admin.Handover(ctx, &pb.HandoverRequest{Term: 1})
	refusedWithoutHA(t, "handover", err)
	_, err = a.admin.StartEmpty(ctx, &pb.StartEmptyRequest{Term: 1})
	refusedWithoutHA(t, "start-empty", err)
	_, err = a.admin.History(ctx, &pb.HistoryRequest{})
	refusedWithoutHA(t, "history", err)
	_, err = a.admin.Forget(ctx, &pb.ForgetRequest{NodeId: "b"})
	refusedWithoutHA(t, "forget", err)
	events, err := a.admin.Events(ctx, &pb.EventsRequest{})
	if err == nil {
		_, err = events.Recv()
	}
	refusedWithoutHA(t, "events", err)
	if _, err := (&peers{clusterID: "mooncake_cluster", nodeID: "x"}).Fetch(ctx, a.RPCAddress(), nil); !errors.Is(err, errs.NotSupported) {
		t.Errorf("a snapshot: got %v, want NotSupported", err)
	}
	d, err := a.admin.Digest(ctx, &pb.DigestRequest{})
	if err != nil || d.GetSequence() == 0 {
		t.Errorf("digest: %v, %v; want that of a sequence above 0", d, err)
	}
}

func refusedWithoutHA(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "--enable_ha=false") {
		t.Errorf("%s: got %v, want an error with \"--enable_ha=false\"", what, err)
	}
}

// An order that waits for its node to serve ends when another node does.
func TestAnOrderEndsWhenAnotherNodeServes(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, settings(config.Primary, "a", etcd))
	term := metadata.Term(a.serves().GetHeader().GetTerm())
	b := run(t, settings(config.Standby, "b", etcd))
	b.promotable()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := b.node.(*clusterNode).untilServes(ctx, "Refound", "this node was elected", term-1)
	if !errors.Is(err, errs.Unresolved) || !strings.Contains(err.Error(), "node a serves since, in term") || ctx.Err() != nil {
		t.Errorf("got %v, want Unresolved at once, and the node that serves", err)
	}
}
