package ctl

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// The quick start: lend memory, put, get, kill the master, get again; and what
// an operator does besides.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	master, standby := c.pair()
	t.Setenv("UNDERSTUDY_ADDRESS", master.RPC+","+standby.RPC)

	run(t, "put", "hello").Want(t, cli.StatusFailed, "NO_AVAILABLE_HANDLE (-200)", "masterctl segments mount")
	host := mount(t, "host-1", "--size=64MiB", "--address", master.RPC) // finds the standby by itself
	if !strings.Contains(host.Out.String(), "mounted host-1: 64 MiB") {
		t.Errorf("got %q, want \"mounted host-1: 64 MiB\"", host.Out.String())
	}

	t.Run("objects", testObjects)
	t.Run("over Mooncake's protocol", testMooncake)
	t.Run("listings", testListings)
	t.Run("explain", testExplain)
	t.Run("segments", testSegments)
	t.Run("unmounting asks", testUnmountAsks)
	t.Run("removals", testRemovals)
	t.Run("status", func(t *testing.T) { testStatus(t, c) })
	t.Run("doctor", testDoctor)
	t.Run("watching", testWatching)
	t.Run("digest", testDigest)
	t.Run("events", testEvents)
	t.Run("newest events", testNewestEvents)
	t.Run("backup", testBackup)
	t.Run("handover", testHandover)
	t.Run("forget", testForget)

	follow := clitest.Start(t, Command(), "events", "--follow", "-o=json", "--address", standby.RPC) // finds the other node by itself
	followed(t, follow, "before")
	run(t, "put", "hello", "--size=1MiB").Want(t, cli.StatusOK)
	before := clitest.Decode[getResult](t, run(t, "get", "hello", "-o", "json"))
	standby.Kill() // the primary since the handover
	after := clitest.Decode[getResult](t, run(t, "get", "hello", "-o", "json").Want(t, cli.StatusOK))
	if after.Objects[0].ID != before.Objects[0].ID || *after.Term <= *before.Term {
		t.Errorf("before the takeover %+v, after it %+v; want the same object in a later term", before, after)
	}
	testFollowed(t, follow)
	clitest.Eventually(t, "it is known that b has gone", func() bool {
		said := run(t, "status", "--etcd_endpoints", strings.Join(c.etcd.Etcd, ",")).Want(t, cli.StatusFailed).Out
		return strings.Contains(said, "warning of a: no standby could take over now") && strings.Contains(said, "warning of a: nodes that hold the whole state are away: b;")
	})
	run(t, "doctor", "--etcd_endpoints", strings.Join(c.etcd.Etcd, ",")).Want(t, cli.StatusFailed, "a says: nodes that hold the whole state are away: b;")
	if end := host.Interrupt(); end.Status != cli.StatusOK || !strings.Contains(host.Err.String(), "the primary is a at") || !strings.Contains(host.Err.String(), "unmounted host-1") {
		t.Errorf("the host ended with %d: %s; want 0, the new primary named, and an unmount", end.Status, host.Err.String())
	}
	if s := clitest.Decode[segmentsResult](t, run(t, "segments", "-o", "json")); len(s.Segments) != 0 {
		t.Errorf("after Ctrl-C of the host: got %+v, want no entries", s.Segments)
	}
	testStartEmpty(t, c, master.Kill)
}

// What Mooncake's protocol can say works over it; the rest asks for gRPC.
func testMooncake(t *testing.T) {
	over := func(args ...string) clitest.Outcome { return run(t, append(args, "--protocol=mooncake")...) }
	p := clitest.Decode[putResult](t, over("put", "m", "--size=64KiB", "-o", "json"))
	if p.Key != "m" || p.ID == "" || p.Term != nil || p.View == nil || *p.View == 0 {
		t.Errorf("got %+v; want m with an id and a view version, and no term", p)
	}
	over("put", "m", "--size=1").Want(t, cli.StatusFailed, "OBJECT_ALREADY_EXISTS (-705)")
	got := clitest.Decode[getResult](t, over("get", "m", "-o", "json"))
	if o := got.Objects[0]; o.ID != p.ID || o.Lease == nil || *o.Lease < 1000 || o.Replicas[0].Address != p.Replicas[0].Address {
		t.Errorf("put %+v, got %+v; want the same object, leased", p, o)
	}
	run(t, "get", "m").Want(t, cli.StatusOK, p.ID) // over gRPC
	over("exists", "m", "nothing").Want(t, cli.StatusOK, "m         true", "nothing   false")
	over("rm", "m").Want(t, cli.StatusFailed, "OBJECT_HAS_LEASE (-706)")
	over("rm", "m", "--force").Want(t, cli.StatusOK)
	over("put-start", "m", "--size=1").Want(t, cli.StatusOK, "in view version ")
	over("put-end", "m").Want(t, cli.StatusOK, "in view version ")
	over("rm-regex", "^m$", "--force", "--yes").Want(t, cli.StatusOK)
	over("get", "m").Want(t, cli.StatusFailed, "OBJECT_NOT_FOUND (-704)")
	for _, args := range [][]string{{"status"}, {"digest"}, {"segments"}, {"events"}, {"handover"}, {"segments", "unmount", "host-1"}} {
		over(args...).Want(t, cli.StatusUsage, "needs gRPC; leave out --protocol=mooncake")
	}
	testMountOverMooncake(t)
	run(t, "exists", "m", "--protocol=mooncake", "--mooncake-generation=v9").Want(t, cli.StatusUsage, "known are head")
	run(t, "exists", "m", "--protocol=mooncake", "--mooncake-generation=v0.3.11").Want(t, cli.StatusFailed, "does not speak Mooncake's generation v0.3.11")
}

// A segment is mounted over the protocol of --protocol; its own transfer protocol
// is another one.
func testMountOverMooncake(t *testing.T) {
	host := mount(t, "host-2", "--size=1MiB", "--protocol=mooncake", "--transfer-protocol=rdma", "-o=json")
	mounted := clitest.Decode[mountResult](t, clitest.Outcome{Out: host.Out.String()})
	if mounted.Term != nil || mounted.View == nil {
		t.Errorf("mounted %+v over gRPC; want a view version and no term", mounted)
	}
	found := false
	for _, s := range clitest.Decode[segmentsResult](t, run(t, "segments", "-o", "json")).Segments {
		found = found || s.ID == mounted.ID && s.Protocol == "rdma"
	}
	if !found {
		t.Errorf("segment %s: got it not mounted, or not for rdma, want both", mounted.ID)
	}
	if end := host.Interrupt(); end.Status != cli.StatusOK || !strings.Contains(host.Err.String(), "unmounted host-2") {
		t.Errorf("the host ended with %d: %s; want 0 and an unmount", end.Status, host.Err.String())
	}
}

func testObjects(t *testing.T) {
	p := clitest.Decode[putResult](t, run(t, "put-start", "k", "--slice=64KiB", "--slice", "4096", "--soft-pin", "--soft-pin-ttl=1m", "-o", "json"))
	if p.Key != "k" || p.Size != 68<<10 || len(p.Replicas) != 1 || p.Replicas[0].Segment != "host-1" || p.Replicas[0].Address == 0 || p.View != nil || *p.Term == 0 {
		t.Errorf("got %+v; want k of 68 KiB in host-1, in a term", p)
	}
	run(t, "get", "k").Want(t, cli.StatusFailed, "k: BatchGetReplicaList: REPLICA_IS_NOT_READY (-703)", "masterctl put-end")
	run(t, "put-start", "k", "--size=1").Want(t, cli.StatusFailed, "OBJECT_ALREADY_EXISTS (-705)", "what to do")
	run(t, "put-end", "k", "--client-id", uuid.NewString()).Want(t, cli.StatusFailed, "ILLEGAL_CLIENT (-601)", "--client-id")
	end := clitest.Decode[finishResult](t, run(t, "put-end", "k", "--id", p.ID, "-o", "json"))
	if end.Key != "k" || end.ID != p.ID || end.Done != "ended" || *end.Term != *p.Term {
		t.Errorf("got %+v; want k ended in the same term", end)
	}
	got := clitest.Decode[getResult](t, run(t, "get", "k", "nothing", "-o", "json").
		Want(t, cli.StatusFailed, "1 of 2 failed", "nothing: BatchGetReplicaList: OBJECT_NOT_FOUND (-704)"))
	if o := got.Objects[0]; o.ID != p.ID || o.Lease == nil || *o.Lease < 1000 || *o.Lease > 10_000 || o.Replicas[0] != p.Replicas[0] {
		t.Errorf("put %+v, got %+v; want the same object under a lease of at most 10 s", p, o)
	}
	if o := got.Objects[1]; o.Error == nil || o.Error.Number != -704 || o.Error.Kind != "OBJECT_NOT_FOUND" {
		t.Errorf("got %+v; want OBJECT_NOT_FOUND, -704", o)
	}
	run(t, "get", "k").Want(t, cli.StatusOK, "KEY", p.ID, "68 KiB", "host-1 at 0x")
	run(t, "exists", "k", "nothing").Want(t, cli.StatusOK, "k         true", "nothing   false")
	if e := clitest.Decode[keysResult[existenceResult]](t, run(t, "exists", "k", "nothing", "-o", "json")); !e.Keys[0].Exists || e.Keys[1].Exists {
		t.Errorf("got %+v; want true, false", e)
	}
	run(t, "put-start", "given-up", "--size=1KiB").Want(t, cli.StatusOK, "reserved given-up", "host-1")
	run(t, "put-revoke", "given-up").Want(t, cli.StatusOK, "revoked given-up")
	run(t, "put-revoke", "given-up").Want(t, cli.StatusFailed, "OBJECT_NOT_FOUND (-704)")
	run(t, "get", strings.Repeat("k", 70_000)).Want(t, cli.StatusFailed, "INVALID_KEY (-400)")
}

// testListings looks at an object, its lease, its memory and its client, without
// granting a lease.
func testListings(t *testing.T) {
	run(t, "put", "seen", "--size=4KiB", "--hard-pin").Want(t, cli.StatusOK)
	for range 2 { // to explain grants no lease
		x := clitest.Decode[explanation](t, run(t, "explain", "seen", "-o", "json"))
		if o := x.Object; o == nil || o.Lease != 0 || o.Pin != "hard" || o.BlocksRemoval != "" || o.BlocksEviction != "it is pinned hard" ||
			len(o.Replicas) != 1 || o.Replicas[0].State != "complete" || o.Replicas[0].SegmentStatus != "OK" || len(x.History) != 2 || x.HistoryNote != "" {
			t.Errorf("got %+v of %+v; want a pinned object with its replica, two events and no lease", x.Object, x)
		}
	}
	run(t, "get", "seen").Want(t, cli.StatusOK)
	run(t, "explain", "seen").Want(t, cli.StatusOK, "complete on host-1", "lease      for another ", "hard: never evicted", "blocked: a reader holds a lease", "blocked: it is pinned hard", "PUT_START", "PUT_END")
	if list := clitest.Decode[leaseList](t, run(t, "leases", "--prefix=see", "-o", "json")); len(list.Leases) != 1 || list.Leases[0].Key != "seen" || list.Leases[0].Remaining == 0 {
		t.Errorf("leases: got %+v, want that of seen", list)
	}
	run(t, "leases", "--limit=1").Want(t, cli.StatusOK, "LEASED FOR")
	var ours rangeResult
	for _, r := range clitest.Decode[rangeList](t, run(t, "ranges", "host-1", "--state=live", "-o", "json")).Ranges {
		if r.Key == "seen" {
			ours = r
		}
	}
	if ours.Segment != "host-1" || ours.Length != 4<<10 || ours.State != "live" || ours.Object == "" {
		t.Errorf("ranges: got %+v, want 4 KiB of host-1", ours)
	}
	for _, id := range []string{"a", "b"} {
		if list := clitest.Decode[rangeList](t, run(t, "ranges", "--node", id, "-o", "json")); list.NodeID != id || len(list.Ranges) == 0 {
			t.Errorf("ranges of node %s: got %+v, want some of it", id, list)
		}
	}
	run(t, "ranges", "--node=nobody").Want(t, cli.StatusFailed, `no node "nobody" answers`)
	run(t, "ranges", "nowhere").Want(t, cli.StatusFailed, "DumpRanges: SEGMENT_NOT_FOUND (-101)")
	mount(t, "host-of-lost", "--size=1MiB", "--address", os.Getenv("UNDERSTUDY_ADDRESS")).Interrupt().Want(t, cli.StatusOK)
	lost := run(t, "explain", "never-put").Want(t, cli.StatusFailed, "unmounts may have taken it")
	if strings.Contains(lost.Out, "REMOVE") {
		t.Errorf("explain a key that was never put: got\n%s\nwant no removal, which it never had", lost.Out)
	}
	run(t, "rm", "seen", "--force").Want(t, cli.StatusOK)
	gone := run(t, "explain", "seen", "-o", "yaml").Want(t, cli.StatusFailed, "OBJECT_NOT_FOUND (-704)", "object: null", "type: REMOVE")
	if strings.Contains(gone.Out, "blocks_") || strings.Contains(gone.Out, "unmounts_since") {
		t.Errorf("explain an object that has gone: got\n%s\nwant nothing of what blocks a removal, nor of unmounts", gone.Out)
	}
	if list := clitest.Decode[rangeList](t, run(t, "ranges", "--state=quarantined", "-o", "json")); len(list.Ranges) == 0 || list.Ranges[0].Frees == nil {
		t.Errorf("after a forced removal: got %+v, want memory in quarantine", list)
	}
	c := clitest.Decode[clientList](t, run(t, "clients", "-o", "json"))
	lends := func(c clientResult) bool {
		return slices.Contains(c.Segments, "host-1") && c.Capacity > 0 && c.Expires != nil
	}
	if c.TTL == 0 || int(c.Total) != len(c.Clients) || !slices.ContainsFunc(c.Clients, lends) {
		t.Errorf("clients: got %+v, want the host, watched", c)
	}
	run(t, "clients").Want(t, cli.StatusOK, "EXPIRES IN", "host-1", "64 MiB")
	run(t, "put", "huge", "--size=10GiB").Want(t, cli.StatusFailed, "can never fit", "host-1, has 64 MiB")
	if o := run(t, "put", "huge", "--size=10GiB"); strings.Contains(o.Err, "eviction") {
		t.Errorf("an object larger than all memory: got %s, want no advice on eviction: none helps", o.Err)
	}
}

func testSegments(t *testing.T) {
	list := clitest.Decode[segmentsResult](t, run(t, "segments", "-o", "json"))
	if len(list.Segments) != 1 {
		t.Fatalf("got %+v, want 1 entry", list)
	}
	if s := list.Segments[0]; s.Name != "host-1" || s.Size != 64<<20 || s.Used == 0 || s.Endpoint != "host-1" {
		t.Errorf("got %+v; want host-1 with 64 MiB, in use", s)
	}
	run(t, "segments", "list").Want(t, cli.StatusOK, "NAME", "host-1", "64 MiB")

	two := [2]*clitest.Background{mount(t, "twin", "--size=1MiB", "--endpoint=x"), mount(t, "twin", "--size=1MiB", "--endpoint=y", "--keep", "-o=json")}
	var mounted mountResult
	if err := json.Unmarshal([]byte(two[1].Out.String()), &mounted); err != nil || mounted.Name != "twin" || mounted.Endpoint != "y" {
		t.Errorf("%v: got %+v, want \"twin\", \"y\" and no error", err, mounted)
	}
	run(t, "segments", "unmount", "twin").Want(t, cli.StatusFailed, "2 segments have the name", mounted.ID)
	run(t, "segments", "unmount", "nobody").Want(t, cli.StatusFailed, "SEGMENT_NOT_FOUND (-101)", "masterctl segments lists")
	for _, b := range two {
		if end := b.Interrupt(); end.Status != cli.StatusOK {
			t.Errorf("exit status %d: %s; want 0", end.Status, b.Err.String())
		}
	}
	// One was unmounted at its end, the other was kept.
	run(t, "segments").Want(t, cli.StatusOK, mounted.ID)
	if u := clitest.Decode[unmountResult](t, run(t, "segments", "unmount", "--yes", "twin", "-o", "json")); u.ID != mounted.ID {
		t.Errorf("unmounted %s, want %s", u.ID, mounted.ID)
	}
	run(t, "segments", "unmount", mounted.ID).Want(t, cli.StatusFailed, "SEGMENT_NOT_FOUND")
}

// critical is the exit status of a status without a node that serves.
const critical = 2

func testStatus(t *testing.T, c *cluster) {
	gone := deadAddress(t)
	s := clitest.Decode[statusResult](t, run(t, "status", "-o", "json", "--etcd-endpoints", strings.Join(c.etcd.Etcd, ","), "--address", gone))
	if s.Leader == nil || s.Leader.NodeID != "a" || s.Leader.Term != 1 || len(s.Nodes) != 3 {
		t.Fatalf("got %+v; want a as the primary of term 1, and three nodes", s)
	}
	dead, a, b := s.Nodes[0], s.Nodes[1], s.Nodes[2]
	if dead.Address != gone || dead.Error == "" {
		t.Errorf("got %+v; want the address %s and an error", dead, gone)
	}
	if a.NodeID != "a" || a.Role != "primary" || a.Segments != 1 || a.Capacity != 64<<20 || a.Digest == "" || a.Error != "" {
		t.Errorf("got %+v; want a as primary with one segment of 64 MiB", a)
	}
	if b.NodeID != "b" || b.Role != "standby" || !b.Promotable || b.Sequence == 0 || b.Version == "" {
		t.Errorf("got %+v; want b as a promotable standby", b)
	}
	run(t, "status", "--address", a.Address).Want(t, cli.StatusOK, "NODE", "primary", "serves", "standby", "yes", a.Address, b.Address)
	run(t, "pause", "--for=1m", "--address", a.Address).Want(t, cli.StatusOK)
	run(t, "status", "--address", a.Address).Want(t, cli.StatusFailed, "not by itself: automatic takeover is paused")
	run(t, "doctor", "--address", a.Address).Want(t, cli.StatusFailed, "none would take over by itself: automatic takeover is paused")
	run(t, "resume", "--address", a.Address).Want(t, cli.StatusOK)
	_, port, _ := net.SplitHostPort(a.Address)
	if s, _ := statusBy(t, "a", "--address", "localhost:"+port+","+a.Address); len(s.Nodes) != 2 {
		t.Errorf("a node with two addresses is shown twice: got %+v, want 2 entries", s.Nodes)
	}
	testWrongAddress(t, c, a)
	run(t, "status", "--cluster-id=other", "--address", a.Address).Want(t, critical, "it belongs to cluster", "--cluster-id")
	run(t, "get", "k", "--cluster-id=other", "--address", a.Address).Want(t, cli.StatusFailed, "cluster")
	run(t, "status", "--cluster-id=other", "--etcd_endpoints", strings.Join(c.etcd.Etcd, ",")).Want(t, critical, "no node is registered", "--cluster-id")
}

func testDigest(t *testing.T) {
	d := clitest.Decode[digestResult](t, run(t, "digest", "-o", "json"))
	if !d.Equal || d.Sequence == 0 || len(d.Nodes) != 2 || d.Nodes[0].Digest == "" || d.Nodes[0].Digest != d.Nodes[1].Digest {
		t.Errorf("got %+v; want one digest of two nodes", d)
	}
	run(t, "digest").Want(t, cli.StatusOK, "equal at sequence", d.Nodes[1].Address)
}

func testEvents(t *testing.T) {
	run(t, "events").Want(t, cli.StatusOK, "TERM_START", "MOUNT_SEGMENT", "PUT_START", "REMOVE_ALL")
	follow := clitest.Start(t, Command(), "events", "--follow", "--output=json")
	var last eventResult
	clitest.Eventually(t, "the put is followed", func() bool {
		run(t, "put", "followed").Want(t, cli.StatusOK)
		run(t, "rm", "followed").Want(t, cli.StatusOK)
		line, _, _ := strings.Cut(follow.Out.String(), "\n")
		return json.Unmarshal([]byte(line), &last) == nil
	})
	if last.Type == "" || last.Sequence == 0 || last.Stream == "" || len(last.Event) == 0 {
		t.Errorf("got %+v; want type, sequence, stream and event", last)
	}
	if end := follow.Interrupt(); end.Status != cli.StatusOK {
		t.Errorf("Ctrl-C ends following with %d: %s; want 0", end.Status, follow.Err.String())
	}
	newest := strings.Split(strings.TrimSpace(run(t, "events", "--limit=2", "-o", "json").Want(t, cli.StatusOK).Out), "\n")
	if len(newest) != 2 || !strings.Contains(newest[1], `"type":"REMOVE"`) {
		t.Errorf("the newest two events: %q, want two that end with a removal", newest)
	}
	run(t, "put", "named", "--size=1").Want(t, cli.StatusOK)
	run(t, "put", "named", "--size=1").Want(t, cli.StatusFailed, "OBJECT_ALREADY_EXISTS")
	run(t, "put", "named", "--size=2", "--upsert").Want(t, cli.StatusOK)
	var types []string
	for line := range strings.Lines(run(t, "events", "--mention=named", "--type=put_start,put_end", "-o", "json").Want(t, cli.StatusOK).Out) {
		var event eventResult
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		types = append(types, event.Type)
	}
	if want := []string{"PUT_START", "PUT_END", "PUT_START", "PUT_END"}; !slices.Equal(types, want) {
		t.Errorf("events of the puts of one key: got %v, want %v", types, want)
	}
	about := func(flags ...string) []string { return timeless(run(t, append(flags, "events", "-o", "json")...).Out) }
	if got, want := about("--key=named", "--mention=named"), about("--mention=named"); len(want) < 4 || !slices.Equal(got, want) {
		t.Errorf("--key: got\n%s\nwant what --mention gives:\n%s", got, want)
	}
	run(t, "events", "--segment=host-1").Want(t, cli.StatusOK, "MOUNT_SEGMENT")
	mount(t, "host-gone", "--size=1MiB", "--address", os.Getenv("UNDERSTUDY_ADDRESS")).Interrupt().Want(t, cli.StatusOK)
	run(t, "events", "--segment=host-gone").Want(t, cli.StatusOK, "MOUNT_SEGMENT", "UNMOUNT_SEGMENT", "1 segment: host-gone")
	if o := run(t, "events", "--segment=host-1", "--key=named"); strings.Contains(o.Out, "named") {
		t.Errorf("events that name a segment and a key: got\n%s\nwant none: no event names both", o.Out)
	}
	if at, err := time.Parse(time.RFC3339Nano, last.Wall); err != nil || time.Since(at).Abs() > time.Minute || last.Rough {
		t.Errorf("a put of just now has the wall time %q, approximate %v; want now", last.Wall, last.Rough)
	}
	run(t, "events", "--type=PUT_STRAT").Want(t, cli.StatusOK, "no event has the type PUT_STRAT; there are ", "PUT_START")
	run(t, "rm", "named").Want(t, cli.StatusOK)
	if o := run(t, "events", "--since=1ms", "-o", "json").Want(t, cli.StatusOK, `"REMOVE"`); strings.Contains(o.Out, "TERM_START") {
		t.Errorf("events of the last millisecond: got\n%s\nwant no TERM_START, which is older", o.Out)
	}
	some := run(t, "events", "--follow", "--from=1", "--limit=3").Want(t, cli.StatusOK, "TERM_START")
	if lines := strings.Count(some.Out, "\n"); lines != 4 { // and a head
		t.Errorf("got %d lines, want 4:\n%s", lines, some.Out)
	}
}

func testHandover(t *testing.T) {
	run(t, "handover", "--to=nobody").Want(t, cli.StatusFailed, "INVALID_PARAMS (-600)", `no node "nobody" is registered; there are a, b`)
	if o := run(t, "__complete", "handover", "--to", ""); !strings.HasPrefix(o.Out, "b\n:") {
		t.Errorf("--to is completed to %q, want b, and not the primary", o.Out)
	}
	run(t, "start-empty", "--yes").Want(t, cli.StatusUsage, "2 nodes answer", "--node")
	run(t, "start-empty", "--yes", "--node=nobody").Want(t, cli.StatusFailed, `no node "nobody"`)
	run(t, "start-empty", "--yes", "--node=b").Want(t, cli.StatusFailed, "INVALID_PARAMS (-600)", "standby")
	run(t, "start-empty", "--yes", "--node=a").Want(t, cli.StatusFailed, "UNAVAILABLE_IN_CURRENT_STATUS (-1010)")
	// What etcd says of a node is up to a second old, so it may be refused first.
	var o clitest.Outcome
	hand := func(args ...string) func() bool {
		return func() bool {
			o = run(t, append([]string{"handover"}, args...)...)
			return o.Status == cli.StatusOK
		}
	}
	clitest.Eventually(t, "a has handed over", hand("-o", "json"))
	if h := clitest.Decode[handoverResult](t, o); h.From != "a" || h.To != "b" || h.Address == "" {
		t.Errorf("got %+v; want a handover from a to b", h)
	}
	clitest.Eventually(t, "the history has the handover", func() bool {
		terms := clitest.Decode[historyResult](t, run(t, "history", "-o", "json")).Terms
		return len(terms) == 2 && terms[0].NodeID == "a" && terms[0].End == "handed over to b" && terms[1].NodeID == "b" && terms[1].Why == "a handed over"
	})
	run(t, "history").Want(t, cli.StatusOK, "SERVED FROM", "there was no journal", "handed over to b")
	clitest.Eventually(t, "b has handed over to a", hand("--to=a"))
	o.Want(t, cli.StatusOK, "b has handed over to a at")
	clitest.Eventually(t, "a has handed over to b", hand("--to=b"))
	clitest.Eventually(t, "a could take over", func() bool {
		_, a := statusBy(t, "a")
		return a.Promotable
	})
}

// testForget names nodes that run, and one that is not listed: each gets its answer.
func testForget(t *testing.T) {
	var o clitest.Outcome
	clitest.Eventually(t, "a and b are listed", func() bool {
		o = run(t, "forget", "--yes", "a", "nobody", "b")
		return strings.Count(o.Err, "UNAVAILABLE_IN_CURRENT_STATUS") == 2
	})
	o.Want(t, cli.StatusFailed, "a: Forget: UNAVAILABLE_IN_CURRENT_STATUS (-1010)", "b: Forget: UNAVAILABLE_IN_CURRENT_STATUS (-1010)", "3 of 3 failed")
	unlisted := run(t, "forget", "--yes", "nobody", "-o", "json").Want(t, cli.StatusFailed, "INVALID_PARAMS (-600)", `no node "nobody" is listed as complete`, "a (everything", "b (everything")
	r := clitest.Decode[forgetResult](t, unlisted)
	if len(r.NodeIDs) != 0 || !slices.Equal(r.NotListed, []string{"nobody"}) {
		t.Errorf("got %+v, want that nobody is not listed", r)
	}
	run(t, "forget", "--yes", "").WantMisuse(t, "a NODE is empty")
}

// testStartEmpty ends the last node and starts another one, which does not know
// the state.
func testStartEmpty(t *testing.T, c *cluster, kill func()) {
	kill()
	last := c.node("c", "__master")
	t.Setenv("UNDERSTUDY_ADDRESS", last.RPC)
	if s, n := statusBy(t, "c"); s.Leader != nil || n.Promotable {
		t.Fatalf("c serves what it cannot know: %+v; want no leader, and c not promotable", n)
	}
	run(t, "handover").Want(t, cli.StatusFailed, "UNAVAILABLE_IN_CURRENT_MODE (-1011)", "no node serves")
	run(t, "start-empty", "--yes", "--node=c").Want(t, cli.StatusFailed, "UNAVAILABLE_IN_CURRENT_STATUS (-1010)")
	var o clitest.Outcome
	clitest.Eventually(t, "status says why no node serves, and what helps", func() bool {
		o = run(t, "status")
		return strings.Contains(o.Out, "why, says c: no node can take over: c: its state is not complete") &&
			strings.Contains(o.Out, "what to do: start them, or give up what they hold: masterctl forget --yes a b; after that: masterctl start-empty --yes --node=c")
	})
	clitest.Eventually(t, "the sessions of the last nodes have ended", func() bool {
		o = run(t, "forget", "--yes", "a", "b")
		return o.Status == cli.StatusOK
	})
	again := run(t, "forget", "--yes", "a", "b").Want(t, cli.StatusFailed, "2 of 2 failed", "INVALID_PARAMS (-600)", "no node is listed")
	if strings.Contains(again.Out, "nobody waits") {
		t.Errorf("forget a second time: got\n%s\nwant no word that nobody waits for them: it failed", again.Out)
	}
	clitest.Eventually(t, "c starts empty", func() bool {
		o = run(t, "start-empty", "--yes", "--node=c", "-o", "json")
		return o.Status == cli.StatusOK
	})
	if r := clitest.Decode[startEmptyResult](t, o); r.NodeID != "c" || r.Term == 0 {
		t.Errorf("got %+v; want c in a term", r)
	}
	c.serves("c", last)
	run(t, "status").Want(t, cli.StatusFailed, "this term started empty", "mounted memory is given out only in ")
}

// Two masters that do not know of one another have different states.
func TestDigestsDiffer(t *testing.T) {
	both := [2]string{lone(t, "x").RPC, lone(t, "y").RPC}
	for i, at := range both {
		host := mount(t, fmt.Sprint("host-", i), "--size=1MiB", "--address", at)
		defer host.Interrupt()
	}
	at := strings.Join(both[:], ",")
	run(t, "digest", "--address", at).Want(t, cli.StatusFailed, "NOT EQUAL", "the digests differ")
	if d := clitest.Decode[digestResult](t, run(t, "digest", "-o", "json", "--address", at)); d.Equal {
		t.Errorf("got %+v; want two that differ", d)
	}
}

func TestLoneMaster(t *testing.T) {
	at := "--address=" + lone(t, "x").RPC
	mount(t, "host", "--size=1MiB", at)
	run(t, "put", "k", "--size=4KiB", at).Want(t, cli.StatusOK)
	run(t, "get", "k", at).Want(t, cli.StatusOK, "4.0 KiB")
	run(t, "status", at).Want(t, cli.StatusOK, "note of", "high availability is off")
	run(t, "doctor", at).Want(t, cli.StatusOK, "1 of 1 answer", "0 % are in quarantine")
	run(t, "explain", "k", at).Want(t, cli.StatusOK, "complete on host", "so it keeps no journal")
	if o := run(t, "explain", "nothing", at).Want(t, cli.StatusFailed, "OBJECT_NOT_FOUND (-704)", "so it keeps no journal", "what to do: put it first"); strings.Contains(o.Err, "masterctl events") {
		t.Errorf("explain without a journal: got\n%s\nwant no advice to look at events", o.Err)
	}
	run(t, "quota", at).Want(t, cli.StatusFailed, "without --enable_multi_tenants")
	for _, args := range [][]string{{"events"}, {"history"}, {"backup", filepath.Join(t.TempDir(), "x")}, {"handover"}, {"start-empty", "--yes"}, {"forget", "--yes", "a"}} {
		o := run(t, append(args, at)...).Want(t, cli.StatusFailed, "NOT_SUPPORTED (-1012)", "--enable_ha=true")
		if o.Out != "" { // such as the head of a table
			t.Errorf("%v without HA: got %q before the error, want nothing printed", args, o.Out)
		}
	}
}
