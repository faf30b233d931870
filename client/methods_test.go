package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// serving returns a client of a lone primary, with memory mounted.
func serving(t testing.TB) (*cluster, *client.Client) {
	t.Helper()
	cl := newCluster(t, 1)
	cl.lead(0)
	c := cl.connectAll()
	mountMemory(t, c)
	return cl, c
}

func TestPutAndGet(t *testing.T) {
	_, c := serving(t)
	ctx := t.Context()
	r, err := c.PutStart(ctx, client.PutItem{Key: "k", Size: 100, Group: "g"}, client.PutConfig{
		Replicas: 2, PreferredSegments: []string{"host-a"}, SoftPin: client.PinSoftly, SoftPinTTL: time.Minute, DataType: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Key != "k" || r.ID == 0 || r.Size != 100 || len(r.Replicas) != 1 {
		t.Errorf("reserved %+v; want k with an id, 100 bytes and one replica", r)
	}
	if m := r.Replicas[0]; m.Kind != client.Memory || m.Address < 1<<32 || m.Endpoint != "10.0.0.1:7000" || m.Protocol != "tcp" || m.Segment != "host-a" {
		t.Errorf("replica %+v; want memory of host-a at 10.0.0.1:7000 over tcp", m)
	}
	_, err = c.GetReplicaList(ctx, "k")
	wantKind(t, "get before the end", err, errs.ReplicaNotReady)
	_, err = c.PutStart(ctx, client.PutItem{Key: "k", Size: 100}, client.PutConfig{})
	wantKind(t, "a second put", err, errs.ObjectExists)
	put := r.Ref()
	put.Checksum = proto.Uint64(42)
	if err := c.PutEnd(ctx, put, client.SelectMemory); err != nil {
		t.Fatal(err)
	}
	o, err := c.GetReplicaList(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if o.ID != r.ID || o.Size != 100 || o.Checksum == nil || *o.Checksum != 42 || !slices.Equal(o.Replicas, r.Replicas) {
		t.Errorf("got %+v, put %+v; want what was put, with checksum 42", o, r)
	}
	if left := o.Lease.Remaining(); !o.Lease.Valid() || left > params.LeaseTTL || left < params.LeaseTTL-5*time.Second {
		t.Errorf("the lease runs for %v, want at most %v and 5 s less at least", left, params.LeaseTTL)
	}
	exists, err := c.ExistKey(ctx, "k")
	if err != nil || !exists {
		t.Errorf("exists %v, %v; want true and no error", exists, err)
	}
	if exists, err = c.ExistKey(ctx, "other"); err != nil || exists {
		t.Errorf("another exists: got %v, %v; want false and no error", exists, err)
	}
	wantKind(t, "revoke of a whole object", c.PutRevoke(ctx, put, client.SelectAll), errs.InvalidWrite)
	wantKind(t, "end of another put", c.PutEnd(ctx, client.PutRef{Key: "k", ID: r.ID + 1}, client.SelectAll), errs.ObjectNotFound)
	wantKind(t, "remove", c.Remove(ctx, "k", client.Removal{}), errs.ObjectHasLease)
	wantKind(t, "remove by force", c.Remove(ctx, "k", client.Removal{Force: true}), errs.OK)
	_, err = c.GetReplicaList(ctx, "k")
	if !errors.Is(err, errs.ObjectNotFound) || errs.KindOf(err).Number() != -704 {
		t.Errorf("removed: %v; want ObjectNotFound, -704", err)
	}
	r, err = c.PutStart(ctx, client.PutItem{Key: "k", Size: 1}, client.PutConfig{HardPin: true, SameNode: true, HostID: "a"})
	if err == nil {
		err = c.PutRevoke(ctx, client.PutRef{Key: "k"}, client.SelectAll)
	}
	wantKind(t, "put and revoke without an id", err, errs.OK)
}

func TestBatches(t *testing.T) {
	_, c := serving(t)
	ctx := t.Context()
	put(t, c, "old")
	long := strings.Repeat("x", 70_000)
	reserved, err := c.BatchPutStart(ctx, []client.PutItem{{Key: "a", Size: 1}, {Key: "old", Size: 1}, {Key: "b", Size: 1}, {Key: "", Size: 1}}, client.PutConfig{})
	if err != nil || len(reserved) != 4 {
		t.Fatalf("got %v, %v; want 4 entries and no error", reserved, err)
	}
	for i, want := range []errs.Kind{errs.OK, errs.ObjectExists, errs.OK, errs.InvalidParams} {
		r := reserved[i]
		wantKind(t, fmt.Sprint("put ", i), r.Err, want)
		if whole := r.ID != 0 && len(r.Replicas) == 1 && r.Size == 1; whole != (r.Err == nil) {
			t.Errorf("put %d: %+v; want a reservation of one replica, or an error", i, r)
		}
	}
	refs := []client.PutRef{reserved[0].Ref(), {Key: "missing", ID: 1}, reserved[2].Ref()}
	failed, err := c.BatchPutEnd(ctx, refs, client.SelectAll)
	wantKinds(t, "ends", failed, err, errs.OK, errs.ObjectNotFound, errs.OK)
	failed, err = c.BatchPutRevoke(ctx, refs[:2], client.SelectAll)
	wantKinds(t, "revokes", failed, err, errs.InvalidWrite, errs.ObjectNotFound)

	exist, err := c.BatchExistKey(ctx, []string{"a", "missing", long, "b"})
	if err != nil || len(exist) != 4 || !exist[0].Exists || exist[1].Exists || exist[1].Err != nil || exist[2].Exists || !exist[3].Exists {
		t.Errorf("exist: %v, %v; want true, false, false, true", exist, err)
	}
	wantKind(t, "a long key", exist[2].Err, errs.InvalidKey)
	found, err := c.BatchGetReplicaList(ctx, []string{"a", "missing", "b", "a"})
	if err != nil || len(found) != 4 {
		t.Fatalf("got %v, %v; want 4 entries and no error", found, err)
	}
	wantKind(t, "get of a missing key", found[1].Err, errs.ObjectNotFound)
	for i, ref := range []int{0, -1, 2, 0} {
		if ref >= 0 && (found[i].Err != nil || found[i].ID != reserved[ref].ID || len(found[i].Replicas) != 1 || !found[i].Lease.Valid()) {
			t.Errorf("get %d: %+v; want the object that was put, under a lease", i, found[i])
		}
	}
	failed, err = c.BatchRemove(ctx, []string{"a", "missing", "old", "old"}, client.Removal{})
	wantKinds(t, "removals", failed, err, errs.ObjectHasLease, errs.ObjectNotFound, errs.OK, errs.ObjectNotFound)

	_, err = c.BatchRemove(ctx, nil, client.Removal{})
	wantKind(t, "an empty batch", err, errs.InvalidParams)
	_, err = c.BatchExistKey(ctx, make([]string, 10_001))
	wantKind(t, "a batch that is too long", err, errs.InvalidParams)
}

func wantKinds(t *testing.T, what string, failed []error, err error, want ...errs.Kind) {
	t.Helper()
	if err != nil || len(failed) != len(want) {
		t.Fatalf("%s: %v, %v; want %d entries", what, failed, err, len(want))
	}
	for i := range want {
		wantKind(t, fmt.Sprint(what, " ", i), failed[i], want[i])
	}
}

func TestRegexAndRemovals(t *testing.T) {
	_, c := serving(t)
	ctx := t.Context()
	put(t, c, "a1", "a2", "a3", "b1", "b2")
	seen := make(map[string]bool)
	for o, err := range c.GetReplicaListByRegex(ctx, "^a", 2) {
		if err != nil || len(o.Replicas) != 1 || !o.Lease.Valid() {
			t.Fatalf("an object of a search: got %+v, %v; want one replica under a lease", o, err)
		}
		seen[o.Key] = true
	}
	if len(seen) != 3 || !seen["a1"] || !seen["a2"] || !seen["a3"] {
		t.Errorf("found %v, want a1, a2 and a3", seen)
	}
	for _, err := range c.GetReplicaListByRegex(ctx, "", 0) {
		wantKind(t, "the first of all", err, errs.OK)
		break // the caller may have enough
	}
	for name, bad := range map[string]struct {
		regex string
		page  int
	}{"regex": {"(?=x)", 0}, "page": {"", -1}, "long page": {"", 10_001}} {
		n := 0
		for _, err := range c.GetReplicaListByRegex(ctx, bad.regex, bad.page) {
			wantKind(t, name, err, errs.InvalidParams)
			n++
		}
		if n != 1 {
			t.Errorf("%s: yielded %d times, want 1", name, n)
		}
	}
	n, err := c.RemoveByRegex(ctx, "^a", client.Removal{Force: true})
	if n != (client.RemovalResult{Removed: 3}) || err != nil {
		t.Errorf("got %+v, %v; want 3 removed and no error", n, err)
	}
	cleared, err := c.BatchReplicaClear(ctx, []string{"b1", "missing"}, "elsewhere")
	if err != nil || !slices.Equal(cleared, []bool{false, false}) {
		t.Errorf("cleared %v, %v; want [false false] and no error", cleared, err)
	}
	put(t, c, "c1", "c2")
	if cleared, err = c.BatchReplicaClear(ctx, []string{"missing", "c1"}, "host-a"); err != nil || !slices.Equal(cleared, []bool{false, true}) {
		t.Errorf("cleared %v, %v; want [false true] and no error", cleared, err)
	}
	if n, err = c.RemoveAll(ctx, client.Removal{Force: true}); n.Removed != 3 || err != nil {
		t.Errorf("got %+v, %v; want 3 removed and no error", n, err)
	}
	if n, err = c.RemoveAllTenants(ctx, client.Removal{}); n.Removed != 0 || err != nil {
		t.Errorf("got %+v, %v; want 0 removed and no error", n, err)
	}
}

func TestQueries(t *testing.T) {
	_, c := serving(t)
	ctx := t.Context()
	server, err := c.ServiceReady(ctx)
	if err != nil || server != (client.Server{NodeID: "node-0", Term: 1, Version: "1.2.3", Revision: 1}) {
		t.Errorf("ServiceReady: got %+v, %v; want node-0 in term 1, version 1.2.3", server, err)
	}
	ips, err := c.BatchQueryIP(ctx, []uuid.UUID{uuid.New(), c.ID()})
	if err != nil || len(ips) != 1 || !slices.Equal(ips[c.ID()], []string{"10.0.0.1"}) {
		t.Errorf("got %v, %v; want 1 entry, [10.0.0.1] and no error", ips, err)
	}
	dir, err := c.GetFsdir(ctx)
	if dir != "" || err != nil {
		t.Errorf("got %q, %v; want \"\" and no error", dir, err)
	}
	config, err := c.GetStorageConfig(ctx)
	if config != (client.StorageConfig{EnableDiskEviction: true, QuotaBytes: 1 << 30}) || err != nil {
		t.Errorf("the storage configuration: got %+v, %v; want disk eviction and a quota of 1 GiB", config, err)
	}
	alive, err := c.Ping(ctx)
	if alive != (client.Liveness{TTL: 10 * time.Second}) || err != nil {
		t.Errorf("Ping: got %+v, %v; want a TTL of 10 s alone", alive, err)
	}
}

// The client refuses arguments that cannot be sent, or would be taken for something else.
func TestArgumentsThatCannotBe(t *testing.T) {
	_, c := serving(t)
	ctx := t.Context()
	for name, config := range map[string]client.PutConfig{
		"replicas":  {Replicas: -1},
		"too many":  {Replicas: 65},
		"soft pin":  {SoftPin: 9},
		"pin time":  {SoftPin: client.PinSoftly, SoftPinTTL: -1},
		"pin alone": {SoftPinTTL: time.Nanosecond}, // refused by the server: it is not rounded to none
	} {
		_, err := c.PutStart(ctx, client.PutItem{Key: "k", Size: 1}, config)
		wantKind(t, name, err, errs.InvalidParams)
		_, err = c.BatchPutStart(ctx, []client.PutItem{{Key: "k", Size: 1}}, config)
		wantKind(t, name, err, errs.InvalidParams)
	}
	ref := client.PutRef{Key: "k"}
	wantKind(t, "selector", c.PutEnd(ctx, ref, 9), errs.InvalidParams)
	wantKind(t, "selector", c.PutRevoke(ctx, ref, 9), errs.InvalidParams)
	_, err := c.BatchPutEnd(ctx, []client.PutRef{ref}, 9)
	wantKind(t, "selector", err, errs.InvalidParams)
	_, err = c.BatchPutRevoke(ctx, []client.PutRef{ref}, 9)
	wantKind(t, "selector", err, errs.InvalidParams)
	_, err = c.ExistKey(ctx, "a\xff")
	wantKind(t, "a key that is not UTF-8", err, errs.InvalidParams)
	if err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("%v does not say what to do: want \"UTF-8\" in it", err)
	}
}

func TestMessagesThatAreTooLarge(t *testing.T) {
	cl := newCluster(t, 1)
	cl.lead(0)
	c := connect(t, client.Config{Addresses: cl.addresses(), MaxMessageBytes: 32 << 10})
	mountMemory(t, c)
	put(t, c, "k")
	keys := slices.Repeat([]string{strings.Repeat("x", 1000)}, 100)
	_, err := c.BatchRemove(t.Context(), keys, client.Removal{})
	wantKind(t, "a request", err, errs.InvalidParams)
	_, err = c.BatchGetReplicaList(t.Context(), slices.Repeat([]string{"k"}, 2000))
	wantKind(t, "an answer", err, errs.InvalidParams)
	items := make([]client.PutItem, 1000)
	for i := range items {
		items[i] = client.PutItem{Key: fmt.Sprint(i), Size: 1}
	}
	_, err = c.BatchPutStart(t.Context(), items, client.PutConfig{})
	wantKind(t, "an answer about changes", err, errs.Unresolved)
	if err == nil || !strings.Contains(err.Error(), "look") {
		t.Errorf("%v does not say what to do: want \"look\" in it", err)
	}
}
