package mooncakeserver_test

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// each runs a test over every generation, each with a node of its own.
func each(t *testing.T, f func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation)) {
	for _, name := range mooncake.Names() {
		t.Run(name, func(t *testing.T) {
			n := primary(t)
			c := n.dial(t, name)
			f(t, n, c, c.Generation)
		})
	}
}

func TestObjects(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		get := func(key string) mooncake.Result[metadata.ReplicaList] {
			return ask(t, c, g.GetReplicaList, mooncake.Args{Key: key})
		}
		expect(t, "nothing there", get("a"), errs.ObjectNotFound)
		start := mooncake.Args{Client: client(7), Key: "a", Size: 100, Config: config()}
		placed := ask(t, c, g.PutStart, start)
		expect(t, "PutStart", placed, errs.OK)
		if r := placed.Value.Replicas; len(r) == 0 || r[0].Kind != metadata.Memory || r[0].Status != metadata.Processing || r[0].Size != 100 ||
			r[0].Address < 1<<32 || r[0].Endpoint != "a:1" || placed.Value.ID == 0 {
			t.Errorf("placed at %+v; want an id, and memory at a:1", placed.Value)
		}
		expect(t, "not ended", get("a"), errs.ReplicaNotReady)
		expect(t, "PutStart again", ask(t, c, g.PutStart, start), errs.ObjectExists)
		sum := uint64(99)
		end := mooncake.Args{Client: client(8), Item: mooncake.PutItem{Key: "a", Checksum: &sum}}
		expect(t, "PutEnd of a stranger", ask(t, c, g.PutEnd, end), errs.IllegalClient)
		end.Client = client(7)
		expect(t, "PutEnd", ask(t, c, g.PutEnd, end), errs.OK)
		got := get("a")
		expect(t, "GetReplicaList", got, errs.OK)
		if v := got.Value; v.LeaseTTL != params.LeaseTTL || len(v.Replicas) != 1 || v.Replicas[0].Status != metadata.Complete ||
			v.Replicas[0].Address != placed.Value.Replicas[0].Address || v.ID != placed.Value.ID {
			t.Errorf("got %+v; want the object where it was placed", v)
		}
		if v := got.Value.Checksum; g.Name == "head" && (v == nil || *v != sum) {
			t.Errorf("checksum %v; want %d", v, sum)
		}
		if r := ask(t, c, g.ExistKey, mooncake.Args{Key: "a"}); r.Failure != 0 || !r.Value {
			t.Errorf("ExistKey: %v; want true", r)
		}
		if r := ask(t, c, g.ExistKey, mooncake.Args{Key: "b"}); r.Failure != 0 || r.Value {
			t.Errorf("ExistKey of nothing: %v; want false", r)
		}
		expect(t, "Remove of a leased object", ask(t, c, g.Remove, mooncake.Args{Key: "a"}), errs.ObjectHasLease)
		expect(t, "Remove by force", ask(t, c, g.Remove, mooncake.Args{Key: "a", Force: true}), errs.OK)
		expect(t, "gone", get("a"), errs.ObjectNotFound)
		expect(t, "PutRevoke of nothing", ask(t, c, g.PutRevoke, mooncake.Args{Client: client(7), Key: "a"}), errs.ObjectNotFound)
		expect(t, "PutStart", ask(t, c, g.PutStart, start), errs.OK)
		expect(t, "PutRevoke", ask(t, c, g.PutRevoke, mooncake.Args{Client: client(7), Key: "a", Kind: mooncake.ReplicaMemory}), errs.OK)
		expect(t, "PutStart after it", ask(t, c, g.PutStart, start), errs.OK)
	})
}

// The slots of a batch are those of its keys, each with its own outcome.
func TestBatches(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		keys := []string{"a", "", "b", "a"}
		sizes := []uint64{100, 100, 0, 100}
		placed := ask(t, c, g.BatchPutStart, mooncake.Args{Client: client(7), Keys: keys, Sizes: sizes, Config: config()})
		want(t, "BatchPutStart", placed, errs.OK, errs.InvalidParams, errs.InvalidParams, errs.ObjectExists)
		want(t, "sizes are missing", ask(t, c, g.BatchPutStart, mooncake.Args{Client: client(7), Keys: keys, Config: config()}),
			errs.InvalidParams, errs.InvalidParams, errs.InvalidParams, errs.InvalidParams)
		ended := ask(t, c, g.BatchPutEnd, mooncake.Args{Client: client(7), Items: []mooncake.PutItem{{Key: "a"}, {Key: "b"}}})
		want(t, "BatchPutEnd", ended, errs.OK, errs.ObjectNotFound)
		found := ask(t, c, g.BatchExistKey, mooncake.Args{Keys: []string{"b", "a"}})
		if want(t, "BatchExistKey", found, errs.OK, errs.OK); found[0].Value || !found[1].Value {
			t.Errorf("BatchExistKey: %v; want false, true", found)
		}
		lists := ask(t, c, g.BatchGetReplicaList, mooncake.Args{Keys: []string{"b", "a", "b"}})
		want(t, "BatchGetReplicaList", lists, errs.ObjectNotFound, errs.OK, errs.ObjectNotFound)
		if len(lists[1].Value.Replicas) != 1 {
			t.Errorf("BatchGetReplicaList: got %+v, want 1 entry", lists[1].Value)
		}
		removed := ask(t, c, g.BatchRemove, mooncake.Args{Keys: []string{"a", "a", ""}, Force: true})
		want(t, "BatchRemove", removed, errs.OK, errs.ObjectNotFound, errs.ObjectNotFound)
		revoked := ask(t, c, g.BatchPutRevoke, mooncake.Args{Client: client(7), Keys: []string{"a", "b"}})
		want(t, "BatchPutRevoke", revoked, errs.ObjectNotFound, errs.ObjectNotFound)
		if r := ask(t, c, g.BatchExistKey, mooncake.Args{}); len(r) != 0 {
			t.Errorf("an empty batch: got %v, want no entries", r)
		}
	})
}

func want[T any](t *testing.T, what string, got []mooncake.Result[T], kinds ...errs.Kind) {
	t.Helper()
	var numbers, expected []int32
	for _, r := range got {
		numbers = append(numbers, r.Failure)
	}
	for _, k := range kinds {
		expected = append(expected, k.Number())
	}
	if !slices.Equal(numbers, expected) {
		t.Errorf("%s: %v, want %v", what, numbers, expected)
	}
}

func TestPatterns(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		put(t, c, 7, "x1", "x2", "y1")
		found := ask(t, c, g.GetReplicaListByRegex, mooncake.Args{Key: "^x"})
		var keys []string
		for _, k := range found.Value {
			keys = append(keys, k.Key)
			if len(k.Replicas) != 1 || k.ID == 0 {
				t.Errorf("got %+v, want an id and one replica of each key", k)
			}
		}
		if slices.Sort(keys); found.Failure != 0 || !slices.Equal(keys, []string{"x1", "x2"}) {
			t.Errorf("found %v, %d; want 0 and [x1 x2]", keys, found.Failure)
		}
		expect(t, "a bad pattern", ask(t, c, g.GetReplicaListByRegex, mooncake.Args{Key: "("}), errs.InvalidParams)
		if r := ask(t, c, g.RemoveByRegex, mooncake.Args{Key: "x", Force: false}); r.Failure != 0 || r.Value != 0 {
			t.Errorf("leased ones were removed: got %+v, want Failure 0 and Value 0", r)
		}
		if r := ask(t, c, g.RemoveByRegex, mooncake.Args{Key: "x", Force: true}); r.Failure != 0 || r.Value != 2 {
			t.Errorf("RemoveByRegex: got %+v, want Failure 0 and Value 2", r)
		}
		if n := ask(t, c, g.RemoveAll, mooncake.Args{}); n != 1 {
			t.Errorf("RemoveAll: got %d, want 1", n)
		}
	})
}

func TestClients(t *testing.T) {
	each(t, func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		if r := ask(t, c, g.ServiceReady, mooncake.Args{}); r.Value != "2.0.0" {
			t.Errorf("ServiceReady: got %+v, want \"2.0.0\"", r)
		}
		if r := ask(t, c, g.GetFsdir, mooncake.Args{}); r.Failure != 0 || r.Value != "" {
			t.Errorf("GetFsdir: got %+v, want Failure 0 and no Value", r)
		}
		if r := ask(t, c, g.GetStorageConfig, mooncake.Args{}); r.Value != (mooncake.StorageConfig{DiskEviction: true, QuotaBytes: 1 << 30}) {
			t.Errorf("GetStorageConfig: %+v; want eviction from disk, and no folder", r)
		}
		spec := segment.Spec{ID: segment.ID{9}, Name: "host", Base: 1 << 40, Size: 1 << 20, Endpoint: "10.0.0.9:1", Protocol: "tcp", HostID: "rack"}
		ping := func() int32 {
			r := ask(t, c, g.Ping, mooncake.Args{Client: client(9)})
			if r.Failure != 0 || r.Value.View != 17 {
				t.Errorf("Ping: got %+v, want Failure 0 and View 17", r)
			}
			return r.Value.Status
		}
		if s := ping(); s != mooncake.ClientNeedRemount {
			t.Errorf("a client that nobody knows is %d; want ClientNeedRemount", s)
		}
		expect(t, "MountSegment", ask(t, c, g.MountSegment, mooncake.Args{Segment: spec, Client: client(9)}), errs.OK)
		expect(t, "ReMountSegment", ask(t, c, g.ReMountSegment, mooncake.Args{Segments: []segment.Spec{spec}, Client: client(9)}), errs.OK)
		if s := ping(); s != mooncake.ClientOK {
			t.Errorf("after a remount the client is %d; want ClientOK", s)
		}
		mounted := n.primary.Store.Segments()
		at := slices.IndexFunc(mounted, func(s metadata.SegmentStats) bool { return s.ID == spec.ID })
		if spec.Client = client(9); g.Name == "v0.3.11" {
			spec.HostID = "" // not known then
		}
		if at < 0 || mounted[at].Spec != spec {
			t.Errorf("mounted %+v; want %+v among them", mounted, spec)
		}
		ips := ask(t, c, g.BatchQueryIP, mooncake.Args{Clients: []segment.ClientID{client(9), client(10)}})
		if len(ips.Value) != 1 || ips.Value[0].Client != client(9) || !slices.Equal(ips.Value[0].Addresses, []string{"10.0.0.9"}) {
			t.Errorf("BatchQueryIp: %+v; want 10.0.0.9 for client 9", ips)
		}
		if r := ask(t, c, g.BatchQueryIP, mooncake.Args{}); r.Failure != 0 || len(r.Value) != 0 {
			t.Errorf("BatchQueryIp of nobody: got %+v, want Failure 0 and nothing", r)
		}
		if r := ask(t, c, g.FetchTasks, mooncake.Args{Client: client(9), Most: 16}); r.Failure != 0 || len(r.Value) != 0 {
			t.Errorf("FetchTasks: got %+v, want Failure 0 and nothing", r)
		}
		wrong := spec
		wrong.Base = 0
		expect(t, "a segment at 0", ask(t, c, g.MountSegment, mooncake.Args{Segment: wrong, Client: client(9)}), errs.InvalidParams)
		status := func(what string, want int32) {
			t.Helper()
			byName, byID := ask(t, c, g.SegmentStatus, mooncake.Args{SegmentName: "host"}), ask(t, c, g.SegmentStatusByID, mooncake.Args{SegmentID: spec.ID})
			if byName.Failure != 0 || byName != byID || byName.Value != want {
				t.Errorf("%s: got status %+v, by id %+v; want %d", what, byName, byID, want)
			}
		}
		status("mounted", int32(metadata.SegmentOK))
		closing := mooncake.Args{SegmentID: spec.ID, Client: client(8), GraceMillis: 60_000}
		expect(t, "GracefulUnmountSegment by a stranger", ask(t, c, g.GracefulUnmount, closing), errs.SegmentNotFound)
		closing.Client = client(9)
		expect(t, "GracefulUnmountSegment", ask(t, c, g.GracefulUnmount, closing), errs.OK)
		closing.GraceMillis = 1<<64 - 1
		expect(t, "it once more", ask(t, c, g.GracefulUnmount, closing), errs.OK)
		status("closed", int32(metadata.SegmentClosed))
		expect(t, "status of none", ask(t, c, g.SegmentStatus, mooncake.Args{SegmentName: "none"}), errs.SegmentNotFound)
		expect(t, "UnmountSegment", ask(t, c, g.UnmountSegment, mooncake.Args{SegmentID: spec.ID, Client: client(9)}), errs.OK)
	})
}

func TestClearing(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		put(t, c, 7, "a", "b")
		put(t, c, 8, "c")
		r := ask(t, c, g.BatchReplicaClear, mooncake.Args{Keys: []string{"a", "c", "none", "b"}, Client: client(7)})
		if r.Failure != 0 || !slices.Equal(r.Value, []string{"a", "b"}) {
			t.Errorf("got %+v, want Failure 0 and [a b]", r)
		}
		if r := ask(t, c, g.BatchReplicaClear, mooncake.Args{Client: client(7)}); r.Failure != 0 || len(r.Value) != 0 {
			t.Errorf("of no keys: got %+v, want Failure 0 and nothing", r)
		}
	})
}

// A replica on disk is complete when its writer says so, for it alone.
func TestDiskReplicas(t *testing.T) {
	for _, name := range mooncake.Names() {
		t.Run(name, func(t *testing.T) {
			n := standby(t, false)
			n.fsdir = "/fs"
			n.serve(t)
			diskReplicas(t, n.dial(t, name))
		})
	}
}

func diskReplicas(t *testing.T, c *mooncakeclient.Conn) {
	g := c.Generation
	if r := ask(t, c, g.GetStorageConfig, mooncake.Args{}); r.Value != (mooncake.StorageConfig{Fsdir: "/fs/c", DiskEviction: true, QuotaBytes: 1 << 30}) {
		t.Errorf("GetStorageConfig: %+v; want the folder /fs/c", r)
	}
	put(t, c, 7, "a")
	get := func() []metadata.Descriptor {
		return ask(t, c, g.GetReplicaList, mooncake.Args{Key: "a"}).Value.Replicas
	}
	if r := get(); len(r) != 1 || r[0].Kind != metadata.Memory {
		t.Errorf("before the file is written: %+v; want memory alone", r)
	}
	expect(t, "PutEnd", ask(t, c, g.PutEnd, mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: "a"}, Kind: mooncake.ReplicaDisk}), errs.OK)
	if r := get(); len(r) != 2 || r[1].Kind != metadata.Disk || r[1].Size != 100 || !strings.HasPrefix(r[1].Path, "/fs/c/") {
		t.Errorf("after it: %+v; want memory and a file of 100 bytes under /fs/c/", r)
	}
	evicted := mooncake.Args{Client: client(8), Key: "a", Kind: mooncake.ReplicaDisk}
	expect(t, "EvictDiskReplica by the writer of an earlier object", ask(t, c, g.EvictDiskReplica, evicted), errs.OK)
	if r := get(); len(r) != 2 {
		t.Errorf("after it: %+v; want the file of this object too", r)
	}
	evicted.Client = client(7)
	expect(t, "EvictDiskReplica", ask(t, c, g.EvictDiskReplica, evicted), errs.OK)
	expect(t, "it once more", ask(t, c, g.EvictDiskReplica, evicted), errs.OK)
	if r := get(); len(r) != 1 || r[0].Kind != metadata.Memory {
		t.Errorf("after the file was deleted: %+v; want memory alone", r)
	}
	start := mooncake.Args{Client: client(7), Key: "b", Size: 100, Config: config()}
	expect(t, "PutStart", ask(t, c, g.PutStart, start), errs.OK)
	evicted.Key = "b"
	expect(t, "EvictDiskReplica of an earlier object of the client", ask(t, c, g.EvictDiskReplica, evicted), errs.OK)
	ended := mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: "b"}, Kind: mooncake.ReplicaDisk}
	expect(t, "the end of the file that is being written", ask(t, c, g.PutEnd, ended), errs.OK)
}

// A client says which files on its own SSD it has deleted.
func TestEvictDiskReplica(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		disk := mooncake.Args{Client: client(1), Offloading: true}
		expect(t, "MountLocalDiskSegment", ask(t, c, g.MountLocalDisk, disk), errs.OK)
		put(t, c, 7, "a", "b")
		ask(t, c, g.OffloadObjectHeartbeat, disk)
		expect(t, "NotifyOffloadSuccess", ask(t, c, g.NotifyOffloadSuccess, mooncake.Args{
			Client: client(1), Tasks: []mooncake.OffloadTask{{Key: "a", Size: 100}, {Key: "b", Size: 100}},
			Objects: []mooncake.OffloadedObject{{DataSize: 100, Endpoint: "ssd:1"}, {DataSize: 100, Endpoint: "ssd:1"}},
		}), errs.OK)
		evict := func(who byte, kind int32, want ...errs.Kind) {
			t.Helper()
			results := ask(t, c, g.BatchEvictDiskReplica, mooncake.Args{Client: client(who), Keys: []string{"a", "gone"}, Kind: kind})
			if len(results) != 2 {
				t.Fatalf("got %d results, want 2", len(results))
			}
			for i, r := range results {
				expect(t, "BatchEvictDiskReplica", r, want[i])
			}
		}
		copies := func(key string, want int) {
			t.Helper()
			if r := ask(t, c, g.GetReplicaList, mooncake.Args{Key: key}).Value.Replicas; len(r) != want {
				t.Errorf("%s: got replicas %+v, want %d", key, r, want)
			}
		}
		evict(2, mooncake.ReplicaLocalDisk, errs.OK, errs.ObjectNotFound)
		copies("a", 2)
		evict(1, mooncake.ReplicaMemory, errs.InvalidParams, errs.ObjectNotFound)
		copies("a", 2)
		evict(1, mooncake.ReplicaLocalDisk, errs.OK, errs.ObjectNotFound)
		copies("a", 1)
		copies("b", 2)
	})
}

// The settings of a put are kept, in the form of its release.
func TestPutConfig(t *testing.T) {
	each(t, func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		full := mooncake.ReplicateConfig{Replicas: 1, HardPin: true, SoftPin: mooncake.SoftPinEnable, DataType: 3, HostID: "h", Groups: &[]string{"team"}}
		start := func(key string, c2 mooncake.ReplicateConfig) mooncake.Result[mooncake.ObjectReplicas] {
			return ask(t, c, g.PutStart, mooncake.Args{Client: client(7), Key: key, Size: 100, Config: c2})
		}
		expect(t, "PutStart", start("a", full), errs.OK)
		expect(t, "PutEnd", ask(t, c, g.PutEnd, mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: "a"}, Kind: mooncake.ReplicaAll}), errs.OK)
		o, err := n.primary.Store.Inspect(metadata.DefaultTenant, "a")
		if err != nil || !o.HardPin || !o.SoftPin || o.DataType != 3 || (o.Group == "team") != (g.Name != "v0.3.11") {
			t.Errorf("got %+v, %v; want both pins, data type 3 and the group, if this generation has groups", o, err)
		}
		for _, memory := range []uint64{0, 1} {
			expect(t, "a replica on NVMe-oF", start("b", mooncake.ReplicateConfig{Replicas: memory, NoF: 1}), errs.InvalidParams)
		}
		expect(t, "no replicas", start("b", mooncake.ReplicateConfig{}), errs.InvalidParams)
		expect(t, "a key that is not text", start("\xff", config()), errs.InvalidKey)
		if g.Name == "head" {
			for _, memory := range []uint64{0, 1} {
				expect(t, "a replica in DFS", start("b", mooncake.ReplicateConfig{Replicas: memory, DFS: 1}), errs.NotSupported)
			}
			ttl := uint64(1000)
			withTTL := mooncake.ReplicateConfig{Replicas: 1, SoftPin: mooncake.SoftPinEnable, SoftPinMillis: &ttl}
			expect(t, "a soft pin with a TTL", start("c", withTTL), errs.OK)
			ttl = 0
			expect(t, "a soft pin of no time", start("e", withTTL), errs.OK)
			for key, pinned := range map[string]bool{"c": true, "e": false} {
				expect(t, "PutEnd", ask(t, c, g.PutEnd, mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: key}, Kind: mooncake.ReplicaAll}), errs.OK)
				if o, err := n.primary.Store.Inspect(metadata.DefaultTenant, key); err != nil || o.SoftPin != pinned {
					t.Errorf("%s: got %+v, %v; want a soft pin %t", key, o, err, pinned)
				}
			}
			withTTL.SoftPin = mooncake.SoftPinPreserve
			expect(t, "a TTL without a soft pin", start("d", withTTL), errs.InvalidParams)
			withTTL.SoftPin = 9
			expect(t, "an action that is none", start("d", withTTL), errs.InvalidParams)
			two := config()
			two.Groups = &[]string{"x", "y"}
			expect(t, "two groups for a key", start("d", two), errs.InvalidParams)
		}
		expect(t, "replicas of an unknown type", ask(t, c, g.PutEnd, mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: "a"}, Kind: 77}), errs.InvalidWrite)
	})
}

// A client that gave up on a PutStart, and asks again, gets its place at once;
// one that had its answer does not, nor does another client.
func TestPutStartOfOneThatWasGone(t *testing.T) {
	n := primary(t)
	began, goOn := make(chan struct{}), make(chan struct{})
	pause := func() { n.pause.Store(nil); close(began); <-goOn } // the first call alone
	n.pause.Store(&pause)
	first := n.dial(t, "head")
	args := mooncake.Args{Client: client(7), Key: "a", Size: 100, Config: config()}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		var r mooncake.Result[mooncake.ObjectReplicas]
		_, _ = mooncakeclient.Do(t.Context(), first, first.Generation.PutStart, &args, &r)
	}()
	<-began
	first.Close()
	<-gone
	n.clock.Add(int64(time.Second))
	close(goOn)
	until(t, "the first call has its place", func() bool { return n.primary.Store.Stats().Objects == 1 })

	c := n.dial(t, "head")
	other := args
	other.Client = client(8)
	deadline := time.Now().Add(20 * time.Second)
	var again mooncake.Result[mooncake.ObjectReplicas]
	for { // until the first call has ended, too
		expect(t, "PutStart of another client", ask(t, c, c.Generation.PutStart, other), errs.ObjectExists)
		if again = ask(t, c, c.Generation.PutStart, args); again.Failure == 0 || time.Now().After(deadline) {
			break
		}
	}
	expect(t, "PutStart once more", again, errs.OK)
	expect(t, "PutStart after an answer", ask(t, c, c.Generation.PutStart, args), errs.ObjectExists)
	expect(t, "PutEnd", ask(t, c, c.Generation.PutEnd, mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: "a"}}), errs.OK)
	if q := n.primary.Store.Stats().Quarantined; q == 0 {
		t.Errorf("the first put's place: got %d bytes in quarantine, want some: its writer may be at work", q)
	}
}

// A client that gives up on one of its calls has the answers to those before: another put of
// its own under the key of such a one must not replace what it is writing.
func TestPutStartBeforeOneThatWasGone(t *testing.T) {
	n := primary(t)
	g, _ := mooncake.NewGeneration("head")
	first, second := mooncake.Args{Client: client(7), Key: "a", Size: 100, Config: config()}, mooncake.Args{Client: client(7), Key: "b", Size: 100, Config: config()}
	began, goOn := make(chan struct{}), make(chan struct{})
	pause := func() { // the second call
		if n.primary.Store.Stats().Objects == 1 {
			n.pause.Store(nil)
			close(began)
			<-goOn
		}
	}
	n.pause.Store(&pause)
	pipe, err := net.Dial("tcp", n.address["head"])
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	var requests []byte
	for _, a := range []mooncake.Args{first, second} {
		at := len(requests)
		requests = append(requests, coro.Magic, 0, 0, 0, 0, 0, 0, 0)
		requests = append(binary.LittleEndian.AppendUint32(requests, g.PutStart.ID), 0, 0, 0, 0, 0, 0, 0, 0)
		requests = structpack.Pack(new(structpack.Writer), requests, g.PutStart.Args, &a)
		binary.LittleEndian.PutUint32(requests[at+12:], uint32(len(requests)-at-20))
	}
	if _, err := pipe.Write(requests); err != nil {
		t.Fatal(err)
	}
	<-began
	if _, err := io.ReadFull(pipe, make([]byte, 17)); err != nil { // the first answer has come
		t.Fatal(err)
	}
	pipe.Close()
	n.clock.Add(int64(time.Second))
	close(goOn)
	c := n.dial(t, "head")
	until(t, "the second is given up", func() bool { return ask(t, c, g.PutStart, second).Failure == 0 })
	expect(t, "PutStart after an answer", ask(t, c, g.PutStart, first), errs.ObjectExists)
}
