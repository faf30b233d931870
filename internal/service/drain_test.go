package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// draining has the loops of a primary run beside f, with segments x and y.
func draining(t *testing.T, f func(t *testing.T, m *fixture), change ...func(*service.Master)) {
	synctest.Test(t, func(t *testing.T) {
		m := newFixture(t, append(change, func(c *service.Master) { c.Liveness = service.NewLiveness(time.Hour, 0, clock.Runtime(), c.Store) })...)
		m.mountNamed(t, 10, "x")
		m.mountNamed(t, 11, "y")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = m.DriveTasks(ctx, zerolog.Nop()) }()
		f(t, m)
	})
}

// work executes the tasks of a client, as Mooncake's own does each second.
func (f *fixture) work(t *testing.T, n byte, fails bool) (moved int) {
	t.Helper()
	tasks, err := f.FetchTasks(t.Context(), owner(n), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		transfer, status := transferOf(n, task.Key, task.Source, task.Targets...), metadata.TaskSucceeded
		if _, err = f.MoveStart(t.Context(), transfer); err == nil && fails {
			status, err = metadata.TaskFailed, f.MoveRevoke(t.Context(), transfer)
		} else if err == nil {
			err = f.MoveEnd(t.Context(), transfer)
		}
		if err != nil {
			t.Fatal(err)
		}
		want(t, "the end of a task", f.EndTask(t.Context(), owner(n), task.ID, status, "why"), errs.OK)
	}
	return len(tasks)
}

func (f *fixture) drainJob(t *testing.T, id metadata.TaskID) service.DrainInfo {
	t.Helper()
	d, err := f.QueryDrainJob(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A drain job moves all objects away, a few at a time, and then its segment is
// drained.
func TestDrain(t *testing.T) {
	draining(t, func(t *testing.T, f *fixture) {
		const objects = 10
		for i := range objects {
			f.putOn(t, "x", fmt.Sprint(i))
		}
		if _, err := f.GetReplicaList(t.Context(), "default", "0"); err != nil { // leased
			t.Fatal(err)
		}
		id, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x"}, Targets: []string{"y"}, Concurrency: 4})
		want(t, "CreateDrainJob", err, errs.OK)
		again := segment.Spec{ID: segment.ID{10}, Name: "x", Base: 10 << 40, Size: 1 << 20, Endpoint: "x:1", Protocol: "tcp", Client: owner(10)}
		if err := f.MountSegment(t.Context(), again); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "cancel the drain job") {
			t.Errorf("a mount of a segment that is being drained: got %v, want what to do", err)
		}
		time.Sleep(1500 * time.Millisecond)
		if d := f.drainJob(t, id); d.Active != 4 || d.Blocked != 1 || d.Status != metadata.DrainRunning {
			t.Errorf("got %+v; want 4 moves under way, and one object that is leased", d)
		}
		moved := 0
		for range 30 {
			moved += f.work(t, 10, false)
			if moved >= objects-1 {
				f.p.Pass(20 * time.Second) // the lease ends
			}
			time.Sleep(time.Second)
		}
		if d := f.drainJob(t, id); d.Status != metadata.DrainSucceeded || d.Succeeded != objects || d.Bytes != 100*objects || d.Failed != 0 || d.Active != 0 {
			t.Errorf("got %+v, want all %d objects moved", d, objects)
		}
		status, err := f.SegmentStatus(t.Context(), "x")
		if err != nil || status != metadata.SegmentDrained {
			t.Errorf("the segment is %v, %v; want it drained", status, err)
		}
		for i := range objects {
			if list, err := f.GetReplicaList(t.Context(), "default", fmt.Sprint(i)); err != nil || len(list.Replicas) != 1 || list.Replicas[0].Endpoint != "y:1" {
				t.Errorf("object %d: got %+v, %v; want it on y", i, list.Replicas, err)
			}
		}
		want(t, "CancelDrainJob of one that has ended", f.CancelDrainJob(t.Context(), id), errs.Unavailable)
	})
}

// An object of which every possible target has a copy loses the one on the segment: with
// one segment drained, and with both on which it is.
func TestDrainOfCopies(t *testing.T) {
	for target, drained := range map[string][]string{"y": {"x"}, "z": {"x", "y"}} {
		draining(t, func(t *testing.T, f *fixture) {
			f.putOn(t, "x", "k")
			want(t, "a copy", f.copyOf("k", 10, "x", "y"), errs.OK)
			f.mountNamed(t, 12, "z")
			id, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: drained, Targets: []string{target}, Concurrency: 4})
			want(t, "CreateDrainJob", err, errs.OK)
			for range 10 {
				time.Sleep(time.Second)
				f.work(t, 10, false)
				f.work(t, 11, false)
			}
			if d := f.drainJob(t, id); d.Status != metadata.DrainSucceeded || d.Blocked != 0 || d.Bytes != 100*uint64(len(drained)-1) {
				t.Errorf("draining %v: got %+v, want it succeeded with %d objects moved", drained, d, len(drained)-1)
			}
			if list, err := f.GetReplicaList(t.Context(), "default", "k"); err != nil || len(list.Replicas) != 1 || list.Replicas[0].Endpoint != target+":1" {
				t.Errorf("draining %v: got %+v, %v; want the object on %s alone", drained, list.Replicas, err, target)
			}
		})
	}
}

// copyOf copies an object, as its owner does.
func (f *fixture) copyOf(key string, owner byte, source, target string) error {
	copies := transferOf(owner, key, source, target)
	if _, err := f.CopyStart(context.Background(), copies); err != nil {
		return err
	}
	return f.CopyEnd(context.Background(), copies)
}

// The tasks of a pass come with one commit, and go to whichever segment is the emptiest
// when those before them are counted.
func TestDrainCreatesTasksTogether(t *testing.T) {
	draining(t, func(t *testing.T, f *fixture) {
		const objects = 10
		f.mountNamed(t, 12, "z")
		for i := range objects {
			f.putOn(t, "x", fmt.Sprint(i))
		}
		_, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x"}, Targets: []string{"y", "z"}, Concurrency: objects})
		want(t, "CreateDrainJob", err, errs.OK)
		before := f.Store.Position().Seq
		time.Sleep(1500 * time.Millisecond)
		if got := f.Store.Position().Seq - before; got > 3 {
			t.Errorf("a pass took %d commits, want 1, beside heartbeats", got)
		}
		tasks, err := f.FetchTasks(t.Context(), owner(10), 100)
		at := make(map[string]int)
		for _, task := range tasks {
			at[task.Targets[0]]++
		}
		if err != nil || at["y"] != objects/2 || at["z"] != objects/2 {
			t.Errorf("the targets of the tasks: %v, %v; want half of %d on each of y and z", at, err, objects)
		}
	})
}

// A pass looks at some of the objects only; the next one goes on behind them. A job ends
// when all were looked at.
func TestDrainInSeveralPasses(t *testing.T) {
	draining(t, func(t *testing.T, f *fixture) {
		const objects = 10
		f.LookAt(1)
		for i := range objects {
			f.putOn(t, "x", fmt.Sprint(i))
		}
		id, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x"}, Concurrency: objects})
		want(t, "CreateDrainJob", err, errs.OK)
		for pass := 1; pass <= 3; pass++ {
			time.Sleep(time.Second)
			synctest.Wait()
			if d := f.drainJob(t, id); d.Active != pass {
				t.Errorf("after %d passes %d moves are under way, want %d", pass, d.Active, pass)
			}
		}
		for range 6 * objects {
			f.work(t, 10, false)
			time.Sleep(time.Second)
		}
		if d := f.drainJob(t, id); d.Status != metadata.DrainSucceeded || d.Succeeded != objects {
			t.Errorf("got %+v, want all %d objects moved", d, objects)
		}
	})
}

// Clients expire in time, however long a drain job takes to create its tasks.
func TestDrainDelaysNoExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *service.Master) { c.Liveness = service.NewLiveness(10*time.Second, 0, clock.Runtime(), c.Store) })
		f.mountNamed(t, 10, "x")
		f.mountNamed(t, 11, "y")
		f.putOn(t, "x", "k")
		_, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x"}, Concurrency: 4})
		want(t, "CreateDrainJob", err, errs.OK)
		defer f.HoldTasks()()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = f.WatchClients(ctx, zerolog.Nop()) }()
		go func() { _ = f.DriveTasks(ctx, zerolog.Nop()) }()
		for range 12 {
			time.Sleep(time.Second)
			_, _ = f.Ping(ctx, owner(1))
			_, _ = f.Ping(ctx, owner(11))
		}
		if f.Liveness.Watches(owner(10)) {
			t.Error("the silent client is alive after its TTL, want it expired")
		}
	})
}

// A job whose objects cannot be moved fails after three attempts each; its segment
// takes objects again.
func TestDrainFails(t *testing.T) {
	draining(t, func(t *testing.T, f *fixture) {
		f.putOn(t, "x", "k")
		id, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x"}, Concurrency: 4})
		want(t, "CreateDrainJob", err, errs.OK)
		for range 10 {
			time.Sleep(time.Second)
			f.work(t, 10, true)
		}
		if d := f.drainJob(t, id); d.Status != metadata.DrainFailed || d.Failed != 3 {
			t.Errorf("got %+v, want it failed after three attempts", d)
		}
		f.putOn(t, "x", "new")
	})
}

// A job whose cancellation was acknowledged stays cancelled when the loop, which looked
// at it before, comes to end it.
func TestCancelledDrainDoesNotSucceed(t *testing.T) {
	f := newFixture(t)
	f.mountNamed(t, 10, "x")
	id, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x"}, Concurrency: 1})
	want(t, "CreateDrainJob", err, errs.OK)
	seen := f.Store.Drains()[0]
	want(t, "CancelDrainJob", f.CancelDrainJob(t.Context(), id), errs.OK)
	want(t, "the end that the loop writes", f.SucceedDrain(t.Context(), seen), errs.OK)
	status, err := f.SegmentStatus(t.Context(), "x")
	if d := f.drainJob(t, id); err != nil || d.Status != metadata.DrainCanceled || status != metadata.SegmentOK {
		t.Errorf("the job is %v and its segment %v, %v; want it cancelled, and the segment open", d.Status, status, err)
	}
}

// A task that is being fetched when it has waited too long is at work, and does not fail.
func TestTaskFetchedAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mountNamed(t, 10, "x")
		f.mountNamed(t, 11, "y")
		f.putOn(t, "x", "k")
		id, err := f.CreateMoveTask(t.Context(), "default", "k", "x", "y")
		want(t, "CreateMoveTask", err, errs.OK)
		f.p.Pass(metadata.TaskTimeout + time.Second)
		want(t, "the fetch", f.FetchBeside(t.Context(), owner(10), func() {
			go f.EndOverdueTasks(t.Context())
			synctest.Wait()
		}), errs.OK)
		synctest.Wait()
		if task, _ := f.QueryTask(t.Context(), id); task.Status != metadata.TaskProcessing {
			t.Errorf("the task is %v (%s), want it at work", task.Status, task.Message)
		}
		want(t, "an end that is none", f.EndTask(t.Context(), owner(10), id, metadata.TaskSucceeded+1, ""), errs.InvalidParams)
	})
}

// A job that is cancelled opens its segments.
func TestDrainIsCancelled(t *testing.T) {
	draining(t, func(t *testing.T, f *fixture) {
		id, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x", "y"}, Concurrency: 4})
		want(t, "CreateDrainJob", err, errs.OK)
		_, err = f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x"}, Concurrency: 4})
		want(t, "a second job for a segment", err, errs.Unavailable)
		want(t, "CancelDrainJob", f.CancelDrainJob(t.Context(), id), errs.OK)
		if d := f.drainJob(t, id); d.Status != metadata.DrainCanceled {
			t.Errorf("got %+v, want it cancelled", d)
		}
		want(t, "CancelDrainJob of no job", f.CancelDrainJob(t.Context(), metadata.TaskID{9}), errs.JobNotFound)
		f.putOn(t, "x", "k")
		if list, _ := f.GetReplicaList(t.Context(), "default", "k"); len(list.Replicas) != 1 || list.Replicas[0].Endpoint != "x:1" {
			t.Errorf("got %+v, want the object on x", list.Replicas)
		}
	})
}

// While a host moves objects, their job cannot be cancelled. A host that fetches no tasks does
// not keep it from that, nor does one that died with what it had fetched, once that has failed.
func TestDrainOfASilentHostIsCancelled(t *testing.T) {
	draining(t, func(t *testing.T, f *fixture) {
		for i := range 10 {
			f.putOn(t, "x", fmt.Sprint(i))
		}
		id, err := f.CreateDrainJob(t.Context(), metadata.Drain{Segments: []string{"x"}, Targets: []string{"y"}, Concurrency: 4})
		want(t, "CreateDrainJob", err, errs.OK)
		time.Sleep(1500 * time.Millisecond)
		if tasks, err := f.FetchTasks(t.Context(), owner(10), 1); err != nil || len(tasks) != 1 {
			t.Fatalf("got %v, %v; want a task", tasks, err)
		}
		if err := f.CancelDrainJob(t.Context(), id); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "1 objects are being moved; try again") {
			t.Errorf("while an object is moved: got %v, want Unavailable, and what to do", err)
		}
		f.p.Pass(metadata.TaskTimeout + time.Second)
		time.Sleep(3 * time.Second) // the tasks fail, and others are created
		if d := f.drainJob(t, id); d.Status != metadata.DrainRunning || d.Active != 4 || d.Failed != 4 {
			t.Errorf("got %+v, want 4 moves that failed, and 4 others", d)
		}
		want(t, "CancelDrainJob", f.CancelDrainJob(t.Context(), id), errs.OK)
		d := f.drainJob(t, id)
		if status, err := f.SegmentStatus(t.Context(), "x"); d.Status != metadata.DrainCanceled || d.Active != 0 || err != nil || status != metadata.SegmentOK {
			t.Errorf("got %+v, the segment is %v, %v; want the job cancelled, and that the segment takes objects", d, status, err)
		}
	})
}
