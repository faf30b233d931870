package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// newPrimaryRig returns a rig of a primary with 16 MiB of memory.
func newPrimaryRig(t testing.TB) (*rig, *service.Master) {
	t.Helper()
	p := lonetest.Start(t, metadata.Options{}, metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}, 16<<20)
	r := newRig(t)
	r.store = p.Store
	m := service.NewMaster(service.Master{
		Term: 1, Store: p.Store, Leases: p.Leases, Queue: p.Queue, Now: p.Now, Fence: func(context.Context) error { return nil }, Answers: func() bool { return true },
		Liveness: service.NewLiveness(time.Minute, 0, clock.Boot(), p.Store), Counters: r.Calls, AllocationFailed: func(uint64, metadata.Time) {},
	})
	r.Gate.Open(m)
	r.Evicted = func() Evictions {
		return Evictions{Cutoffs: 2, Objects: 30, EvictedBytes: 3 << 20, Idle: 90 * time.Second}
	}
	return r, m
}

// put puts an object of 1 MiB.
func put(t testing.TB, m *service.Master, key string, hardPin bool) {
	t.Helper()
	start := service.PutRequest{Tenant: metadata.DefaultTenant, Client: segment.ClientID{1}, Config: service.PutConfig{Replicas: 1, HardPin: hardPin}}
	_, failed, err := m.BatchPutStart(t.Context(), start, []service.PutItem{{Key: key, Size: 1 << 20}})
	if err := errors.Join(append(failed, err)...); err != nil {
		t.Fatal(err)
	}
}

func TestCluster(t *testing.T) {
	r := newRig(t)
	r.status = &pb.StatusResponse{
		LeaderNodeId: "a", Warnings: []string{"no standby could take over now"}, Notes: []string{"this term started empty"},
		State:   &pb.StateStatus{Term: 2, Sequence: 1234, Digest: "00ff", UsedBytes: 1 << 20, CapacityBytes: 2 << 20},
		Journal: &pb.JournalStatus{CommittedSequence: 1234},
		Nodes: []*pb.Node{
			{NodeId: "a", Role: pb.Role_ROLE_PRIMARY, HttpAddress: "10.0.0.1:9003", AppliedSequence: 1234},
			{NodeId: "b", Role: pb.Role_ROLE_STANDBY, LagEntries: 7, LagMs: 1500, Promotable: true, TakeoverChanges: []string{"x would change from 5s to 10s", "y would change from 1 to 2"}},
			{NodeId: "c", Role: pb.Role_ROLE_STANDBY, NotPromotableReason: "it waits for a snapshot"},
			{NodeId: "d", Role: pb.Role_ROLE_STANDBY, Promotable: true},
			{NodeId: "e", Role: pb.Role_ROLE_STANDBY, LagEntries: 1, NotPromotableReason: "it is behind"},
		},
	}
	r.Members = func(context.Context) []Member {
		return []Member{
			{Name: "m1", Endpoint: "http://10.0.0.1:2379", Version: "3.7.3", Leader: true, Size: 3 << 20, InUse: 1 << 20, Quota: 4 << 20, Took: 2 * time.Millisecond, Alarms: []string{"NOSPACE"}},
			{Endpoint: "http://10.0.0.2:2379", Fault: "connection refused"},
		}
	}
	_, text := r.page("/console/cluster")
	has(t, "cluster", text, "Warning: no standby could take over now", "Note: this term started empty",
		"a primary 1,234 no serves", "b (this one) standby 0 7 commits, 1.5s yes ; x would change from 5s to 10s ; y would change from 1 to 2", "c standby 0 no no : it waits for a snapshot", "e standby 0 1 commit no : it is behind",
		"masterctl handover --to b", "2 / 1,234", "1.0 MiB of 2.0 MiB",
		"m1 http://10.0.0.1:2379 2ms 3.0 MiB of 4.0 MiB 1.0 MiB yes 3.7.3 NOSPACE", "http://10.0.0.2:2379 no answer: connection refused")
	has(t, "cluster", r.get("/console/cluster").Body.String(), `href="http://10.0.0.1:9003/console/cluster"`)
	has(t, "cluster over TLS", r.get("https://localhost/console/cluster").Body.String(), `href="https://10.0.0.1:9003/console/cluster"`)
	if page := r.get("/console/cluster").Body.String(); strings.Contains(page, "<button disabled>Hand over") {
		t.Error("the cluster page of a node that does not serve: got a handover offered, want none")
	}
	r.node.NodeID = "a"
	r.Gate.Open(service.NewMaster(service.Master{Term: 2, Answers: func() bool { return true }}))
	page := r.get("/console/cluster").Body.String()
	has(t, "cluster of the primary", page, `action="/understudy.v1.AdminService/Handover"`,
		`name="term" value="2"><input type="hidden" name="target_node_id" value="b"><button disabled>Hand over to b</button>`, "would be refused",
		`data-order="End term 2, and make b the primary? b can take over, and is 7 commits, 1.5s behind; x would change from 5s to 10s; y would change from 1 to 2."`,
		`data-order="End term 2, and make d the primary? d can take over, and lacks nothing; no setting would change."`)
	if n := strings.Count(page, "<button"); n != 1+strings.Count(page, "<button disabled>") { // that of the layout gives no order
		t.Errorf("%d buttons, of which %d wait for the script that asks first; want all but one", n, strings.Count(page, "<button disabled>"))
	}
	if n := strings.Count(page, "<button disabled>Hand over"); n != 2 {
		t.Errorf("%d nodes are offered, want b and d", n)
	}
	r.status.Journal = nil
	if _, text := r.page("/console/cluster"); strings.Contains(text, "handover") {
		t.Errorf("the cluster page without HA: got %s, want no word of a handover", text)
	}
	r.status.Nodes, r.status.Node = nil, &pb.Node{NodeId: "a", Role: pb.Role_ROLE_PRIMARY, RpcAddress: "10.0.0.1:50051", Version: "v1"}
	has(t, "the one node without HA, with labels for phones", r.get("/console/cluster").Body.String(), `<td data-label="Role">`, `<td data-label="Behind">no<`,
		`<td data-label="Can take over">high availability is off<`, `<td data-label="Address">10.0.0.1:50051<`, `<td data-label="Version">v1<`)
}

func TestMemoryLeasesAndCache(t *testing.T) {
	r, m := newPrimaryRig(t)
	put(t, m, "run/1/a", true)
	put(t, m, "run/1/b", false)
	put(t, m, "other", false)
	if err := m.MountSegment(t.Context(), segment.Spec{ID: segment.ID{9}, Name: "far", Base: 9 << 40, Size: 4 << 20, Endpoint: "host-b:1", Client: segment.ClientID{9}}); err != nil {
		t.Fatal(err)
	}
	r.Calls.Gets.Store(4)
	r.Calls.ValidGets.Store(3)
	_, text := r.page("/console/memory")
	has(t, "memory", text, "Hosts 2 Segments 2 Capacity 20 MiB In use, with quarantine 3.0 MiB", "host-b 0 B of 4.0 MiB far OK",
		"used 2.0 MiB · pinned 1.0 MiB · quarantine 0 B · free 13 MiB")
	has(t, "memory", r.get("/console/memory").Body.String(), `<rect class="used" width="12.50" height="14"/><rect class="pinned" x="12.50" width="6.25" height="14"/>`)
	_, text = r.page("/console/leases")
	has(t, "leases", text, "Leased now 0 of 3 objects", "TTL 10s", "Pins 1 hard, 0 soft")
	_, text = r.page("/console/cache")
	has(t, "cache", text, "No key stands out.", "this process 75.0 % 3 of 4 keys", "the last 1h no reads", "Objects evicted 30 Bytes 3.0 MiB Cutoffs 2 Age at eviction 1m30s",
		"run/1/ 0 2 2.0 MiB", "(no prefix) 0 1 1.0 MiB")
}

// The page Cache has the keys that are read most, each with a link to what is known of it.
func TestHotKeysAreShown(t *testing.T) {
	r, m := newPrimaryRig(t)
	m.Hot = new(service.HotKeys)
	r.Hot = m.Hot
	put(t, m, "run/1?&<a>", false)
	if err := m.PutEnd(t.Context(), service.UpdateRequest{Tenant: metadata.DefaultTenant, Client: segment.ClientID{1}, Selector: metadata.SelectMemory}, service.UpdateItem{Key: "run/1?&<a>"}); err != nil {
		t.Fatal(err)
	}
	for range 4000 {
		if _, err := m.GetReplicaList(t.Context(), metadata.DefaultTenant, "run/1?&<a>"); err != nil {
			t.Fatal(err)
		}
	}
	_, text := r.page("/console/cache")
	has(t, "cache", text, "Share of reads run/1?&<a> 100.0 %", "Prefixes by the same. Prefix Share of reads run/ 100.0 %")
	has(t, "cache", r.get("/console/cache").Body.String(), `href="/console/key?key=run%2f1%3f%26%3ca%3e&amp;tenant=default"`)
}

// A key is shown with what keeps it, and with no lease on it afterwards.
func TestKey(t *testing.T) {
	r, m := newPrimaryRig(t)
	put(t, m, "run/1/a", true)
	before := r.store.LeaseCounts()
	_, text := r.page("/console/key?key=run%2F1%2Fa")
	has(t, "key", text, "Size 1.0 MiB Lease left none", "Pins hard", "Removal: blocked, it is being put, and its put has not ended. Eviction: blocked, a replica of it is being written.", "MEMORY PROCESSING")
	_, text = r.page("/console/key?key=nothing")
	has(t, "no key", text, "There is no such key.")
	if got := r.store.LeaseCounts(); got != before {
		t.Errorf("leases: got %+v, want %+v as before", got, before)
	}
	r.store = nil
	_, text = r.page("/console/key?key=a")
	has(t, "no state", text, "This page is not whole. this node holds no state yet")
}

func TestSettings(t *testing.T) {
	r := newRig(t)
	r.Own = `etcd_endpoints: "http://root:secret@10.0.0.1:2379" # flag`
	r.Settings = func(context.Context) ([]NodeSettings, error) {
		return []NodeSettings{
			{NodeID: "a", Primary: true, Values: map[string]string{"client_ttl": "20s", "default_kv_lease_ttl": "7s"}},
			{NodeID: "b", Values: map[string]string{"client_ttl": "20s"}}, {NodeID: "old"},
		}, nil
	}
	_, text := r.page("/console/settings")
	has(t, "settings", text, "1 setting differs between nodes", "Setting a (primary) b old", "client_ttl 20s 20s not known",
		"default_kv_lease_ttl differs 7s 10s (the default) not known", `"http://…@10.0.0.1:2379"`)
	if strings.Contains(text, "secret") {
		t.Error("the settings page: got a password in it, want none")
	}
}

// The tail reads on from where it was, holds so much, and is filtered; it is not read
// while nobody looks.
func TestJournal(t *testing.T) {
	r, _ := newPrimaryRig(t)
	add := func(seq int, kind, text string) {
		r.events = append(r.events, &pb.EventsResponse{Term: 1, Sequence: uint64(seq), Type: kind, Text: text, Json: "{}"})
	}
	add(1, "PUT_START", `object 1 key "a"`)
	add(2, "PUT_END", "object 1")
	h := Handler(r.Sources)
	look := func(path string) string {
		r.now = r.now.Add(keepTail)
		_, text := parse(t, body(h, path))
		return text
	}
	has(t, "all", look("/console/journal"), `1/2 2026`, `PUT_END object 1 1/1`, `PUT_START object 1 key "a"`)
	add(3, "REMOVE", strings.Repeat("x", 10_000))
	if text := look("/console/journal?type=REMOVE"); !strings.Contains(text, "1/3") || strings.Contains(text, "1/2") || len(text) > 3000 {
		t.Errorf("the journal page of one type: got %s, want only that event, cut to 3000 bytes", text)
	}
	has(t, "text", look("/console/journal?text=key"), `1/1`)
	for seq := range 3 * maxEvents {
		add(4+seq, "PUT_END", fmt.Sprintf("object %d", seq))
	}
	text := look("/console/journal")
	if n := strings.Count(text, "PUT_END object"); n != shownEvents || !strings.Contains(text, fmt.Sprintf("object %d", 3*maxEvents-1)) {
		t.Errorf("%d events are shown, want the newest %d", n, shownEvents)
	}
}

// The first look at an idle cluster's journal shows the last events, however many beats came
// since, and later looks read no further back than that.
func TestJournalBehindBeats(t *testing.T) {
	for _, beats := range []metadata.Seq{0, tailCommits, tailCommits * tailFurther, 50_000} {
		r, _ := newPrimaryRig(t)
		r.events = []*pb.EventsResponse{{Term: 1, Sequence: 3, Type: "PUT_START", Text: "a put"}, {Term: 1, Sequence: 4, Type: "PUT_END", Text: "its end"}}
		var now tail
		for look := range metadata.Seq(2) {
			if err := now.read(t.Context(), r.Node, metadata.Position{Seq: 4 + beats + look, Term: 1}); err != nil {
				t.Fatal(err)
			}
			if len(now.events) != 2 || now.next != 5+beats+look {
				t.Errorf("look %d behind %d beats: got %v, to go on at %d; want both events, and to go on at %d", look, beats, now.events, now.next, 5+beats+look)
			}
		}
	}
}

// A journal that is founded anew from an older state begins with a lower sequence, and the
// tail with it.
func TestJournalFoundedAnew(t *testing.T) {
	r, _ := newPrimaryRig(t)
	var now tail
	r.events = []*pb.EventsResponse{{Term: 1, Sequence: 900, Type: "PUT_END", Text: "old"}}
	look := func(at metadata.Position) (texts []string) {
		t.Helper()
		if err := now.read(t.Context(), r.Node, at); err != nil {
			t.Fatal(err)
		}
		for _, e := range now.events {
			texts = append(texts, e.GetText())
		}
		return texts
	}
	look(metadata.Position{Seq: 900, Term: 1})
	if got := look(metadata.Position{Seq: 890, Term: 1}); !slices.Equal(got, []string{"old"}) {
		t.Errorf("on a node that is behind: got %q, want the event that it showed", got)
	}
	r.events = []*pb.EventsResponse{{Term: 2, Sequence: 501, Type: "TERM_START", Text: "new"}}
	if got := look(metadata.Position{Seq: 501, Term: 2}); !slices.Equal(got, []string{"new"}) {
		t.Errorf("founded anew at 501: got %q, want the new event alone", got)
	}
}

func TestJournalOff(t *testing.T) {
	r, _ := newPrimaryRig(t)
	r.eventErr = errs.New(errs.NotSupported, "Events", "high availability is off")
	_, text := r.page("/console/journal")
	if strings.Contains(text, "not whole") {
		t.Error(text)
	}
	has(t, "without HA", text, "so there is no journal")
}

// What a census costs: the pages Memory, Cache and Leases take one in 10 s together.
func BenchmarkCensus(b *testing.B) {
	p := lonetest.Start(b, metadata.Options{}, metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}, 4<<30)
	const objects = 100_000
	c := &console{Sources: Sources{Scans: service.NewScans(), Gate: service.NewGate(), Now: clock.Wall}}
	m := service.NewMaster(service.Master{
		Term: 1, Store: p.Store, Leases: p.Leases, Queue: p.Queue, Now: p.Now, Fence: func(context.Context) error { return nil }, Answers: func() bool { return true },
		Liveness: service.NewLiveness(time.Minute, 0, clock.Boot(), p.Store), Counters: service.NewCounters(), AllocationFailed: func(uint64, metadata.Time) {},
	})
	for i := 0; i < objects; i += 1000 {
		var items []service.PutItem
		for j := range 1000 {
			items = append(items, service.PutItem{Key: fmt.Sprintf("run/%d/block/%d", (i+j)%1000, i+j), Size: 1000})
		}
		_, failed, err := m.BatchPutStart(b.Context(), service.PutRequest{Tenant: metadata.DefaultTenant, Client: segment.ClientID{1}, Config: service.PutConfig{Replicas: 1}}, items)
		if err := errors.Join(append(failed, err)...); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		f, err := c.take(b.Context(), p.Store)
		if err != nil || f.Objects != objects {
			b.Fatal(f.Objects, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/objects, "ns/object")
}
