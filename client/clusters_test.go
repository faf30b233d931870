package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// twoClusters are real masters of two clusters, and a client of both that has
// mounted memory at each.
func twoClusters(t *testing.T) (east, west *cluster, c *client.Clusters) {
	t.Helper()
	east, west = newNamed(t, "east"), newNamed(t, "west")
	c = connectTwo(t, east.addresses(), west.addresses())
	for i, id := range []string{"east", "west"} {
		if err := c.MountSegment(t.Context(), id, memory(uint64(i+1)<<32)); err != nil {
			t.Fatal(err)
		}
	}
	return east, west, c
}

// eastBehindAFront returns a client of two real masters. The front can lose answers of one of
// them.
func eastBehindAFront(t *testing.T) (east *cluster, f *front, c *client.Clusters) {
	t.Helper()
	east = newNamed(t, "east")
	f = newFront(t, east.nodes[0].address)
	return east, f, connectTwo(t, []string{f.address}, newNamed(t, "west").addresses())
}

// newNamed starts a lone primary of a cluster.
func newNamed(t *testing.T, id string) *cluster {
	t.Helper()
	cl := newCluster(t, 0)
	cl.nodes = []*node{newNode(cl, "node-of-"+id, id)}
	cl.lead(0)
	return cl
}

func connectTwo(t *testing.T, east, west []string) *client.Clusters {
	t.Helper()
	c, err := client.NewClusters(
		client.Config{Addresses: east, ClusterID: "east"},
		client.Config{Addresses: west, ClusterID: "west"},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func items(keys []string) (list []client.PutItem) {
	for _, key := range keys {
		list = append(list, client.PutItem{Key: key, Size: 100})
	}
	return list
}

// putAll puts objects over all clusters in two batches.
func putAll(t *testing.T, c *client.Clusters, keys []string) {
	t.Helper()
	reserved, err := c.BatchPutStart(t.Context(), items(keys), client.PutConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var refs []client.PutRef
	for i := range reserved {
		if reserved[i].Err != nil || reserved[i].Key != keys[i] {
			t.Fatalf("put %s: reserved %+v; want it, in order", keys[i], reserved[i])
		}
		refs = append(refs, reserved[i].Ref())
	}
	failed, err := c.BatchPutEnd(t.Context(), refs, client.SelectAll)
	if err != nil || slices.ContainsFunc(failed, func(err error) bool { return err != nil }) {
		t.Fatalf("put end: got %v, %v; want success for all", failed, err)
	}
}

func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("block-", i))
	}
	return keys
}

// Batches are split by cluster, and their answers come in the order of the keys.
func TestClustersShareKeys(t *testing.T) {
	east, west, c := twoClusters(t)
	keys := numbered(200)
	putAll(t, c, keys)
	if e, w := east.objects(), west.objects(); e+w != 200 || e < 60 || w < 60 {
		t.Fatalf("%d objects are in one cluster and %d in the other, want about half of 200 each", e, w)
	}
	asked := append(slices.Clone(keys), "missing")
	found, err := c.BatchGetReplicaList(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	exist, err := c.BatchExistKey(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		one, err := c.GetReplicaList(t.Context(), key)
		if err != nil || found[i].Err != nil || found[i].ID != one.ID || !slices.Equal(found[i].Replicas, one.Replicas) || !exist[i].Exists {
			t.Errorf("%s: alone %+v, %v; in a batch %+v; want the same object", key, one, err, found[i])
		}
	}
	wantKind(t, "get of a missing key", found[200].Err, errs.ObjectNotFound)
	if exist[200].Exists {
		t.Error("a key that was never put, in a batch: got that it exists, want that it does not")
	}
	n := 0
	for o, err := range c.GetReplicaListByRegex(t.Context(), "^block-1", 10) {
		if n++; err != nil || o.Size != 100 {
			t.Errorf("an object by a pattern: got %+v, error %v, want one of 100 bytes", o, err)
		}
	}
	if n != 111 {
		t.Errorf("%d objects by a pattern, want 111", n)
	}
	if removed, err := c.RemoveByRegex(t.Context(), "^block-1", client.Removal{Force: true}); removed.Removed != 111 || err != nil {
		t.Errorf("removed %d by a pattern, %v; want 111", removed, err)
	}
	failed, err := c.BatchRemove(t.Context(), keys, client.Removal{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range failed {
		want := errs.OK
		if keys[i][:7] == "block-1" {
			want = errs.ObjectNotFound
		}
		wantKind(t, keys[i], err, want)
	}
	if left := east.objects() + west.objects(); left != 0 {
		t.Errorf("%d objects are left, want none", left)
	}
}

// A single call of any kind goes to the same cluster as a batch with that key.
func TestClustersCallOneByOne(t *testing.T) {
	east, west, c := twoClusters(t)
	for _, key := range numbered(20) {
		r, err := c.PutStart(t.Context(), client.PutItem{Key: key, Size: 100}, client.PutConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.PutEnd(t.Context(), r.Ref(), client.SelectAll); err != nil {
			t.Fatal(err)
		}
		if ok, err := c.ExistKey(t.Context(), key); !ok || err != nil {
			t.Errorf("key %s by a single call: got exists %v, error %v, want it found", key, ok, err)
		}
		if ok, err := c.Of(key).ExistKey(t.Context(), key); !ok || err != nil {
			t.Errorf("key %s at its cluster: got exists %v, error %v, want it found", key, ok, err)
		}
	}
	wantKind(t, "remove", c.Remove(t.Context(), "block-0", client.Removal{Force: true}), errs.OK)
	open, err := c.BatchPutStart(t.Context(), items([]string{"a", "b", "c", "d", "e"}), client.PutConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var refs []client.PutRef
	for i := range open[1:] {
		refs = append(refs, open[i+1].Ref())
	}
	wantKind(t, "revoke", c.PutRevoke(t.Context(), open[0].Ref(), client.SelectAll), errs.OK)
	failed, err := c.BatchPutRevoke(t.Context(), refs, client.SelectAll)
	if err != nil || slices.ContainsFunc(failed, func(err error) bool { return err != nil }) {
		t.Errorf("revoke of a batch: got %v, %v; want success for all", failed, err)
	}
	if removed, err := c.RemoveAll(t.Context(), client.Removal{Force: true}); removed.Removed != 19 || err != nil || east.objects()+west.objects() != 0 {
		t.Errorf("removed %d, %v; want all 19", removed, err)
	}
}

// If a cluster does not answer, calls for keys of the others still succeed.
func TestClustersFailByThemselves(t *testing.T) {
	east, _, c := twoClusters(t)
	keys := numbered(50)
	putAll(t, c, keys)
	var ids []string
	var first *client.Client
	for id, one := range c.All() {
		if ids = append(ids, id); first == nil {
			first = one
		}
	}
	east.nodes[0].stop()
	found, err := c.BatchGetReplicaList(soon(t, 5*time.Second), keys)
	if err != nil {
		t.Fatalf("a batch over a dead cluster and a living one: got error %v, want an answer for each key", err)
	}

	for i, f := range found {
		want := errs.OK
		if c.Of(keys[i]) == first {
			want = errs.Unavailable
		}
		wantKind(t, keys[i], f.Err, want)
	}
	if !slices.Equal(ids, []string{"east", "west"}) {
		t.Errorf("the clusters are %v, want east and west", ids)
	}
	c.Close()
	_, err = c.BatchGetReplicaList(t.Context(), keys)
	if !errors.Is(err, client.ErrClosed) {
		t.Errorf("with no cluster left: got %v, want the call to fail as a whole", err)
	}
}

// Memory belongs to one cluster.
func TestClustersShareNoMemory(t *testing.T) {
	_, _, c := twoClusters(t)
	s := memory(1<<32 + 1<<20)
	wantKind(t, "memory of another cluster", c.MountSegment(t.Context(), "west", s), errs.InvalidParams)
	wantKind(t, "an unknown cluster", c.MountSegment(t.Context(), "north", s), errs.InvalidParams)
	wantKind(t, "an unknown cluster", c.UnmountSegment(t.Context(), "north", s.ID), errs.InvalidParams)
	free := memory(1 << 40)
	wantKind(t, "other memory", c.MountSegment(t.Context(), "west", free), errs.OK)
	wantKind(t, "unmount", c.UnmountSegment(t.Context(), "west", free.ID), errs.OK)
	free.ID = uuid.New()
	wantKind(t, "memory that is free again", c.MountSegment(t.Context(), "east", free), errs.OK)
}

// Memory that one cluster may have mounted cannot be mounted in another: after a mount whose
// answer is lost, and after an unmount that fails, until an unmount succeeds.
func TestClustersKeepWhatMayBeMounted(t *testing.T) {
	east, f, c := eastBehindAFront(t)
	lost := func(method string, call func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f.losingAfter(method, math.MaxInt, cancel)
		wantKind(t, method+" whose answer is lost", call(ctx), errs.Unresolved)
		f.answering(nil)
	}
	s := memory(1 << 40)
	inWest := s
	inWest.ID = uuid.New()
	refusedInWest := func(after string) {
		t.Helper()
		wantKind(t, "the other cluster, after "+after, c.MountSegment(t.Context(), "west", inWest), errs.InvalidParams)
	}
	lost("MountSegment", func(ctx context.Context) error { return c.MountSegment(ctx, "east", s) })
	if got := east.mounted(); !slices.Equal(got, ids(s)) {
		t.Fatalf("mounted are %v, want %v: only the answer is lost", got, ids(s))
	}
	refusedInWest("a mount whose answer is lost")
	again := s
	again.Size *= 2
	wantKind(t, "the same id with another size", c.MountSegment(t.Context(), "east", again), errs.SegmentExists)
	refusedInWest("a refused mount")
	wantKind(t, "the same once more", c.MountSegment(t.Context(), "east", s), errs.OK)
	refusedInWest("a mount")
	f.answering(func(method string, _, resp proto.Message, err error) (proto.Message, error) {
		if method == "MountSegment" {
			return nil, rpcerr.Status(errs.InvalidParams, method, rpcerr.Source{Term: 1, ClusterID: "east", NodeID: "node-of-east"}).Err()
		}
		return resp, err
	})
	wantKind(t, "a mount that is refused of what is mounted", c.MountSegment(t.Context(), "east", s), errs.InvalidParams)
	refusedInWest("a refusal of what is mounted")
	lost("UnmountSegment", func(ctx context.Context) error { return c.UnmountSegment(ctx, "east", s.ID) })
	refusedInWest("an unmount whose answer is lost")
	wantKind(t, "unmount", c.UnmountSegment(t.Context(), "east", s.ID), errs.OK)
	wantKind(t, "memory that is free again", c.MountSegment(t.Context(), "west", inWest), errs.OK)

	s = memory(1 << 50)
	f.answering(func(string, proto.Message, proto.Message, error) (proto.Message, error) {
		return nil, status.Error(codes.Internal, "what?")
	})
	wantKind(t, "a mount with an answer that says nothing", c.MountSegment(t.Context(), "east", s), errs.Internal)
	wantKind(t, "the other cluster", c.MountSegment(t.Context(), "west", s), errs.InvalidParams)
}

// While memory is being unmounted, its cluster still has it.
func TestClustersMountDuringUnmount(t *testing.T) {
	east, _, c := twoClusters(t)
	s := memory(1 << 40)
	wantKind(t, "mount", c.MountSegment(t.Context(), "east", s), errs.OK)
	entered, release := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	east.log.refusing(func() error {
		enter()
		<-release
		return nil
	})
	done := make(chan error, 1)
	go func() { done <- c.UnmountSegment(context.Background(), "east", s.ID) }()
	<-entered
	wantKind(t, "memory that is being unmounted", c.MountSegment(t.Context(), "west", s), errs.InvalidParams)
	wantKind(t, "other memory meanwhile", c.MountSegment(t.Context(), "west", memory(1<<50)), errs.OK)
	close(release)
	wantKind(t, "unmount", <-done, errs.OK)
	wantKind(t, "memory that is free again", c.MountSegment(t.Context(), "west", s), errs.OK)
}

// A mount that is refused, or replaced by another one, claims nothing.
func TestClustersLetGoOfWhatIsRefused(t *testing.T) {
	_, _, c := twoClusters(t)
	s := memory(1 << 40)
	wantKind(t, "mount", c.MountSegment(t.Context(), "east", s), errs.OK)
	elsewhere := s
	elsewhere.Base = 1 << 50
	wantKind(t, "the same id elsewhere", c.MountSegment(t.Context(), "east", elsewhere), errs.SegmentExists)
	wantKind(t, "memory that was refused", c.MountSegment(t.Context(), "west", memory(1<<50)), errs.OK)
	wantKind(t, "a mount over the first half's end", c.MountSegment(t.Context(), "east", memory(1<<40+1<<29)), errs.OK)
	begin := memory(1 << 40)
	begin.Size = 1 << 29
	wantKind(t, "memory of a segment that was replaced", c.MountSegment(t.Context(), "west", begin), errs.OK)
}

// Memory of one cluster cannot be mounted in another while readers or writers may still use it,
// however it was unmounted.
func TestClustersHoldMemoryInUse(t *testing.T) {
	type world struct {
		*client.Clusters
		addresses []string // of the cluster that has the memory
		segment   client.Segment
	}
	read := func(t *testing.T, w world) {
		put(t, at(w.Clusters, "east"), "k")
		if _, err := at(w.Clusters, "east").GetReplicaList(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	write := func(t *testing.T, w world) {
		if _, err := at(w.Clusters, "east").PutStart(t.Context(), client.PutItem{Key: "l", Size: 100}, client.PutConfig{}); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func(t *testing.T, w world) {
		wantKind(t, "unmount", w.UnmountSegment(t.Context(), "east", w.segment.ID), errs.OK)
	}
	repeat := func(t *testing.T, w world) {
		other := connect(t, client.Config{Addresses: w.addresses, ClusterID: "east"})
		wantKind(t, "unmount by another", other.UnmountSegment(t.Context(), w.segment.ID), errs.OK)
		unmount(t, w)
	}
	replace := func(t *testing.T, w world) {
		w.segment.ID, w.segment.Size = uuid.New(), w.segment.Size/2
		wantKind(t, "a mount of the first half", w.MountSegment(t.Context(), "east", w.segment), errs.OK)
		unmount(t, w)
	}
	for name, test := range map[string]struct{ use, end func(*testing.T, world) }{
		"a lease, an unmount":               {read, unmount},
		"an open put, an unmount":           {write, unmount},
		"an open put, a repeated unmount":   {write, repeat},
		"an open put, a mount in its place": {write, replace},
	} {
		t.Run(name, func(t *testing.T) {
			east := newNamed(t, "east").addresses()
			w := world{connectTwo(t, east, newNamed(t, "west").addresses()), east, memory(1 << 32)}
			wantKind(t, "mount", w.MountSegment(t.Context(), "east", w.segment), errs.OK)
			test.use(t, w)
			test.end(t, w)
			w.segment.ID = uuid.New()
			wantKind(t, "memory in use at the other cluster", w.MountSegment(t.Context(), "west", w.segment), errs.Unavailable)
			wantKind(t, "the same at its own cluster", w.MountSegment(t.Context(), "east", w.segment), errs.OK)
		})
	}
}

// at returns the client of one of several clusters.
func at(c *client.Clusters, cluster string) *client.Client {
	for id, one := range c.All() {
		if id == cluster {
			return one
		}
	}
	return nil
}

func TestClustersConfig(t *testing.T) {
	at := []string{"127.0.0.1:1"}
	for name, configs := range map[string][]client.Config{
		"none":        nil,
		"too many":    make([]client.Config, client.MaxClusters+1),
		"a fault":     {{ClusterID: "a", Addresses: at}, {ClusterID: "b"}},
		"one id":      {{Addresses: at}, {Addresses: at, ClusterID: clusterID}},
		"two tenants": {{ClusterID: "a", Addresses: at}, {ClusterID: "b", Addresses: at, Tenant: "t"}},
	} {
		_, err := client.NewClusters(configs...)
		wantKind(t, name, err, errs.InvalidParams)
	}
}

// An empty tenant means the default one, in all configurations and for the placement.
func TestClustersDefaultTenant(t *testing.T) {
	at := []string{"127.0.0.1:1"}
	c, err := client.NewClusters(
		client.Config{ClusterID: "a", Addresses: at},
		client.Config{ClusterID: "b", Addresses: at, Tenant: "default"},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := client.NewPlacement([]string{"a", "b"})
	for _, key := range numbered(64) {
		if none, named := p.Of("", key), p.Of("default", key); none != named {
			t.Errorf("%s: cluster %d without a tenant, %d with the default one; want the same", key, none, named)
		}
	}
}

// Keys spread evenly. A new cluster takes its share from the others, and no key moves between
// those. The order of the clusters has no effect, and the scores are those of the contract.
func TestPlacement(t *testing.T) {
	const n = 100_000
	four, five := client.NewPlacement([]string{"a", "b", "c", "d"}), client.NewPlacement([]string{"e", "d", "c", "b", "a"})
	var counts [4]int
	moved := 0
	for i := range n {
		key := fmt.Sprintf("block-%d", i)
		before, after := four.Of("default", key), 4-five.Of("default", key)
		counts[before]++
		if after == 4 {
			moved++
		} else if after != before {
			t.Fatalf("%s moves from cluster %d to %d, want it to stay or to go to the new one", key, before, after)
		}
	}
	for i, count := range counts {
		if math.Abs(float64(count)-n/4) > n/100 {
			t.Errorf("cluster %d has %d of %d keys, want about a quarter", i, count, n)
		}
	}
	if math.Abs(float64(moved)-n/5) > n/100 {
		t.Errorf("%d of %d keys move, want about a fifth", moved, n)
	}
	golden := ""
	for i := range 32 {
		golden += fmt.Sprint(four.Of("default", fmt.Sprint("key-", i)))
	}
	if want := goldenPlacement; golden != want {
		t.Errorf("32 keys are in clusters %s, want %s: clients of other versions would not find them", golden, want)
	}
	if n := testing.AllocsPerRun(100, func() { four.Of("default", "block-1") }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

const goldenPlacement = "22322002321103212123021131110013"
