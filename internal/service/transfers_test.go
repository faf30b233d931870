package service_test

import (
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func (f *fixture) mountNamed(t *testing.T, n byte, name string) segment.ID {
	t.Helper()
	id := segment.ID{n}
	err := f.MountSegment(t.Context(), segment.Spec{
		ID: id, Name: name, Base: uint64(n) << 40, Size: 1 << 20, Endpoint: name + ":1", Protocol: "tcp", Client: owner(n),
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// putOn puts an object of client 1 on the segments of a name.
func (f *fixture) putOn(t *testing.T, name string, keys ...string) {
	t.Helper()
	for _, key := range keys {
		p := start(1)
		p.Config.Preferred = []string{name}
		if _, err := f.PutStart(t.Context(), p, service.PutItem{Key: key, Size: 100}); err != nil {
			t.Fatal(err)
		}
		if err := f.PutEnd(t.Context(), update(1), service.UpdateItem{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
}

func transferOf(n byte, key, source string, targets ...string) metadata.Transfer {
	return metadata.Transfer{Tenant: "default", Key: key, Client: owner(n), Source: source, Targets: targets}
}

// An object that is there, but not readable in memory, is no defect of the master.
func TestTasksForObjectsThatAreNotInMemory(t *testing.T) {
	f := newFixture(t, offloading(100))
	ctx := t.Context()
	f.mountNamed(t, 11, "y")
	x := f.mountNamed(t, 10, "x")
	f.mountDisk(t, 10, true)
	f.putOn(t, "x", "k")
	if list, err := f.OffloadHeartbeat(ctx, owner(10), true); err != nil || len(list) != 1 {
		t.Fatalf("got %v, %v; want the object to copy", list, err)
	}
	want(t, "copied to an SSD", f.NotifyOffloaded(ctx, owner(10), copied("k")), errs.OK)
	want(t, "UnmountSegment", f.UnmountSegment(ctx, x, nil), errs.OK)
	if _, err := f.PutStart(ctx, start(1), service.PutItem{Key: "open", Size: 100}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"k", "open"} {
		_, err := f.CreateCopyTask(ctx, "default", key, []string{"y"})
		want(t, "a copy of "+key, err, errs.ReplicaNotFound)
	}
}

// Copies and moves answer as the C++ master does.
func TestCopiesAndMoves(t *testing.T) {
	f := newFixture(t)
	f.mountNamed(t, 10, "x")
	y := f.mountNamed(t, 11, "y")
	f.putOn(t, "x", "k", "lost")
	ctx := t.Context()

	_, err := f.CopyStart(ctx, transferOf(10, "k", "x", "nowhere"))
	want(t, "a copy to an unknown segment", err, errs.SegmentNotFound)
	_, err = f.MoveStart(ctx, transferOf(10, "k", "x", "x"))
	want(t, "a move to where it is", err, errs.InvalidParams)
	_, err = f.MoveStart(ctx, transferOf(10, "k", "x"))
	want(t, "a move to nowhere", err, errs.InvalidParams)
	_, err = f.CopyStart(ctx, transferOf(10, "k", "y", "x"))
	want(t, "a copy from where it is not", err, errs.ReplicaNotFound)
	want(t, "CopyEnd without a copy", f.CopyEnd(ctx, transferOf(10, "k", "")), errs.ObjectNoTask)

	plan, err := f.CopyStart(ctx, transferOf(10, "k", "x", "y"))
	if want(t, "CopyStart", err, errs.OK); plan.ID == 0 || plan.Source.Endpoint != "x:1" || len(plan.Targets) != 1 || plan.Targets[0].Endpoint != "y:1" {
		t.Errorf("got %+v; want the object's id, from x:1 to y:1", plan)
	}
	_, err = f.MoveStart(ctx, transferOf(10, "k", "x", "y"))
	want(t, "a second transfer", err, errs.ObjectHasTask)
	for _, force := range []bool{false, true} {
		request := service.RemoveRequest{Tenant: "default", Force: force}
		want(t, "Remove", f.Remove(ctx, request, "k"), errs.ReplicaNotReady)
		if n, err := f.RemoveByRegex(ctx, request, "^k$"); n.Removed != 0 || err != nil {
			t.Errorf("RemoveByRegex during a copy: %+v, %v; want 0", n, err)
		}
	}
	want(t, "CopyEnd by a stranger", f.CopyEnd(ctx, transferOf(11, "k", "")), errs.IllegalClient)
	want(t, "MoveEnd of a copy", f.MoveEnd(ctx, transferOf(10, "k", "")), errs.InvalidParams)
	want(t, "CopyEnd", f.CopyEnd(ctx, transferOf(10, "k", "")), errs.OK)
	list, err := f.GetReplicaList(ctx, "default", "k")
	if want(t, "GetReplicaList", err, errs.OK); len(list.Replicas) != 2 {
		t.Errorf("after a copy: got %+v, want two replicas", list.Replicas)
	}

	_, err = f.MoveStart(ctx, transferOf(10, "lost", "x", "y"))
	want(t, "MoveStart", err, errs.OK)
	if err := f.UnmountSegment(ctx, y, nil); err != nil {
		t.Fatal(err)
	}
	want(t, "MoveEnd without its target", f.MoveEnd(ctx, transferOf(10, "lost", "")), errs.ReplicaGone)
	want(t, "the object stays", f.Remove(ctx, service.RemoveRequest{Tenant: "default"}, "lost"), errs.OK)
	if r := f.Counters.Of(service.OpMoveEnd); r.Requests.Load() != 2 || r.Failures.Load() != 2 {
		t.Errorf("MoveEnd is counted %d times, with %d failures; want 2 and 2", r.Requests.Load(), r.Failures.Load())
	}
}
