package ctl

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// The quick start: lend memory, put, get, kill the master, get again; and what
// an operator does besides.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	master, standby := c.pair()
	t.Setenv("UNDERSTUDY_ADDRESS", master.RPC+","+standby.RPC)

	run(t, "put", "hello").want(t, exitFailed, "NO_AVAILABLE_HANDLE (-200)", "masterctl segments mount")
	host := mount(t, "host-1", "--size=64MiB", "--address", master.RPC) // finds the standby by itself
	if !strings.Contains(host.out.String(), "mounted host-1: 64 MiB") {
		t.Errorf("got %q", host.out.String())
	}

	t.Run("objects", testObjects)
	t.Run("over Mooncake's protocol", testMooncake)
	t.Run("segments", testSegments)
	t.Run("removals", testRemovals)
	t.Run("status", func(t *testing.T) { testStatus(t, c) })
	t.Run("digest", testDigest)
	t.Run("events", testEvents)
	t.Run("handover", testHandover)

	follow := start(t, "events", "--follow", "-o=json", "--address", standby.RPC) // finds the other node by itself
	followed(t, follow, "before")
	run(t, "put", "hello", "--size=1MiB").want(t, exitOK)
	before := decode[getResult](t, run(t, "get", "hello", "-o", "json"))
	standby.Kill() // the primary since the handover
	after := decode[getResult](t, run(t, "get", "hello", "-o", "json").want(t, exitOK))
	if after.Objects[0].ID != before.Objects[0].ID || *after.Term <= *before.Term {
		t.Errorf("before the takeover %+v, after it %+v", before, after)
	}
	testFollowed(t, follow)
	eventually(t, "it is known that b has gone", func() bool {
		return strings.Contains(run(t, "status", "--etcd_endpoints", strings.Join(c.etcd.Etcd, ",")).want(t, exitOK).out, "no standby could take over now")
	})
	if code := host.interrupt(); code != exitOK || !strings.Contains(host.err.String(), "the primary is a at") || !strings.Contains(host.err.String(), "unmounted host-1") {
		t.Errorf("the host ended with %d: %s", code, host.err.String())
	}
	if s := decode[segmentsResult](t, run(t, "segments", "-o", "json")); len(s.Segments) != 0 {
		t.Errorf("after Ctrl-C of the host: %+v", s.Segments)
	}
	testStartEmpty(t, c, master.Kill)
}

// What Mooncake's protocol can say works over it; the rest asks for gRPC.
func testMooncake(t *testing.T) {
	over := func(args ...string) outcome { return run(t, append(args, "--protocol=mooncake")...) }
	p := decode[putResult](t, over("put", "m", "--size=64KiB", "-o", "json"))
	if p.Key != "m" || p.ID == "" || p.Term != nil || p.View == nil || *p.View == 0 {
		t.Errorf("got %+v", p)
	}
	over("put", "m", "--size=1").want(t, exitFailed, "OBJECT_ALREADY_EXISTS (-705)")
	got := decode[getResult](t, over("get", "m", "-o", "json"))
	if o := got.Objects[0]; o.ID != p.ID || o.Lease == nil || *o.Lease < 1000 || o.Replicas[0].Address != p.Replicas[0].Address {
		t.Errorf("put %+v, got %+v", p, o)
	}
	run(t, "get", "m").want(t, exitOK, p.ID) // over gRPC
	over("exists", "m", "nothing").want(t, exitOK, "m         true", "nothing   false")
	over("rm", "m").want(t, exitFailed, "OBJECT_HAS_LEASE (-706)")
	over("rm", "m", "--force").want(t, exitOK)
	over("put-start", "m", "--size=1").want(t, exitOK, "in view version ")
	over("put-end", "m").want(t, exitOK, "in view version ")
	over("rm-regex", "^m$", "--force").want(t, exitOK)
	over("get", "m").want(t, exitFailed, "OBJECT_NOT_FOUND (-704)")
	for _, args := range [][]string{{"status"}, {"digest"}, {"segments"}, {"events"}, {"handover"}, {"segments", "unmount", "host-1"}} {
		over(args...).want(t, exitUsage, "needs gRPC; leave out --protocol=mooncake")
	}
	testMountOverMooncake(t)
	run(t, "exists", "m", "--protocol=mooncake", "--mooncake-generation=v9").want(t, exitUsage, "known are head")
	run(t, "exists", "m", "--protocol=mooncake", "--mooncake-generation=v0.3.11").want(t, exitFailed, "does not speak Mooncake's generation v0.3.11")
}

// A segment is mounted over the protocol that all commands are told, and its own
// one is another matter.
func testMountOverMooncake(t *testing.T) {
	host := mount(t, "host-2", "--size=1MiB", "--protocol=mooncake", "--transfer-protocol=rdma", "-o=json")
	mounted := decode[mountResult](t, outcome{out: host.out.String()})
	if mounted.Term != nil || mounted.View == nil {
		t.Errorf("mounted %+v over gRPC", mounted)
	}
	found := false
	for _, s := range decode[segmentsResult](t, run(t, "segments", "-o", "json")).Segments {
		found = found || s.ID == mounted.ID && s.Protocol == "rdma"
	}
	if !found {
		t.Errorf("%+v is not mounted, or not for rdma", mounted)
	}
	if code := host.interrupt(); code != exitOK || !strings.Contains(host.err.String(), "unmounted host-2") {
		t.Errorf("the host ended with %d: %s", code, host.err.String())
	}
}

func testObjects(t *testing.T) {
	p := decode[putResult](t, run(t, "put-start", "k", "--slice=64KiB", "--slice", "4096", "--soft-pin", "--soft-pin-ttl=1m", "-o", "json"))
	if p.Key != "k" || p.Size != 68<<10 || len(p.Replicas) != 1 || p.Replicas[0].Segment != "host-1" || p.Replicas[0].Address == 0 || p.View != nil || *p.Term == 0 {
		t.Errorf("got %+v", p)
	}
	run(t, "get", "k").want(t, exitFailed, "k: BatchGetReplicaList: REPLICA_IS_NOT_READY (-703)", "masterctl put-end")
	run(t, "put-start", "k", "--size=1").want(t, exitFailed, "OBJECT_ALREADY_EXISTS (-705)", "what to do")
	run(t, "put-end", "k", "--client-id", uuid.NewString()).want(t, exitFailed, "ILLEGAL_CLIENT (-601)", "--client-id")
	end := decode[finishResult](t, run(t, "put-end", "k", "--id", p.ID, "-o", "json"))
	if end.Key != "k" || end.ID != p.ID || end.Done != "ended" || *end.Term != *p.Term {
		t.Errorf("got %+v", end)
	}
	got := decode[getResult](t, run(t, "get", "k", "nothing", "-o", "json").
		want(t, exitFailed, "1 of 2 failed", "nothing: BatchGetReplicaList: OBJECT_NOT_FOUND (-704)"))
	if o := got.Objects[0]; o.ID != p.ID || o.Lease == nil || *o.Lease < 1000 || *o.Lease > 10_000 || o.Replicas[0] != p.Replicas[0] {
		t.Errorf("put %+v, got %+v", p, o)
	}
	if o := got.Objects[1]; o.Error == nil || o.Error.Number != -704 || o.Error.Kind != "OBJECT_NOT_FOUND" {
		t.Errorf("got %+v", o)
	}
	run(t, "get", "k").want(t, exitOK, "KEY", p.ID, "68 KiB", "host-1 at 0x")
	run(t, "exists", "k", "nothing").want(t, exitOK, "k         true", "nothing   false")
	if e := decode[existsResult](t, run(t, "exists", "k", "nothing", "-o", "json")); !e.Keys[0].Exists || e.Keys[1].Exists {
		t.Errorf("got %+v", e)
	}
	run(t, "put-start", "given-up", "--size=1KiB").want(t, exitOK, "reserved given-up", "host-1")
	run(t, "put-revoke", "given-up").want(t, exitOK, "revoked given-up")
	run(t, "put-revoke", "given-up").want(t, exitFailed, "OBJECT_NOT_FOUND (-704)")
	run(t, "get", strings.Repeat("k", 5000)).want(t, exitFailed, "INVALID_KEY (-400)")
}

func testSegments(t *testing.T) {
	list := decode[segmentsResult](t, run(t, "segments", "-o", "json"))
	if len(list.Segments) != 1 {
		t.Fatalf("got %+v", list)
	}
	if s := list.Segments[0]; s.Name != "host-1" || s.Size != 64<<20 || s.Used == 0 || s.Endpoint != "host-1" {
		t.Errorf("got %+v", s)
	}
	run(t, "segments", "list").want(t, exitOK, "NAME", "host-1", "64 MiB")

	two := [2]*background{mount(t, "twin", "--size=1MiB", "--endpoint=x"), mount(t, "twin", "--size=1MiB", "--endpoint=y", "--keep", "-o=json")}
	var mounted mountResult
	if err := json.Unmarshal([]byte(two[1].out.String()), &mounted); err != nil || mounted.Name != "twin" || mounted.Endpoint != "y" {
		t.Errorf("%v: %+v", err, mounted)
	}
	run(t, "segments", "unmount", "twin").want(t, exitFailed, "2 segments have the name", mounted.ID)
	run(t, "segments", "unmount", "nobody").want(t, exitFailed, "SEGMENT_NOT_FOUND (-101)", "masterctl segments lists")
	for _, b := range two {
		if code := b.interrupt(); code != exitOK {
			t.Errorf("exit status %d: %s", code, b.err.String())
		}
	}
	// One was unmounted at its end, the other was kept.
	run(t, "segments").want(t, exitOK, mounted.ID)
	if u := decode[unmountResult](t, run(t, "segments", "unmount", "twin", "-o", "json")); u.ID != mounted.ID {
		t.Errorf("unmounted %s, want %s", u.ID, mounted.ID)
	}
	run(t, "segments", "unmount", mounted.ID).want(t, exitFailed, "SEGMENT_NOT_FOUND")
}

func testRemovals(t *testing.T) {
	for i := range 6 {
		run(t, "put", fmt.Sprint("old/", i), "--size=4096").want(t, exitOK, "put old/")
	}
	run(t, "get", "old/0").want(t, exitOK)
	run(t, "rm", "old/0", "old/1", "nothing").want(t, exitFailed, "2 of 3 failed", "old/0: BatchRemove: OBJECT_HAS_LEASE (-706)", "removed old/1")
	r := decode[removeResult](t, run(t, "rm", "old/0", "--force", "-o", "json"))
	if len(r.Keys) != 1 || !r.Keys[0].Removed || r.Keys[0].Error != nil {
		t.Errorf("got %+v", r)
	}
	run(t, "rm-regex", "old/[23]").want(t, exitOK, "removed 2 object(s)")
	run(t, "rm-regex", "(").want(t, exitFailed, "INVALID_PARAMS (-600)")
	if r := decode[removedResult](t, run(t, "rm-regex", "nothing", "-o", "json")); r.Removed != 0 || *r.Term == 0 {
		t.Errorf("got %+v", r)
	}
	if r := decode[removedResult](t, run(t, "rm-all", "--yes", "--force", "-o", "json")); r.Removed != 3 { // k, old/4, old/5
		t.Errorf("removed %d objects, want 3", r.Removed)
	}
}

func testStatus(t *testing.T, c *cluster) {
	gone := deadAddress(t)
	s := decode[statusResult](t, run(t, "status", "-o", "json", "--etcd-endpoints", strings.Join(c.etcd.Etcd, ","), "--address", gone))
	if s.Leader == nil || s.Leader.NodeID != "a" || s.Leader.Term != 1 || len(s.Nodes) != 3 {
		t.Fatalf("got %+v", s)
	}
	dead, a, b := s.Nodes[0], s.Nodes[1], s.Nodes[2]
	if dead.Address != gone || dead.Error == "" {
		t.Errorf("got %+v", dead)
	}
	if a.NodeID != "a" || a.Role != "primary" || a.Segments != 1 || a.Capacity != 64<<20 || a.Digest == "" || a.Error != "" {
		t.Errorf("got %+v", a)
	}
	if b.NodeID != "b" || b.Role != "standby" || !b.Promotable || b.Sequence == 0 || b.Version == "" {
		t.Errorf("got %+v", b)
	}
	run(t, "status", "--address", a.Address).want(t, exitOK, "NODE", "primary", "serves", "standby", "yes", a.Address, b.Address)
	_, port, _ := net.SplitHostPort(a.Address)
	if s, _ := statusBy(t, "a", "--address", "localhost:"+port+","+a.Address); len(s.Nodes) != 2 {
		t.Errorf("a node with two addresses is shown twice: %+v", s.Nodes)
	}
	run(t, "status", "--cluster-id=other", "--address", a.Address).want(t, exitFailed, "it belongs to cluster", "--cluster-id")
	run(t, "get", "k", "--cluster-id=other", "--address", a.Address).want(t, exitFailed, "cluster")
	run(t, "status", "--cluster-id=other", "--etcd_endpoints", strings.Join(c.etcd.Etcd, ",")).want(t, exitFailed, "no node is registered", "--cluster-id")
}

func testDigest(t *testing.T) {
	d := decode[digestResult](t, run(t, "digest", "-o", "json"))
	if !d.Equal || d.Sequence == 0 || len(d.Nodes) != 2 || d.Nodes[0].Digest == "" || d.Nodes[0].Digest != d.Nodes[1].Digest {
		t.Errorf("got %+v", d)
	}
	run(t, "digest").want(t, exitOK, "equal at sequence", d.Nodes[1].Address)
}

func testEvents(t *testing.T) {
	run(t, "events").want(t, exitOK, "TERM_START", "MOUNT_SEGMENT", "PUT_START", "REMOVE_ALL")
	follow := start(t, "events", "--follow", "--output=json")
	var last eventResult
	eventually(t, "the put is followed", func() bool {
		run(t, "put", "followed").want(t, exitOK)
		run(t, "rm", "followed").want(t, exitOK)
		line, _, _ := strings.Cut(follow.out.String(), "\n")
		return json.Unmarshal([]byte(line), &last) == nil
	})
	if last.Type == "" || last.Sequence == 0 || last.Stream == "" || len(last.Event) == 0 {
		t.Errorf("got %+v", last)
	}
	if code := follow.interrupt(); code != exitOK {
		t.Errorf("Ctrl-C ends following with %d: %s", code, follow.err.String())
	}
	newest := strings.Split(strings.TrimSpace(run(t, "events", "--limit=2", "-o", "json").want(t, exitOK).out), "\n")
	if len(newest) != 2 || !strings.Contains(newest[1], `"type":"REMOVE"`) {
		t.Errorf("the newest two events: %q", newest)
	}
	some := run(t, "events", "--follow", "--from=1", "--limit=3").want(t, exitOK, "TERM_START")
	if lines := strings.Count(some.out, "\n"); lines != 4 { // and a head
		t.Errorf("got %d lines, want 4:\n%s", lines, some.out)
	}
}

func testHandover(t *testing.T) {
	run(t, "handover", "--to=nobody").want(t, exitFailed, "INVALID_PARAMS (-600)", "nobody")
	run(t, "start-empty", "--yes").want(t, exitUsage, "2 nodes answer", "--node")
	run(t, "start-empty", "--yes", "--node=nobody").want(t, exitFailed, `no node "nobody"`)
	run(t, "start-empty", "--yes", "--node=b").want(t, exitFailed, "INVALID_PARAMS (-600)", "standby")
	run(t, "start-empty", "--yes", "--node=a").want(t, exitFailed, "UNAVAILABLE_IN_CURRENT_STATUS (-1010)")
	// What etcd says of a node is up to a second old, so it may be refused first.
	var o outcome
	hand := func(args ...string) func() bool {
		return func() bool {
			o = run(t, append([]string{"handover"}, args...)...)
			return o.code == exitOK
		}
	}
	eventually(t, "a has handed over", hand("-o", "json"))
	if h := decode[handoverResult](t, o); h.From != "a" || h.To != "b" || h.Address == "" {
		t.Errorf("got %+v", h)
	}
	eventually(t, "b has handed over to a", hand("--to=a"))
	o.want(t, exitOK, "b has handed over to a at")
	eventually(t, "a has handed over to b", hand("--to=b"))
	eventually(t, "a could take over", func() bool {
		_, a := statusBy(t, "a")
		return a.Promotable
	})
}

// testStartEmpty ends the last node and starts another one, which does not know
// the state.
func testStartEmpty(t *testing.T, c *cluster, kill func()) {
	kill()
	last := c.node("c", "__master")
	t.Setenv("UNDERSTUDY_ADDRESS", last.RPC)
	if s, n := statusBy(t, "c"); s.Leader != nil || n.Promotable {
		t.Fatalf("c serves what it cannot know: %+v", n)
	}
	run(t, "handover").want(t, exitFailed, "UNAVAILABLE_IN_CURRENT_MODE (-1011)", "nobody serves")
	var o outcome
	eventually(t, "the session of the last primary has ended", func() bool {
		o = run(t, "start-empty", "--yes", "--node=c", "-o", "json")
		return o.code == exitOK
	})
	if r := decode[startEmptyResult](t, o); r.NodeID != "c" || r.Term == 0 {
		t.Errorf("got %+v", r)
	}
	c.serves("c", last)
	run(t, "status").want(t, exitOK, "this term started empty")
}

// Two masters that do not know of one another have different states.
func TestDigestsDiffer(t *testing.T) {
	both := [2]string{lone(t, "x").RPC, lone(t, "y").RPC}
	for i, at := range both {
		host := mount(t, fmt.Sprint("host-", i), "--size=1MiB", "--address", at)
		defer host.interrupt()
	}
	at := strings.Join(both[:], ",")
	run(t, "digest", "--address", at).want(t, exitFailed, "NOT EQUAL", "the digests differ")
	if d := decode[digestResult](t, run(t, "digest", "-o", "json", "--address", at)); d.Equal {
		t.Errorf("got %+v", d)
	}
}

func TestLoneMaster(t *testing.T) {
	at := "--address=" + lone(t, "x").RPC
	mount(t, "host", "--size=1MiB", at)
	run(t, "put", "k", "--size=4KiB", at).want(t, exitOK)
	run(t, "get", "k", at).want(t, exitOK, "4.0 KiB")
	run(t, "status", at).want(t, exitOK, "high availability is off")
	for _, args := range [][]string{{"events"}, {"handover"}, {"start-empty", "--yes"}} {
		run(t, append(args, at)...).want(t, exitFailed, "NOT_SUPPORTED (-1012)", "--enable_ha=true")
	}
}
