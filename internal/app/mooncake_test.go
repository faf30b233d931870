package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// A caller is one connection of a Mooncake client.
type caller struct {
	*mooncakeclient.Conn
	t *testing.T
}

func call(t *testing.T, address, generation string) caller {
	t.Helper()
	g, ok := mooncake.NewGeneration(generation)
	if !ok {
		t.Fatalf("got no generation %s of Mooncake's protocol, want one", generation)
	}
	c, err := mooncakeclient.Dial(t.Context(), address, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return caller{c, t}
}

func (c caller) exists(key string) (bool, error) {
	var r mooncake.Result[bool]
	_, err := mooncakeclient.Do(c.t.Context(), c.Conn, c.Generation.ExistKey, &mooncake.Args{Key: key}, &r)
	return r.Value, err
}

// put puts an object, with a segment of its own if it has none yet.
func (c caller) put(key string) {
	c.t.Helper()
	ctx, g := c.t.Context(), c.Generation
	who := segment.ClientID{7}
	spec := segment.Spec{ID: segment.ID{7}, Name: "host", Base: 1 << 40, Size: 1 << 20, Endpoint: "host:1", Protocol: "tcp"}
	var done mooncake.Done
	var placed mooncake.Result[mooncake.ObjectReplicas]
	_, err := mooncakeclient.Do(ctx, c.Conn, g.ReMountSegment, &mooncake.Args{Segments: []segment.Spec{spec}, Client: who}, &done)
	if err == nil && done.Failure == 0 {
		_, err = mooncakeclient.Do(ctx, c.Conn, g.PutStart,
			&mooncake.Args{Client: who, Key: key, Size: 100, Config: mooncake.ReplicateConfig{Replicas: 1}}, &placed)
	}
	if err == nil && placed.Failure == 0 {
		_, err = mooncakeclient.Do(ctx, c.Conn, g.PutEnd, &mooncake.Args{Client: who, Item: mooncake.PutItem{Key: key}}, &done)
	}
	if err != nil || done.Failure != 0 || placed.Failure != 0 {
		c.t.Fatalf("put %s: got %v, %d, %d; want 0, 0 and no error", key, err, placed.Failure, done.Failure)
	}
}

// Clients learn the same of files by both protocols: what the settings say.
func TestStorageConfigByBothProtocols(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*config.Storage){
		"defaults": func(*config.Storage) {},
		"others":   func(s *config.Storage) { s.DiskEviction, s.QuotaBytes, s.RootFSDir = false, 1<<30, "/fs" },
	} {
		t.Run(name, func(t *testing.T) {
			s := settings(config.Primary, "a", etcdtest.Start(t).Endpoints())
			set(&s.Storage)
			a := run(t, s)
			a.serves()
			head := call(t, a.RPCAddress(), "head")
			var m mooncake.Result[mooncake.StorageConfig]
			if _, err := mooncakeclient.Do(t.Context(), head.Conn, head.Generation.GetStorageConfig, &mooncake.Args{}, &m); err != nil || m.Failure != 0 {
				t.Fatalf("storage settings by Mooncake's protocol: got failure %d, error %v, want them", m.Failure, err)
			}
			got, err := writer(t, client.Config{Addresses: []string{a.RPCAddress()}}).GetStorageConfig(t.Context())
			if want := (client.StorageConfig{Fsdir: m.Value.Fsdir, EnableDiskEviction: m.Value.DiskEviction, QuotaBytes: m.Value.QuotaBytes}); got != want || err != nil {
				t.Errorf("by gRPC: got %+v, %v; want %+v as by Mooncake's protocol", got, err, want)
			}
			if got.EnableDiskEviction != s.Storage.DiskEviction || got.QuotaBytes != uint64(s.Storage.QuotaBytes) {
				t.Errorf("got %+v, want what is set: %t, %d", got, s.Storage.DiskEviction, s.Storage.QuotaBytes)
			}
		})
	}
}

// One port speaks both protocols, and what one client puts the other one finds.
// Mooncake's clients find who serves in etcd; a node that does not serve closes
// their connections, or relays.
func TestMooncakeClients(t *testing.T) {
	t.Parallel()
	for i, name := range mooncake.Names() {
		other := mooncake.Names()[(i+1)%len(mooncake.Names())]
		t.Run(name, func(t *testing.T) { mooncakeClients(t, name, other) })
	}
}

// mooncakeClients is about nodes of one generation, of which one has a port for another.
func mooncakeClients(t *testing.T, generation, other string) {
	cluster := etcdtest.Start(t)
	etcd := cluster.Client(t)
	key := "mooncake-store/" + config.Default(config.Primary).HA.ClusterID + "/master_view"
	view := func() (string, int64) {
		resp, err := etcd.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Kvs) == 0 {
			return "", 0
		}
		if resp.Kvs[0].Lease == 0 {
			t.Error("the view of the master in etcd: got no lease, want one: it must not outlive its node")
		}
		return string(resp.Kvs[0].Value), resp.Kvs[0].ModRevision
	}

	speaking := func(role promote.Role, id string) config.Config {
		c := settings(role, id, cluster.Endpoints())
		c.Mooncake.Generation, c.Client.TTL = generation, time.Hour // nobody pings
		return c
	}
	first := speaking(config.Primary, "a")
	first.Mooncake.Listen = []config.GenerationListen{{Generation: other, Address: "127.0.0.1:0"}}
	a := run(t, first)
	a.serves()
	relaying := speaking(config.Standby, "b")
	relaying.Mooncake.Forward = true
	b := run(t, relaying)
	b.promotable()
	c := run(t, speaking(config.Standby, "c"))
	c.promotable()

	address, revision := view()
	if address != a.RPCAddress() {
		t.Fatalf("the view is %q, want %s, which serves", address, a.RPCAddress())
	}
	direct := call(t, address, generation)
	direct.put("from mooncake")
	var pinged mooncake.Result[mooncake.PingResult]
	_, err := mooncakeclient.Do(t.Context(), direct.Conn, direct.Generation.Ping, &mooncake.Args{Client: segment.ClientID{7}}, &pinged)
	if want := (mooncake.PingResult{View: revision, Status: mooncake.ClientOK}); err != nil || pinged.Value != want {
		t.Errorf("Ping: %+v, %v; want %+v", pinged, err, want)
	}
	cl := writer(t, client.Config{Addresses: []string{a.RPCAddress()}})
	if found, err := cl.ExistKey(t.Context(), "from mooncake"); !found || err != nil {
		t.Errorf("by gRPC: %v, %v; want true", found, err)
	}
	put(t, cl, "from gRPC")
	second := call(t, a.mooncakeAddresses()[other], other)
	for name, at := range map[string]caller{"direct": direct, other: second, "relayed": call(t, b.RPCAddress(), generation)} {
		if found, err := at.exists("from gRPC"); !found || err != nil {
			t.Errorf("%s: %v, %v; want true", name, found, err)
		}
	}
	closed := call(t, c.RPCAddress(), generation)
	if _, err := closed.exists("from gRPC"); err == nil {
		t.Error("a standby that does not relay, asked whether a key exists: got an answer, want an error")
	}

	relayed := call(t, b.RPCAddress(), generation)
	a.knows(2)
	a.end()
	if _, err := direct.exists("from gRPC"); err == nil {
		t.Error("the node that handed over, asked whether a key exists: got an answer, want an error")
	}
	if found, err := relayed.exists("from mooncake"); !found || err != nil {
		t.Errorf("relayed after a handover: %v, %v; want true", found, err)
	}
	for _, n := range []*member{b, c} {
		if s := n.until("knows who serves", func(s *pb.StatusResponse) bool { return s.GetState().GetTerm() == 2 && s.GetLeaderNodeId() != "" }); s.GetLeaderNodeId() == n.cfg.Node.ID {
			if address, again := view(); address != n.RPCAddress() || again <= revision {
				t.Errorf("the view is %q of revision %d, and %s serves; want its address at a later revision than %d", address, again, n.RPCAddress(), revision)
			}
		}
	}
}

// Keys of 64 KiB go through every front end, the journal, and to the standby; lists of
// them come in pages that fit a message.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	small := func(c config.Config) config.Config { // messages, so that few keys are too many for one
		c.Listen.MaxMessageBytes, c.Client.TTL = 1<<20, time.Hour // nobody pings
		return c
	}
	first, names := small(settings(config.Primary, "a", etcd)), mooncake.Names()
	for _, name := range names {
		first.Mooncake.Listen = append(first.Mooncake.Listen, config.GenerationListen{Generation: name, Address: "127.0.0.1:0"})
	}
	a := run(t, first)
	a.serves()
	a.until("has raised the rules", func(*pb.StatusResponse) bool { return a.node.Store().Rules() == metadata.NewestRules })
	b := run(t, small(settings(config.Standby, "b", etcd)))
	b.promotable()
	long := func(i int) string { return fmt.Sprintf("%04d", i) + strings.Repeat("k", metadata.MaxKeyBytes-4) }
	for i, name := range names {
		m := call(t, a.mooncakeAddresses()[name], name)
		m.put(long(i))
		if found, err := m.exists(long(i)); !found || err != nil {
			t.Errorf("%s: got %v, %v; want true and no error", name, found, err)
		}
	}

	c, err := client.New(client.Config{Addresses: []string{a.RPCAddress()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n, batch = 45, 15 // 2.8 MiB of keys; an answer may have 2 MiB
	all := len(names) + n
	for at := len(names); at < all; at += batch {
		items, refs := make([]client.PutItem, batch), make([]client.PutRef, batch)
		for i := range items {
			items[i] = client.PutItem{Key: long(at + i), Size: 100}
		}
		reserved, err := c.BatchPutStart(t.Context(), items, client.PutConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range reserved {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			refs[i] = r.Ref()
		}
		if failed, err := c.BatchPutEnd(t.Context(), refs, client.SelectAll); err != nil || errors.Join(failed...) != nil {
			t.Fatal(err, failed)
		}
	}
	found := make(map[string]bool)
	for o, err := range c.GetReplicaListByRegex(t.Context(), "k$", 10_000) {
		if err != nil {
			t.Fatal(err)
		}
		found[o.Key] = true
	}
	if len(found) != all {
		t.Errorf("got %d keys, want %d", len(found), all)
	}
	if _, err := c.PutStart(t.Context(), client.PutItem{Key: long(0) + "k", Size: 1}, client.PutConfig{}); errs.KindOf(err) != errs.InvalidKey {
		t.Errorf("a longer key: got %v, want INVALID_KEY", err)
	}
	same(t, a, b)
	if removed, err := c.RemoveByRegex(t.Context(), "k$", client.Removal{Force: true}); err != nil || int(removed.Removed) != all {
		t.Errorf("got %+v, %v; want %d removed and no error", removed, err, all)
	}
}

// A promotion that has memory is part of the state: its client ends it at the next
// primary.
func TestPromotionEndsAtTheNextPrimary(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	promoting := func(c config.Config) config.Config {
		c.Storage.Offload, c.Storage.Promotion.On, c.Storage.Promotion.Threshold = true, true, 1
		c.Client.TTL = time.Hour // nobody pings
		return c
	}
	a := run(t, promoting(settings(config.Primary, "a", etcd)))
	a.serves()
	a.until("has raised the rules", func(*pb.StatusResponse) bool { return a.node.Store().Rules() == metadata.NewestRules })
	b := run(t, promoting(settings(config.Standby, "b", etcd)))
	b.promotable()

	m, ctx := call(t, a.RPCAddress(), "head"), t.Context()
	g, who := m.Generation, segment.ClientID{7}
	disk := &mooncake.Args{Client: who, Offloading: true, Key: "k", Size: 100}
	do := func(c caller, f mooncake.Call[mooncake.Done], args *mooncake.Args) {
		t.Helper()
		var done mooncake.Done
		if _, err := mooncakeclient.Do(ctx, c.Conn, f, args, &done); err != nil || done.Failure != 0 {
			t.Fatalf("%s: got %v and failure %d, want neither", f.Name, err, done.Failure)
		}
	}
	read := func(c caller) (kinds []metadata.ReplicaKind) {
		t.Helper()
		var r mooncake.Result[metadata.ReplicaList]
		if _, err := mooncakeclient.Do(ctx, c.Conn, g.GetReplicaList, &mooncake.Args{Key: "k"}, &r); err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Value.Replicas {
			kinds = append(kinds, d.Kind)
		}
		return kinds
	}
	do(m, g.MountLocalDisk, disk)
	m.put("k")
	var tasks mooncake.Result[[]mooncake.OffloadTask]
	if _, err := mooncakeclient.Do(ctx, m.Conn, g.OffloadObjectHeartbeat, disk, &tasks); err != nil || len(tasks.Value) != 1 {
		t.Fatalf("OffloadObjectHeartbeat: %+v, %v; want one task", tasks, err)
	}
	do(m, g.NotifyOffloadSuccess, &mooncake.Args{Client: who, Tasks: tasks.Value, Objects: []mooncake.OffloadedObject{{DataSize: 100, Endpoint: "ssd:1"}}})
	var cleared mooncake.Result[[]string]
	if _, err := mooncakeclient.Do(ctx, m.Conn, g.BatchReplicaClear, &mooncake.Args{Client: who, Keys: []string{"k"}, SegmentName: "host"}, &cleared); err != nil || len(cleared.Value) != 1 {
		t.Fatalf("BatchReplicaClear: %+v, %v; want one key", cleared, err)
	}
	if _, err := mooncakeclient.Do(ctx, m.Conn, g.PromotionHeartbeat, disk, &tasks); err != nil || tasks.Failure != 0 {
		t.Fatalf("PromotionObjectHeartbeat: got %+v, %v; want no failure", tasks, err)
	}
	if kinds := read(m); !slices.Equal(kinds, []metadata.ReplicaKind{metadata.LocalDisk}) {
		t.Fatalf("before: on %v, want the SSD alone", kinds)
	}
	if _, err := mooncakeclient.Do(ctx, m.Conn, g.PromotionHeartbeat, disk, &tasks); err != nil || len(tasks.Value) != 1 {
		t.Fatalf("PromotionObjectHeartbeat: %+v, %v; want one task", tasks, err)
	}
	var started mooncake.Result[mooncake.Located]
	if _, err := mooncakeclient.Do(ctx, m.Conn, g.PromotionStart, disk, &started); err != nil || started.Failure != 0 {
		t.Fatalf("PromotionAllocStart: got %+v, %v; want no failure", started, err)
	}
	a.knows(1)
	a.end()
	b.serves()
	next := call(t, b.RPCAddress(), "head")
	if kinds := read(next); !slices.Equal(kinds, []metadata.ReplicaKind{metadata.LocalDisk}) {
		t.Errorf("after the takeover: on %v, want the SSD alone", kinds)
	}
	do(next, g.PromotionSuccess, disk)
	if kinds := read(next); !slices.Equal(kinds, []metadata.ReplicaKind{metadata.LocalDisk, metadata.Memory}) {
		t.Errorf("in the end: on %v, want the SSD and memory", kinds)
	}
}

// A hard pin is part of the state: under pressure the next primary evicts what lies
// beside the object (conformance line 84).
func TestHardPinSurvivesAFailover(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	patient := func(c config.Config) config.Config {
		c.Client.TTL, c.Eviction.Ratio = time.Hour, 1 // nobody pings
		return c
	}
	a := run(t, patient(settings(config.Primary, "a", etcd)))
	a.serves()
	b := run(t, patient(settings(config.Standby, "b", etcd)))
	b.promotable()
	put := func(c caller, key string, size uint64, hard bool) int32 {
		t.Helper()
		ctx, g, who := t.Context(), c.Generation, segment.ClientID{7}
		var placed mooncake.Result[mooncake.ObjectReplicas]
		how := mooncake.ReplicateConfig{Replicas: 1, HardPin: hard}
		if _, err := mooncakeclient.Do(ctx, c.Conn, g.PutStart, &mooncake.Args{Client: who, Key: key, Size: size, Config: how}, &placed); err != nil {
			t.Fatal(err)
		}
		var done mooncake.Done
		if placed.Failure != 0 {
			return placed.Failure
		}
		if _, err := mooncakeclient.Do(ctx, c.Conn, g.PutEnd, &mooncake.Args{Client: who, Item: mooncake.PutItem{Key: key}}, &done); err != nil {
			t.Fatal(err)
		}
		return done.Failure
	}
	m := call(t, a.RPCAddress(), "head")
	m.put("small") // mounts 1 MiB
	if first, second := put(m, "pinned", 700<<10, true), put(m, "plain", 100<<10, false); first != 0 || second != 0 {
		t.Fatalf("got %d and %d, want two objects", first, second)
	}
	a.knows(1)
	a.end()
	b.serves()
	next := call(t, b.RPCAddress(), "head")
	b.until("has evicted what is in the way", func(*pb.StatusResponse) bool { return put(next, "more", 250<<10, false) == 0 })
	for key, want := range map[string]bool{"pinned": true, "plain": false, "more": true} {
		if found, err := next.exists(key); err != nil || found != want {
			t.Errorf("%s: got %t, %v; want %t", key, found, err, want)
		}
	}
}
