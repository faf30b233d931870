package metadata_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
)

// evictDiskAction reports that a client has deleted its file of a key. What is in memory
// as well stays.
func (w *world) evictDiskAction(t *rapid.T) {
	tenant, key, owner := w.tenant(t), w.key(t), client(byte(1+w.pick(t, "owner", 3)))
	before, err := w.primary.Inspect(tenant, key)
	drop, _, _ := w.primary.PrepareEvictDisk(tenant, key, owner, metadata.LocalDisk, w.now)
	gone := func(err error) {
		if err == nil {
			w.forgotten++
			maps.DeleteFunc(w.copies, func(c diskCopy, _ bool) bool { return c.id == before.ID && c.client == owner })
			if u, ok := w.transfers[before.ID]; ok && u.about.Promotion && u.about.Client == owner {
				delete(w.transfers, before.ID) // the client has taken the source away itself
			}
		}
	}
	switch {
	case drop.Partial != nil:
		w.submit(gone, drop.Partial)
	case drop.Removal != nil:
		if err != nil || slices.ContainsFunc(before.Replicas, func(d metadata.Descriptor) bool { return d.Kind == metadata.Memory }) {
			t.Fatalf("a client deleted its file: got %+v removed, error %v, want it kept while it has a replica in memory",
				before, err)
		}
		w.submit(gone, deleteevents.Of(deleteevents.Remove, drop.Removal))
	}
}

// taskAction creates, fetches or ends tasks, or begins or ends a drain job. These are
// decided one after the other, and while no segment is mounted.
func (w *world) taskAction(t *rapid.T) {
	if slices.ContainsFunc(w.queue, func(q queued) bool {
		switch q.change.(type) {
		case *metadata.AddTask, *metadata.SetTasks, *metadata.SaveDrain, *metadata.Mount, *metadata.CloseSegment:
			return true
		}
		return false
	}) {
		return
	}
	switch about := w.transferOf(t); w.pick(t, "what", 5) {
	case 0, 1:
		e, err := w.primary.PrepareTask("", metadata.Task{
			ID: w.newTask(), Client: about.Client, Move: about.Move, Tenant: about.Tenant, Key: about.Key, Source: about.Source, Targets: about.Targets,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.submit(func(error) { w.tasks[e.ID] = metadata.TaskPending }, e)
	case 2:
		if _, e := w.primary.PrepareFetch(about.Client, 2); e != nil {
			w.submit(func(error) { w.setTasks(e) }, e)
		}
	case 3:
		ids := slices.SortedFunc(maps.Keys(w.tasks), func(a, b metadata.TaskID) int { return slices.Compare(a[:], b[:]) })
		if len(ids) > 0 {
			e := &metadata.SetTasks{IDs: []metadata.TaskID{ids[w.pick(t, "task", len(ids))]}, Status: metadata.TaskSucceeded}
			w.submit(func(error) { w.setTasks(e) }, e)
		}
	default:
		w.drainAction(t, about.Source)
	}
}

// drainAction ends the drain job that runs, or begins one.
func (w *world) drainAction(t *rapid.T, name string) {
	drains := w.primary.Drains()
	if at := slices.IndexFunc(drains, func(d metadata.Drain) bool { return d.Status == metadata.DrainRunning }); at >= 0 {
		e := &metadata.SaveDrain{Drain: drains[at]}
		if e.Status = metadata.DrainCanceled; w.pick(t, "succeeded", 8) == 0 {
			e.Status = metadata.DrainSucceeded
		}
		w.submit(func(error) { w.drained++ }, e)
		return
	}
	if e, _ := w.primary.PrepareDrain(metadata.Drain{ID: w.newTask(), Segments: []string{name}, Concurrency: 1}); e != nil {
		w.submit(nil, e)
	}
}

func (w *world) newTask() (id metadata.TaskID) {
	w.lastTask++
	binary.BigEndian.PutUint64(id[8:], w.lastTask)
	return id
}

// setTasks records what an acknowledged change did to tasks.
func (w *world) setTasks(e *metadata.SetTasks) {
	for _, id := range e.IDs {
		if w.tasks[id] = e.Status; e.Status.Ended() {
			delete(w.tasks, id)
			w.doneTasks++
		}
	}
}

// checkTasks checks that each acknowledged task exists, with its acknowledged progress.
func (w *world) checkTasks(t *rapid.T) {
	for id, status := range w.tasks {
		if task, ok := w.primary.FindTask(id); !ok || task.Status != status {
			t.Fatalf("task %v is %+v, %t; want it there with status %v", fmt.Sprint(id), task, ok, status)
		}
	}
}
