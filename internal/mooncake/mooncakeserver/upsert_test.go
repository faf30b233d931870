package mooncakeserver_test

import (
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
)

func TestUpserts(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		start := func(who byte, size uint64) mooncake.Args {
			return mooncake.Args{Client: client(who), Key: "k", Size: size, Config: config()}
		}
		named := func(who byte) mooncake.Args {
			return mooncake.Args{Client: client(who), Key: "k", Item: mooncake.PutItem{Key: "k"}, Kind: mooncake.ReplicaAll}
		}
		readable := func(what string, want errs.Kind) mooncake.Result[metadata.ReplicaList] {
			t.Helper()
			r := ask(t, c, g.GetReplicaList, mooncake.Args{Key: "k"})
			expect(t, what, r, want)
			return r
		}
		first := ask(t, c, g.UpsertStart, start(7, 100))
		expect(t, "no object", first, errs.OK)
		expect(t, "its end", ask(t, c, g.UpsertEnd, named(7)), errs.OK)
		inPlace := ask(t, c, g.UpsertStart, start(8, 100))
		expect(t, "an object of the same size", inPlace, errs.OK)
		if got, want := inPlace.Value.Replicas[0].Address, first.Value.Replicas[0].Address; got != want {
			t.Errorf("in place: got address %#x, want %#x", got, want)
		}
		readable("before its end", errs.ReplicaNotReady)
		expect(t, "another thread of the client", ask(t, c, g.UpsertStart, start(8, 100)), errs.ReplicaBusy)
		elsewhere := ask(t, c, g.UpsertStart, start(9, 100))
		expect(t, "an upsert in progress", elsewhere, errs.OK)
		if elsewhere.Value.Replicas[0].Address == first.Value.Replicas[0].Address {
			t.Error("another client's upsert beside one in progress: got the memory of the first, want other memory")
		}
		expect(t, "the late end of the one before", ask(t, c, g.UpsertEnd, named(8)), errs.IllegalClient)
		expect(t, "its end", ask(t, c, g.UpsertEnd, named(9)), errs.OK)
		if got := readable("read", errs.OK); got.Value.Replicas[0].Address != elsewhere.Value.Replicas[0].Address {
			t.Errorf("got %+v, want the object where it was placed", got.Value)
		}
		leased := ask(t, c, g.UpsertStart, start(9, 100))
		expect(t, "an object with a lease", leased, errs.OK)
		if leased.Value.Replicas[0].Address == elsewhere.Value.Replicas[0].Address {
			t.Error("an upsert of an object with a lease: got the same memory, want other: a reader may read it")
		}
		expect(t, "a put", ask(t, c, g.PutStart, start(9, 100)), errs.ObjectExists)
		expect(t, "its revocation", ask(t, c, g.UpsertRevoke, named(9)), errs.OK)
		readable("after the revocation", errs.ObjectNotFound)
		expect(t, "no bytes", ask(t, c, g.UpsertStart, start(9, 0)), errs.InvalidParams)
	})
}

func TestUpsertBatches(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		put(t, c, 7, "a")
		keys := mooncake.Args{Client: client(7), Keys: []string{"a", "b", "", "a"}, Sizes: []uint64{100, 5, 1, 100}, Config: config()}
		want(t, "BatchUpsertStart", ask(t, c, g.BatchUpsertStart, keys), errs.OK, errs.OK, errs.InvalidParams, errs.OK)
		ended := mooncake.Args{Client: client(7), Items: []mooncake.PutItem{{Key: "a"}, {Key: "b"}, {Key: "a"}, {Key: "c"}}}
		want(t, "BatchUpsertEnd", ask(t, c, g.BatchUpsertEnd, ended), errs.OK, errs.OK, errs.OK, errs.ObjectNotFound)
		keys.Sizes = keys.Sizes[:1]
		invalid := errs.InvalidParams
		want(t, "sizes are missing", ask(t, c, g.BatchUpsertStart, keys), invalid, invalid, invalid, invalid)
		keys.Keys, keys.Sizes = []string{"a", "b"}, []uint64{1, 2}
		want(t, "BatchUpsertStart of objects", ask(t, c, g.BatchUpsertStart, keys), errs.OK, errs.OK)
		keys.Keys = []string{"a", "c"}
		want(t, "BatchUpsertRevoke", ask(t, c, g.BatchUpsertRevoke, keys), errs.OK, errs.ObjectNotFound)
		if r := ask(t, c, g.GetReplicaList, mooncake.Args{Key: "b"}); r.Failure != errs.ReplicaNotReady.Number() {
			t.Errorf("the other one: got %v, want that it is in progress", r)
		}
	})
}

// A group stays with its key.
func TestUpsertsOfGroups(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		if !g.Fields.Groups {
			return
		}
		start := mooncake.Args{Client: client(7), Key: "k", Size: 100, Config: config()}
		start.Config.Groups = &[]string{"g"}
		expect(t, "PutStart", ask(t, c, g.PutStart, start), errs.OK)
		expect(t, "PutEnd", ask(t, c, g.PutEnd, mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: "k"}}), errs.OK)
		start.Config.Groups = &[]string{"h"}
		expect(t, "another group", ask(t, c, g.UpsertStart, start), errs.InvalidParams)
		start.Config.Groups = &[]string{""}
		expect(t, "in no group", ask(t, c, g.UpsertStart, start), errs.InvalidParams)
		start.Config.Groups = nil
		expect(t, "no group", ask(t, c, g.UpsertStart, start), errs.OK)
	})
}
