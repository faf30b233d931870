package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

func (c *cluster) drain(d metadata.Drain) metadata.Drain {
	c.t.Helper()
	e, err := c.primary.PrepareDrain(d)
	if err != nil {
		c.t.Fatalf("preparing a drain job: got %v, want no error", err)
	}
	c.must(c.commit(e))
	return e.Drain
}

// The segments of a drain job take no new objects until the job is cancelled or fails, whichever
// node is the primary. The job counts its moves.
func TestDrains(t *testing.T) {
	for end, want := range map[metadata.DrainStatus]metadata.SegmentStatus{
		metadata.DrainSucceeded: metadata.SegmentDrained, metadata.DrainFailed: metadata.SegmentOK, metadata.DrainCanceled: metadata.SegmentOK,
	} {
		c := newCluster(t)
		c.mount(1, "a", 1<<20)
		c.put("k")
		job := c.drain(metadata.Drain{ID: taskID(1), Segments: []string{"a"}, Concurrency: 2})
		statuses := func(want metadata.SegmentStatus) {
			for what, s := range c.everywhere() {
				if list := s.Segments(); list[0].Status() != want {
					t.Errorf("job %v, %s: the segment is %v, want %v", end, what, list[0].Status(), want)
				}
				if due := s.SegmentsToUnmount(1 << 62); len(due) != 0 {
					t.Errorf("job %v, %s: %v are to be unmounted, want none", end, what, due)
				}
				s.StartIDs(9)
				put, _, _, err := s.PreparePutStart(&metadata.Put{Tenant: "default", Key: "new", Client: client(1), Size: 10, Replicas: 1}, c.now)
				if (err == nil) != (want == metadata.SegmentOK) {
					t.Errorf("job %v, %s: a put into a segment that is %v: got %v, want it refused unless the segment is OK",
						end, what, want, err)
				}
				if put != nil {
					put.Abort(s)
				}
			}
		}
		statuses(metadata.SegmentDraining)
		if items := c.drainItems(job); len(items) != 1 || items[0].Key != "k" || items[0].Source != "a" || items[0].Size != 100 || !items[0].Movable {
			t.Errorf("got %+v, want the object, which can be moved", items)
		}
		c.read("k")
		if items := c.drainItems(job); len(items) != 1 || items[0].Movable {
			t.Errorf("got %+v, want the object, which is leased", items)
		}
		for n, status := range map[byte]metadata.TaskStatus{1: metadata.TaskSucceeded, 2: metadata.TaskFailed} {
			c.must(c.commit(&metadata.AddTask{Task: metadata.Task{ID: taskID(n), Tenant: "default", Move: true, Source: "a", Targets: []string{"b"}, Size: 100}}))
			if n := len(c.primary.OpenMoves(&job)); n != 1 {
				t.Errorf("%d moves are open, want 1", n)
			}
			c.must(c.commit(&metadata.SetTasks{IDs: []metadata.TaskID{taskID(n)}, Status: status}))
		}
		c.takeOver(0)
		for what, s := range c.everywhere() {
			if list := s.Drains(); len(list) != 1 || list[0].Succeeded != 1 || list[0].Failed != 1 || list[0].Bytes != 100 || list[0].Status != metadata.DrainRunning {
				t.Errorf("%s: got the jobs %+v, want one with a move that succeeded and one that failed", what, list)
			}
		}
		job.Status, job.Message = end, "why"
		c.must(c.commit(&metadata.SaveDrain{Drain: job}))
		statuses(want)
		if d := c.primary.Drains()[0]; d.Status != end || d.Message != "why" || d.Succeeded != 1 {
			t.Errorf("got %+v, want the job's end", d)
		}
	}
}

func (c *cluster) drainItems(d metadata.Drain) (items []metadata.DrainItem) {
	for shard := range metadata.ShardCount {
		items, _ = c.primary.DrainItems(items, shard, &d, c.now)
	}
	return items
}

// A segment of a drain job can be unmounted with a grace period. The end of the job then does
// not open it again.
func TestDrainedSegmentIsUnmounted(t *testing.T) {
	c := newCluster(t)
	id := c.mount(1, "a", 1<<20)
	job := c.drain(metadata.Drain{ID: taskID(1), Segments: []string{"a"}, Concurrency: 2})
	e, err := c.primary.PrepareClose(client(1), id, c.now.Add(time.Minute))
	if err != nil || e == nil {
		t.Fatal(e, err)
	}
	c.must(c.commit(e))
	job.Status = metadata.DrainCanceled
	c.must(c.commit(&metadata.SaveDrain{Drain: job}))
	for what, s := range c.everywhere() {
		if list := s.Segments(); list[0].Status() != metadata.SegmentClosed || len(s.SegmentsToUnmount(c.now.Add(time.Minute))) != 1 {
			t.Errorf("%s: got %+v, want it closed until its unmount", what, list)
		}
	}
}

func TestDrainsRefused(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<20)
	c.mount(2, "b", 1<<20)
	c.mount(3, "c", 1<<20)
	c.drain(metadata.Drain{ID: taskID(1), Segments: []string{"c"}, Concurrency: 1})
	c.mount(4, "d", 1<<20)
	c.drain(metadata.Drain{ID: taskID(2), Segments: []string{"d"}, Concurrency: 1})
	c.mount(5, "d", 1<<20)
	for what, test := range map[string]struct {
		job  metadata.Drain
		want errs.Kind
	}{
		"no segments":           {metadata.Drain{Concurrency: 1}, errs.InvalidParams},
		"no concurrency":        {metadata.Drain{Segments: []string{"a"}}, errs.InvalidParams},
		"a segment twice":       {metadata.Drain{Segments: []string{"a", "a"}, Concurrency: 1}, errs.InvalidParams},
		"a segment to itself":   {metadata.Drain{Segments: []string{"a"}, Targets: []string{"a"}, Concurrency: 1}, errs.InvalidParams},
		"an unknown segment":    {metadata.Drain{Segments: []string{"x"}, Concurrency: 1}, errs.SegmentNotFound},
		"an unknown target":     {metadata.Drain{Segments: []string{"a"}, Targets: []string{"x"}, Concurrency: 1}, errs.SegmentNotFound},
		"a segment that drains": {metadata.Drain{Segments: []string{"c"}, Concurrency: 1}, errs.Unavailable},
		"a target that drains":  {metadata.Drain{Segments: []string{"a"}, Targets: []string{"c"}, Concurrency: 1}, errs.Unavailable},
		"one of a name drains":  {metadata.Drain{Segments: []string{"d"}, Concurrency: 1}, errs.Unavailable},
	} {
		_, err := c.primary.PrepareDrain(test.job)
		wantKind(t, what, err, test.want)
	}
}
