package mooncakeserver_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/segment"
)

// Upstream's master takes batches of any length, so its clients do not split them.
func TestLongBatches(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		const n = 10_001
		keys, sizes, items := make([]string, n), make([]uint64, n), make([]mooncake.PutItem, n)
		for i := range keys {
			keys[i], sizes[i] = fmt.Sprint("k", i), 40
			items[i].Key = keys[i]
		}
		a := mooncake.Args{Client: client(7), Keys: keys, Sizes: sizes, Items: items, Config: config()}
		expectAll(t, "BatchPutStart", ask(t, c, g.BatchPutStart, a), n, errs.OK)
		expectAll(t, "BatchPutEnd", ask(t, c, g.BatchPutEnd, a), n, errs.OK)
		exist := ask(t, c, g.BatchExistKey, a)
		expectAll(t, "BatchExistKey", exist, n, errs.OK)
		lists := ask(t, c, g.BatchGetReplicaList, a)
		expectAll(t, "BatchGetReplicaList", lists, n, errs.OK)
		if !exist[n-1].Value || len(lists[n-1].Value.Replicas) != 1 {
			t.Errorf("the last key: got %t, %+v; want it with a replica", exist[n-1].Value, lists[n-1].Value)
		}
		expectAll(t, "BatchPutRevoke", ask(t, c, g.BatchPutRevoke, a), n, errs.InvalidWrite)
		if cleared := ask(t, c, g.BatchReplicaClear, a); len(cleared.Value) != 0 || cleared.Failure != 0 { // all have leases
			t.Errorf("BatchReplicaClear: got %d keys, failure %d; want none", len(cleared.Value), cleared.Failure)
		}
		expect(t, "BatchQueryIp", ask(t, c, g.BatchQueryIP, mooncake.Args{Clients: make([]segment.ClientID, n)}), errs.OK)
		a.Force = true
		expectAll(t, "BatchRemove", ask(t, c, g.BatchRemove, a), n, errs.OK)
	})
}

func expectAll[T any](t *testing.T, what string, got []mooncake.Result[T], n int, kind errs.Kind) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%s: got %d results, want %d", what, len(got), n)
	}
	for i := range got {
		if got[i].Failure != kind.Number() {
			t.Fatalf("%s: item %d: got %d, want %d (%v)", what, i, got[i].Failure, kind.Number(), kind)
		}
	}
}

// A client learns why its batch is too long, and keeps its connection.
func TestBatchesOfTooManyElements(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		err := fails(t, c, g.BatchExistKey, mooncake.Args{Keys: make([]string, structpack.MaxElements+1)})
		if !strings.Contains(err.Error(), "131072 elements") {
			t.Errorf("got %v, want an error that says how many elements a request may have", err)
		}
		expectAll(t, "the largest batch", ask(t, c, g.BatchExistKey, mooncake.Args{Keys: make([]string, structpack.MaxElements)}), structpack.MaxElements, errs.OK)
	})
}
