package app

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// answer calls for client 7 and returns the result, which must not be a failure.
func answer[V any](c caller, f mooncake.Call[mooncake.Result[V]], a mooncake.Args) V {
	c.t.Helper()
	a.Client = segment.ClientID{7}
	var r mooncake.Result[V]
	if _, err := mooncakeclient.Do(c.t.Context(), c.Conn, f, &a, &r); err != nil || r.Failure != 0 {
		c.t.Fatalf("%s: got %v and failure %d, want neither", f.Name, err, r.Failure)
	}
	return r.Value
}

// ends calls the end of a task.
func (c caller) ends(id mooncake.TaskID) {
	c.t.Helper()
	answer(c, c.Generation.MarkTaskToComplete, mooncake.Args{TaskEnd: mooncake.TaskEnd{ID: id, Status: int32(metadata.TaskSucceeded)}})
}

// Tasks, drain jobs, graceful unmounts and the capacities of SSDs are part of the state:
// what one primary begins ends at the next one.
func TestTasksEndAtTheNextPrimary(t *testing.T) {
	t.Parallel()
	const grace, capacity = 4 * time.Second, 1 << 40
	etcd := etcdtest.Start(t).Endpoints()
	node := func(role promote.Role, id string) *member {
		c := settings(role, id, etcd)
		c.Storage.Offload, c.Client.TTL = true, time.Hour // nobody pings
		return run(t, c)
	}
	a := node(config.Primary, "a")
	a.serves()
	a.until("has raised the rules", func(*pb.StatusResponse) bool { return a.node.Store().Rules() == metadata.NewestRules })
	b := node(config.Standby, "b")
	b.promotable()
	a.knows(1)

	m := call(t, a.RPCAddress(), "head")
	g := m.Generation
	for i, name := range []string{"from", "to", "drained", "leaving"} {
		answer(m, g.MountSegment, mooncake.Args{Segment: segment.Spec{
			ID: segment.ID{byte(i + 1)}, Name: name, Base: uint64(i+1) << 40, Size: 1 << 20, Endpoint: name + ":1", Protocol: "tcp",
		}})
	}
	for key, on := range map[string]string{"copied": "from", "moved": "drained"} {
		answer(m, g.PutStart, mooncake.Args{Key: key, Size: 100, Config: mooncake.ReplicateConfig{Replicas: 1, Preferred: []string{on}}})
		answer(m, g.PutEnd, mooncake.Args{Item: mooncake.PutItem{Key: key}})
	}
	answer(m, g.MountLocalDisk, mooncake.Args{Offloading: true})
	answer(m, g.ReportSsdCapacity, mooncake.Args{Capacity: capacity})
	task := answer(m, g.CreateCopyTask, mooncake.Args{Key: "copied", Targets: []string{"to"}})
	if list := answer(m, g.FetchTasks, mooncake.Args{Most: 10}); len(list) != 1 || list[0].ID != task {
		t.Fatalf("FetchTasks: got %+v, want the copy", list)
	}
	httpClient := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	resp, err := httpClient.Post("http://"+a.cfg.Node.HTTPAddress+"/api/v1/drain_jobs", "", strings.NewReader(`{"segments":["drained"],"target_segments":["to"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var job struct {
		ID string `json:"job_id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&job); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a drain job: got %s, %v; want 200 and an id", resp.Status, err)
	}
	began := time.Now()
	answer(m, g.GracefulUnmount, mooncake.Args{SegmentID: segment.ID{4}, GraceMillis: uint64(grace.Milliseconds())})
	a.end()
	b.serves()

	over := &httpNode{App: b.App, t: t, http: httpClient}
	if _, got := over.ask("/api/v1/segments/status?segment=leaving"); time.Since(began) < grace && !strings.Contains(got, "GRACEFULLY_UNMOUNTING") {
		t.Errorf("after the takeover, within the grace: got %s, want a segment that is about to be unmounted", got)
	}
	if got := b.node.Store().Stats().SSDCapacity; got != capacity {
		t.Errorf("got %d bytes on SSDs, want the %d that were reported", got, capacity)
	}
	next := call(t, b.RPCAddress(), "head")
	is := func(want metadata.TaskStatus) {
		t.Helper()
		if s := answer(next, g.QueryTask, mooncake.Args{TaskID: task}); s.Status != int32(want) {
			t.Errorf("the copy: got %+v, want status %d", s, want)
		}
	}
	is(metadata.TaskProcessing)
	answer(next, g.CopyStart, mooncake.Args{Key: "copied", SegmentName: "from", Targets: []string{"to"}})
	answer(next, g.CopyEnd, mooncake.Args{Key: "copied"})
	next.ends(task)
	is(metadata.TaskSucceeded)

	var moves []mooncake.Task
	b.until("hands out the move", func(*pb.StatusResponse) bool {
		moves = answer(next, g.FetchTasks, mooncake.Args{Most: 10})
		return len(moves) > 0
	})
	answer(next, g.MoveStart, mooncake.Args{Key: "moved", SegmentName: "drained", Target: "to"})
	answer(next, g.MoveEnd, mooncake.Args{Key: "moved"})
	next.ends(moves[0].ID)
	over.becomes("/api/v1/segments/status?segment=drained", http.StatusOK, "DRAINED")
	over.want("/api/v1/drain_jobs/query?job_id="+job.ID, http.StatusOK, `"status_name":"SUCCEEDED"`, `"succeeded_units":1,"failed_units":0`)
	over.becomes("/api/v1/segments/status?segment=leaving", http.StatusNotFound, "SEGMENT_NOT_FOUND")
	for key, want := range map[string]int{"copied": 2, "moved": 1} {
		if list := answer(next, g.GetReplicaList, mooncake.Args{Key: key}).Replicas; len(list) != want || list[want-1].Endpoint != "to:1" {
			t.Errorf("%s: got %+v, want %d replicas, the last one at the target", key, list, want)
		}
	}
}
