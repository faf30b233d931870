package metadata_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

func taskID(n byte) metadata.TaskID { return metadata.TaskID{n} }

func (c *cluster) addTask(n byte, of byte) {
	c.t.Helper()
	e, err := c.primary.PrepareTask("CreateCopyTask", metadata.Task{
		ID: taskID(n), Client: client(of), Tenant: "default", Key: "k", Source: "a", Targets: []string{"b", "c"}, Move: n%2 == 0,
	})
	if err != nil {
		c.t.Fatalf("preparing task %d: got %v, want no error", n, err)
	}
	c.must(c.commit(e))
}

// fetch returns the first bytes of the ids of the tasks that a client gets.
func (c *cluster) fetch(of byte, most uint64) (ids []byte) {
	c.t.Helper()
	list, e := c.primary.PrepareFetch(client(of), most)
	if e == nil {
		return nil
	}
	for _, t := range list {
		if t.Key != "k" || t.Source != "a" || len(t.Targets) != 2 || t.Move != (t.ID[0]%2 == 0) {
			c.t.Fatalf("got the task %+v, want what was asked for", t)
		}
		ids = append(ids, t.ID[0])
	}
	c.must(c.commit(e))
	return ids
}

// A client gets its tasks in order, each once, whichever node is the primary.
func TestTasks(t *testing.T) {
	c := newCluster(t)
	for n := range byte(5) {
		c.addTask(n, 1+n%2)
	}
	if got := c.fetch(1, 2); !reflect.DeepEqual(got, []byte{0, 2}) {
		t.Errorf("client 1 gets %v, want its oldest two", got)
	}
	c.takeOver(0)
	c.everywhere()
	c.must(c.commit(&metadata.SetTasks{IDs: []metadata.TaskID{taskID(0)}, Status: metadata.TaskSucceeded, Message: "done"}))
	c.must(c.commit(&metadata.SetTasks{IDs: []metadata.TaskID{taskID(0)}, Status: metadata.TaskFailed, Message: "late"}))
	for what, s := range c.everywhere() {
		got, _ := s.FindTask(taskID(0))
		if got.Status != metadata.TaskSucceeded || got.Message != "done" || got.Key != "" || got.Client != client(1) {
			t.Errorf("%s: got %+v, want the first end of the task", what, got)
		}
		if got, ok := s.FindTask(taskID(2)); !ok || got.Status != metadata.TaskProcessing {
			t.Errorf("%s: got %+v, want a task at work", what, got)
		}
	}
	for of, want := range map[byte][]byte{1: {4}, 2: {1, 3}} {
		if got := c.fetch(of, 10); !reflect.DeepEqual(got, want) {
			t.Errorf("after a takeover client %d gets %v, want %v", of, got, want)
		}
		if got := c.fetch(of, 10); got != nil {
			t.Errorf("client %d fetches again: got %v, want none: it has had all its tasks", of, got)
		}
	}
	if _, ok := c.primary.FindTask(taskID(9)); ok {
		t.Error("looking up a task that nobody created: got one, want none")
	}
}

// A task that waits, or is at work, for too long fails.
func TestOverdueTasks(t *testing.T) {
	c := newCluster(t)
	c.addTask(1, 1)
	c.pass(time.Minute)
	c.addTask(2, 2)
	c.fetch(2, 1)
	c.pass(metadata.TaskTimeout)
	if list := c.primary.OverdueTasks(c.now); len(list) != 1 || len(list[0].IDs) != 1 || list[0].IDs[0] != taskID(1) {
		t.Errorf("got %+v, want the task that waits", list)
	}
	c.pass(time.Millisecond)
	for _, e := range c.primary.OverdueTasks(c.now) {
		c.must(c.commit(e))
	}
	for n, want := range map[byte]string{1: "pending timeout", 2: "processing timeout"} {
		if got, _ := c.primary.FindTask(taskID(n)); got.Status != metadata.TaskFailed || got.Message != want {
			t.Errorf("task %d: got %+v, want it failed: %s", n, got, want)
		}
	}
	if list := c.primary.OverdueTasks(c.now.Add(time.Hour)); len(list) != 0 {
		t.Errorf("all tasks have ended: got %+v overdue, want none", list)
	}
}

// Tasks are bounded: those that wait, and those that are remembered.
func TestTasksAreBounded(t *testing.T) {
	const most = 10_000
	c := newCluster(t)
	id := func(n int) (id metadata.TaskID) { id[0], id[1], id[2] = byte(n), byte(n>>8), byte(n>>16); return id }
	var all []metadata.Change
	for n := range most {
		all = append(all, &metadata.AddTask{Task: metadata.Task{ID: id(n), Tenant: "default", Key: "k", Targets: []string{"b"}}})
	}
	c.must(c.commit(all[:most-2]...))
	ahead := []metadata.Task{{ID: id(most - 2)}, {ID: id(most - 1)}}
	_, err := c.primary.PrepareTask("CreateMoveTask", ahead[1], ahead[:1]...)
	wantKind(t, "the last two tasks in a commit", err, errs.OK)
	_, err = c.primary.PrepareTask("CreateMoveTask", metadata.Task{ID: id(most)}, ahead...)
	wantKind(t, "one too many in a commit", err, errs.TaskLimit)
	c.must(c.commit(all[most-2:]...))
	_, err = c.primary.PrepareTask("CreateMoveTask", metadata.Task{ID: id(most)})
	wantKind(t, "a task too many", err, errs.TaskLimit)
	all = all[:0]
	for n := range most {
		all = append(all, &metadata.SetTasks{IDs: []metadata.TaskID{id(n)}, Status: metadata.TaskFailed})
	}
	c.must(c.commit(all...))
	c.must(c.commit(&metadata.AddTask{Task: metadata.Task{ID: id(most), Tenant: "default"}}))
	c.must(c.commit(&metadata.SetTasks{IDs: []metadata.TaskID{id(most)}, Status: metadata.TaskFailed}))
	for n, want := range map[int]bool{0: false, 1: true, most: true} {
		if _, ok := c.primary.FindTask(id(n)); ok != want {
			t.Errorf("task %d is remembered: %v, want %v", n, ok, want)
		}
	}
	c.everywhere()
	all = all[:0]
	for n := range 1 << 10 {
		all = append(all, &metadata.AddTask{Task: metadata.Task{ID: id(n + 2*most), Tenant: "default", Key: strings.Repeat("k", 64<<10)}})
	}
	c.must(c.commit(all...))
	_, err = c.primary.PrepareTask("CreateMoveTask", metadata.Task{ID: id(most + 1), Key: "k"})
	wantKind(t, "keys that are too long together", err, errs.TaskLimit)
	for _, e := range all {
		c.must(c.commit(&metadata.SetTasks{IDs: []metadata.TaskID{e.(*metadata.AddTask).ID}, Status: metadata.TaskSucceeded}))
	}
	if _, err = c.primary.PrepareTask("CreateMoveTask", metadata.Task{ID: id(most + 1), Key: "k"}); err != nil {
		t.Errorf("a task after the long ones have ended: got %v, want no error", err)
	}
	long := metadata.Task{ID: id(1), Source: string(make([]byte, 1000))}
	for range 16 {
		long.Targets = append(long.Targets, long.Source)
	}
	_, err = c.primary.PrepareTask("CreateCopyTask", long)
	wantKind(t, "names that are too long", err, errs.InvalidParams)
}

// What is fetched at once fits a message; the rest comes with the next call.
func TestFetchIsBoundedInBytes(t *testing.T) {
	c := newCluster(t)
	for n := range byte(40) {
		c.must(c.commit(&metadata.AddTask{Task: metadata.Task{
			ID: taskID(n), Client: client(1), Tenant: "default", Key: strings.Repeat("k", 60<<10), Targets: []string{"b"},
		}}))
	}
	for _, want := range []int{17, 17, 6, 0} {
		list, e := c.primary.PrepareFetch(client(1), 100)
		if len(list) != want {
			t.Errorf("got %d tasks with keys of 60 KiB, want %d", len(list), want)
		}
		if e != nil {
			c.must(c.commit(e))
		}
	}
}
