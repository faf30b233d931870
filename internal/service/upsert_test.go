package service_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

func upserts(p service.PutRequest) service.PutRequest {
	p.Config.Upsert = true
	return p
}

func TestUpserts(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	it := service.PutItem{Key: "k", Size: 100}
	f.put(t, "k")
	before, err := f.GetReplicaList(ctx, "default", "k")
	if err != nil {
		t.Fatal(err)
	}
	leased, err := f.PutStart(ctx, upserts(start(2)), it)
	if err != nil || leased.Replicas[0].Address == before.Replicas[0].Address {
		t.Fatalf("over a lease: got %+v, %v; want other memory than %+v", leased, err, before)
	}
	want(t, "the writer before revokes", f.PutRevoke(ctx, update(1), service.UpdateItem{Key: "k"}), errs.IllegalClient)
	want(t, "a plain put", first(f.PutStart(ctx, start(1), it)), errs.ObjectExists)
	want(t, "its end", f.PutEnd(ctx, update(2), service.UpdateItem{Key: "k", ID: leased.ID}), errs.OK)
	again, err := f.PutStart(ctx, upserts(start(3)), it)
	if err != nil || again.Replicas[0].Address != leased.Replicas[0].Address {
		t.Fatalf("without a lease: got %+v, %v; want the memory of %+v", again, err, leased)
	}
	want(t, "a late end", f.PutEnd(ctx, update(3), service.UpdateItem{Key: "k", ID: leased.ID}), errs.ObjectNotFound)
	want(t, "its revocation", f.PutRevoke(ctx, update(3), service.UpdateItem{Key: "k", ID: again.ID}), errs.OK)
	_, err = f.GetReplicaList(ctx, "default", "k")
	want(t, "a revoked upsert in place", err, errs.ObjectNotFound)
	if n := f.Counters.Of(service.OpPutStart).Requests.Load(); n != 4 {
		t.Errorf("got %d puts counted, want 4: upserts are puts", n)
	}
}

// A request that comes again gets the reservation of the first one, and changes
// nothing when that was ended.
func TestRepeatedUpserts(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.put(t, "k")
	p := upserts(start(1))
	p.Request = 77
	it := service.PutItem{Key: "k", Size: 100}
	made, err := f.PutStart(ctx, p, it)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.PutStart(ctx, p, it)
	if err != nil || again.ID != made.ID || again.Replicas[0] != made.Replicas[0] {
		t.Errorf("repeated: got %+v, %v; want %+v", again, err, made)
	}
	want(t, "its end", f.PutEnd(ctx, update(1), service.UpdateItem{Key: "k", ID: made.ID}), errs.OK)
	want(t, "repeated once more, behind its end", first(f.PutStart(ctx, p, it)), errs.ObjectExists)
	if list, err := f.GetReplicaList(ctx, "default", "k"); err != nil || list.ID != made.ID {
		t.Errorf("got %+v, %v; want object %v", list, err, made.ID)
	}
}

// A batch may name a key twice, as with the C++ master: the last one counts.
func TestUpsertsOfOneKey(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.put(t, "k")
	it := service.PutItem{Key: "k", Size: 100}
	got, failed, err := f.BatchPutStart(ctx, upserts(unnumbered(1)), []service.PutItem{it, {Key: "other", Size: 1}, it})
	if err != nil || failed[0] != nil || failed[2] != nil || got[2].ID <= got[0].ID || got[2].Replicas[0].Address == got[0].Replicas[0].Address {
		t.Fatalf("got %+v, %v, %v; want two objects, the later one elsewhere", got, failed, err)
	}
	_, err = f.PutStart(ctx, upserts(unnumbered(1)), it)
	want(t, "another thread of the client", err, errs.ReplicaBusy)
	_, err = f.PutStart(ctx, upserts(unnumbered(2)), it)
	want(t, "another client", err, errs.OK)
	want(t, "the end of the first", f.PutEnd(ctx, update(1), service.UpdateItem{Key: "k"}), errs.IllegalClient)
}

func TestUpsertsWithoutRoom(t *testing.T) {
	f := newFixture(t)
	f.put(t, "k")
	_, err := f.PutStart(t.Context(), upserts(start(1)), service.PutItem{Key: "k", Size: 1 << 20})
	want(t, "an upsert without room", err, errs.NoAvailableHandle)
	if _, err := f.GetReplicaList(t.Context(), "default", "k"); err != nil {
		t.Errorf("the object before: got %v, want it readable", err)
	}
}

// What a client copies to its SSD is not upserted meanwhile, and copies of the object
// before are served to nobody.
func TestUpsertsOfOffloadedObjects(t *testing.T) {
	f := newFixture(t, func(m *service.Master) { m.Offload, m.OffloadQueue = true, 10 })
	ctx := t.Context()
	host := f.Store.Segments()[0].Client
	if err := f.MountLocalDisk(ctx, host, true); err != nil {
		t.Fatal(err)
	}
	f.put(t, "k")
	tasks, err := f.OffloadHeartbeat(ctx, host, true)
	if err != nil || len(tasks) != 1 {
		t.Fatalf("got tasks %v, %v; want one", tasks, err)
	}
	it := service.PutItem{Key: "k", Size: 100}
	want(t, "while it is copied", first(f.PutStart(ctx, upserts(start(1)), it)), errs.ObjectHasTask)
	done := []service.OffloadResult{{Task: tasks[0], DataSize: 100, Endpoint: "a:1"}}
	if err := f.NotifyOffloaded(ctx, host, done); err != nil {
		t.Fatal(err)
	}
	if _, err := f.PutStart(ctx, upserts(start(1)), it); err != nil {
		t.Fatal(err)
	}
	want(t, "its end", f.PutEnd(ctx, update(1), service.UpdateItem{Key: "k"}), errs.OK)
	if err := f.NotifyOffloaded(ctx, host, done); err != nil { // of the object before
		t.Fatal(err)
	}
	list, err := f.GetReplicaList(ctx, "default", "k")
	if err != nil || len(list.Replicas) != 1 || list.Replicas[0].Kind != metadata.Memory {
		t.Errorf("got %+v, %v; want the new bytes in memory alone", list, err)
	}
}

// Writers and readers of one key never share bytes, whoever comes when.
func TestUpsertsRace(t *testing.T) {
	f := newFixture(t)
	var clients sync.WaitGroup
	for n := range byte(4) {
		clients.Go(func() {
			for range 50 {
				r, err := f.PutStart(t.Context(), upserts(start(n+1)), service.PutItem{Key: "k", Size: 100})
				if err == nil {
					err = f.PutEnd(t.Context(), update(n+1), service.UpdateItem{Key: "k", ID: r.ID})
				}
				if kind := errs.KindOf(err); kind != errs.OK && kind != errs.ObjectNotFound && kind != errs.IllegalClient && kind != errs.NoAvailableHandle {
					t.Errorf("client %d: got %v, want that another upsert came, or none", n, err)
				}
				_, _ = f.ExistKey(t.Context(), "default", "k")
			}
		})
	}
	clients.Wait()
	f.p.Pass(params.ReleaseTimeout + time.Minute)
	for range 2 {
		if _, err := f.PutStart(t.Context(), start(1), service.PutItem{Key: fmt.Sprint(f.p.Now()), Size: 1}); err != nil {
			t.Fatal(err)
		}
		f.p.Pass(time.Second)
	}
	if st := f.Store.Stats(); st.Quarantined != 0 {
		t.Errorf("in the end %d bytes are in quarantine, want none", st.Quarantined)
	}
}
