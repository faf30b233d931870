package conformance_test

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// transfers are the calls of an api for copies, moves and their tasks.
type transfers interface {
	CopyStart(client byte, key, source, target string) int32
	CopyEnd(client byte, key string) int32
	MoveStart(client byte, key, source, target string) int32
	MoveEnd(client byte, key string) int32
	CreateCopyTask(key, target string) (metadata.TaskID, int32)
	FetchTasks(client byte) []job
	EndTask(client byte, id metadata.TaskID) int32
}

// A job is a task as a client reads it.
type job struct {
	id                  metadata.TaskID
	Key, Source, Target string
}

func (w *wire) CopyStart(client byte, key, source, target string) int32 {
	return do(w, w.g.CopyStart, mooncake.Args{Client: id(client), Key: key, SegmentName: source, Targets: []string{target}}).Failure
}

func (w *wire) CopyEnd(client byte, key string) int32 {
	return do(w, w.g.CopyEnd, mooncake.Args{Client: id(client), Key: key}).Failure
}

func (w *wire) MoveStart(client byte, key, source, target string) int32 {
	return do(w, w.g.MoveStart, mooncake.Args{Client: id(client), Key: key, SegmentName: source, Target: target}).Failure
}

func (w *wire) MoveEnd(client byte, key string) int32 {
	return do(w, w.g.MoveEnd, mooncake.Args{Client: id(client), Key: key}).Failure
}

func (w *wire) CreateCopyTask(key, target string) (metadata.TaskID, int32) {
	r := do(w, w.g.CreateCopyTask, mooncake.Args{Key: key, Targets: []string{target}})
	return r.Value, r.Failure
}

func (w *wire) FetchTasks(client byte) (list []job) {
	for _, t := range do(w, w.g.FetchTasks, mooncake.Args{Client: id(client), Most: 100}).Value {
		j := job{id: t.ID}
		if err := json.Unmarshal([]byte(t.Payload), &j); err != nil {
			w.Errorf("payload %s: got error %v, want JSON", t.Payload, err)
		}
		list = append(list, j)
	}
	return list
}

func (w *wire) EndTask(client byte, task metadata.TaskID) int32 {
	return do(w, w.g.MarkTaskToComplete, mooncake.Args{Client: id(client), TaskEnd: mooncake.TaskEnd{ID: task, Status: int32(metadata.TaskSucceeded)}}).Failure
}

func transfer(client byte, key, source string, targets ...string) metadata.Transfer {
	return metadata.Transfer{Tenant: tenant, Key: key, Client: id(client), Source: source, Targets: targets}
}

func (d direct) CopyStart(client byte, key, source, target string) int32 {
	_, err := d.m.CopyStart(d.Context(), transfer(client, key, source, target))
	return number(err)
}

func (d direct) CopyEnd(client byte, key string) int32 {
	return number(d.m.CopyEnd(d.Context(), transfer(client, key, "")))
}

func (d direct) MoveStart(client byte, key, source, target string) int32 {
	_, err := d.m.MoveStart(d.Context(), transfer(client, key, source, target))
	return number(err)
}

func (d direct) MoveEnd(client byte, key string) int32 {
	return number(d.m.MoveEnd(d.Context(), transfer(client, key, "")))
}

func (d direct) CreateCopyTask(key, target string) (metadata.TaskID, int32) {
	task, err := d.m.CreateCopyTask(d.Context(), tenant, key, []string{target})
	return task, number(err)
}

func (d direct) FetchTasks(client byte) (list []job) {
	tasks, err := d.m.FetchTasks(d.Context(), id(client), 100)
	d.must(err)
	for _, t := range tasks {
		list = append(list, job{t.ID, t.Key, t.Source, t.Targets[0]})
	}
	return list
}

func (d direct) EndTask(client byte, task metadata.TaskID) int32 {
	return number(d.m.EndTask(d.Context(), id(client), task, metadata.TaskSucceeded, ""))
}

// mountTarget mounts b of client 2, to which objects of a are copied and moved.
func mountTarget(w *world) { w.mount(2, "b", memory) }

var copies = []line{
	{number: 39, given: "an active copy task: an upsert answers -708", run: func(w *world) {
		w.put("k")
		mountTarget(w)
		w.code("CopyStart", w.CopyStart(1, "k", "a", "b"), errs.OK)
		_, code := w.UpsertStart(1, "k", 100)
		w.code("UpsertStart", code, errs.ObjectHasTask)
		w.code("CopyEnd", w.CopyEnd(1, "k"), errs.OK)
		upsert(w, 1, 100)
	}},
	{number: 40, given: "the source of an active copy or move is not evicted", size: 10 * taken, policy: eviction.Watermark{High: 1e-9, SoftPins: true}, run: func(w *world) {
		w.put("copied", "moved", "other")
		mountTarget(w)
		w.pass(time.Hour)
		w.code("CopyStart", w.CopyStart(1, "copied", "a", "b"), errs.OK)
		w.code("MoveStart", w.MoveStart(1, "moved", "a", "b"), errs.OK)
		for range 3 {
			w.evict()
		}
		w.count("left beside transfers", w.alive("other"), 0)
		w.count("left in transfers", w.alive("copied", "moved"), 2)
		w.code("CopyEnd", w.CopyEnd(1, "copied"), errs.OK)
		w.code("MoveEnd", w.MoveEnd(1, "moved"), errs.OK)
		w.get("copied", errs.OK)
		w.get("moved", errs.OK)
	}},
	{number: 41, given: "a copy or move past its timeout is discarded", run: func(w *world) {
		w.put("copied", "moved")
		mountTarget(w)
		w.code("CopyStart", w.CopyStart(1, "copied", "a", "b"), errs.OK)
		w.code("MoveStart", w.MoveStart(1, "moved", "a", "b"), errs.OK)
		w.pass(release)
		for _, e := range w.primary.Store.PrepareTransferTimeouts(w.primary.Now(), 2) { // as the eviction loop does each second
			w.primary.Commit(e)
		}
		w.code("CopyEnd", w.CopyEnd(1, "copied"), errs.ObjectNoTask)
		w.code("MoveEnd", w.MoveEnd(1, "moved"), errs.ObjectNoTask)
		for _, key := range []string{"copied", "moved"} {
			if r := w.get(key, errs.OK); len(r) != 1 || r[0].Endpoint != "a:1" {
				w.Errorf("%s: got %+v, want the source alone", key, r)
			}
		}
	}},
	{number: 42, given: "the wrong client completes a task: refused", run: func(w *world) {
		w.put("k")
		mountTarget(w)
		task, code := w.CreateCopyTask("k", "b")
		w.code("CreateCopyTask", code, errs.OK)
		w.count("tasks of a stranger", len(w.FetchTasks(2)), 0)
		if list := w.FetchTasks(1); len(list) != 1 || list[0].id != task || list[0].Key != "k" || list[0].Source != "a" {
			w.Errorf("got the tasks %+v, want the copy from a", list)
		}
		w.code("the end by a stranger", w.EndTask(2, task), errs.IllegalClient)
		w.code("the end", w.EndTask(1, task), errs.OK)
	}},
	{number: 65, given: "a drain ends as DRAINED, cancelling it restores OK", slow: true, run: drain},
}

// drain drains a: the job is made as over HTTP, and its moves as clients make them.
func drain(w *world) {
	keys := []string{"k1", "k2", "k3"}
	w.put(keys...)
	mountTarget(w)
	status := func(want metadata.SegmentStatus) {
		w.Helper()
		got, code := w.SegmentStatus("a")
		if w.code("QuerySegmentStatus", code, errs.OK); got != want {
			w.Errorf("the segment is %v, want %v", got, want)
		}
	}
	create := func() metadata.TaskID {
		job, err := w.master.CreateDrainJob(w.Context(), metadata.Drain{Segments: []string{"a"}, Concurrency: 2})
		if err != nil {
			w.Fatal(err)
		}
		status(metadata.SegmentDraining)
		return job
	}
	if err := w.master.CancelDrainJob(w.Context(), create()); err != nil {
		w.Fatal(err)
	}
	status(metadata.SegmentOK)
	job := create()
	w.background(func(ctx context.Context) { _ = w.master.DriveTasks(ctx, zerolog.Nop()) })
	w.until("the job has ended", func() bool {
		for _, t := range w.FetchTasks(1) {
			w.code("MoveStart", w.MoveStart(1, t.Key, t.Source, t.Target), errs.OK)
			w.code("MoveEnd", w.MoveEnd(1, t.Key), errs.OK)
			w.code("MarkTaskToComplete", w.EndTask(1, t.id), errs.OK)
		}
		d, err := w.master.QueryDrainJob(w.Context(), job)
		return err == nil && d.Status == metadata.DrainSucceeded
	})
	status(metadata.SegmentDrained)
	for _, key := range keys {
		if r := w.get(key, errs.OK); len(r) != 1 || r[0].Endpoint != "b:1" {
			w.Errorf("%s: got %+v, want it on b", key, r)
		}
	}
	w.code("UnmountSegment", w.Unmount(segment.ID{1}), errs.OK)
	w.count("capacity", capacity(w), memory)
}
