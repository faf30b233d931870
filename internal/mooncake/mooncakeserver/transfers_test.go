package mooncakeserver_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// mountPair mounts segments "x" of client 7 and "y" of client 8, and puts objects on x.
func mountPair(t *testing.T, c *mooncakeclient.Conn, keys ...string) {
	t.Helper()
	g := c.Generation
	for n, name := range map[byte]string{7: "x", 8: "y"} {
		spec := segment.Spec{ID: segment.ID{n}, Name: name, Base: uint64(n) << 40, Size: 1 << 20, Endpoint: name + ":1", Protocol: "tcp"}
		expect(t, "MountSegment", ask(t, c, g.MountSegment, mooncake.Args{Segment: spec, Client: client(n)}), errs.OK)
	}
	for _, key := range keys {
		how := config()
		how.Preferred = []string{"x"}
		expect(t, "PutStart", ask(t, c, g.PutStart, mooncake.Args{Client: client(7), Key: key, Size: 100, Config: how}), errs.OK)
		expect(t, "PutEnd", ask(t, c, g.PutEnd, mooncake.Args{Client: client(7), Item: mooncake.PutItem{Key: key}}), errs.OK)
	}
}

func TestCopiesAndMoves(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		mountPair(t, c, "k")
		endpoints := func() (list []string) {
			for _, d := range ask(t, c, g.GetReplicaList, mooncake.Args{Key: "k"}).Value.Replicas {
				list = append(list, d.Endpoint)
			}
			return list
		}
		copying := mooncake.Args{Client: client(7), Key: "k", SegmentName: "x", Targets: []string{"y"}}
		moving := mooncake.Args{Client: client(7), Key: "k", SegmentName: "x", Target: "y"}
		expect(t, "CopyEnd without a copy", ask(t, c, g.CopyEnd, copying), errs.ObjectNoTask)
		expect(t, "MoveEnd of no object", ask(t, c, g.MoveEnd, mooncake.Args{Client: client(7), Key: "no"}), errs.ObjectNotFound)
		bad := copying
		bad.Targets = []string{"nowhere"}
		expect(t, "CopyStart to an unknown segment", ask(t, c, g.CopyStart, bad), errs.SegmentNotFound)

		started := ask(t, c, g.CopyStart, copying)
		expect(t, "CopyStart", started, errs.OK)
		v := started.Value
		if v.Source.Endpoint != "x:1" || v.Source.Status != metadata.Complete || len(v.Targets) != 1 || v.Targets[0].Endpoint != "y:1" ||
			v.Targets[0].Status != metadata.Processing || v.Targets[0].Size != 100 || v.Source.ID == 0 {
			t.Errorf("CopyStart: got %+v; want a complete source at x:1, and a target in progress at y:1", v)
		}
		expect(t, "MoveStart during a copy", ask(t, c, g.MoveStart, moving), errs.ObjectHasTask)
		expect(t, "Remove during a copy", ask(t, c, g.Remove, mooncake.Args{Key: "k", Force: true}), errs.ReplicaNotReady)
		expect(t, "CopyEnd of a stranger", ask(t, c, g.CopyEnd, mooncake.Args{Client: client(8), Key: "k"}), errs.IllegalClient)
		expect(t, "CopyRevoke", ask(t, c, g.CopyRevoke, copying), errs.OK)
		expect(t, "CopyStart again", ask(t, c, g.CopyStart, copying), errs.OK)
		expect(t, "CopyEnd", ask(t, c, g.CopyEnd, copying), errs.OK)
		if got := endpoints(); len(got) != 2 {
			t.Errorf("after a copy the object is at %v, want two places", got)
		}
		moved := ask(t, c, g.MoveStart, moving)
		if expect(t, "MoveStart", moved, errs.OK); moved.Value.Source.Endpoint != "x:1" || moved.Value.Target != nil {
			t.Errorf("MoveStart: got %+v; want no target, as the object is there", moved.Value)
		}
		expect(t, "Remove during a move without a target", ask(t, c, g.Remove, mooncake.Args{Key: "k", Force: true}), errs.ObjectHasTask)
		expect(t, "MoveEnd", ask(t, c, g.MoveEnd, moving), errs.OK)
		if got := endpoints(); len(got) != 1 || got[0] != "y:1" {
			t.Errorf("after a move the object is at %v, want y:1", got)
		}
		moving.SegmentName, moving.Target = "y", "x"
		if moved := ask(t, c, g.MoveStart, moving); moved.Failure != 0 || moved.Value.Target == nil || moved.Value.Target.Endpoint != "x:1" {
			t.Errorf("MoveStart back: got %+v; want a target at x:1", moved)
		}
		expect(t, "MoveRevoke", ask(t, c, g.MoveRevoke, moving), errs.OK)
	})
}

// Copies that a master plans under a lease for busy objects: there are none here, as such
// copies are plain tasks, and a call that names none is a plain copy.
func TestDynamicCopies(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		if g.DynamicCopyStart.Name == "" {
			return
		}
		mountPair(t, c, "k")
		plain := mooncake.Args{Client: client(7), Key: "k", SegmentName: "x", Targets: []string{"y"}}
		dynamic := plain
		dynamic.DynamicLease = segment.ID{1}
		expect(t, "a planned copy", ask(t, c, g.DynamicCopyStart, dynamic), errs.Unavailable)
		expect(t, "a plain copy", ask(t, c, g.DynamicCopyStart, plain), errs.OK)
		expect(t, "the end of a planned one", ask(t, c, g.DynamicCopyEnd, dynamic), errs.InvalidVersion)
		expect(t, "the end", ask(t, c, g.DynamicCopyEnd, plain), errs.OK)
		expect(t, "a second end", ask(t, c, g.DynamicCopyRevoke, plain), errs.ObjectNoTask)
	})
}

func TestTasks(t *testing.T) {
	each(t, func(t *testing.T, _ *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		mountPair(t, c, "k")
		before := clock.Wall().Add(-time.Second).UnixMilli()
		for what, test := range map[string]struct {
			got  mooncake.Result[mooncake.TaskID]
			want errs.Kind
		}{
			"a copy without targets":         {ask(t, c, g.CreateCopyTask, mooncake.Args{Key: "k"}), errs.InvalidParams},
			"a copy of nothing":              {ask(t, c, g.CreateCopyTask, mooncake.Args{Key: "no", Targets: []string{"y"}}), errs.ObjectNotFound},
			"a copy to an unknown segment":   {ask(t, c, g.CreateCopyTask, mooncake.Args{Key: "k", Targets: []string{"no"}}), errs.InvalidParams},
			"a move to where it is":          {ask(t, c, g.CreateMoveTask, mooncake.Args{Key: "k", SegmentName: "x", Target: "x"}), errs.InvalidParams},
			"a move from where it is not":    {ask(t, c, g.CreateMoveTask, mooncake.Args{Key: "k", SegmentName: "y", Target: "x"}), errs.InvalidParams},
			"a move to an unknown segment":   {ask(t, c, g.CreateMoveTask, mooncake.Args{Key: "k", SegmentName: "x", Target: "no"}), errs.InvalidParams},
			"a move of an object that is no": {ask(t, c, g.CreateMoveTask, mooncake.Args{Key: "no", SegmentName: "x", Target: "y"}), errs.ObjectNotFound},
		} {
			expect(t, what, test.got, test.want)
		}
		copied := ask(t, c, g.CreateCopyTask, mooncake.Args{Key: "k", Targets: []string{"y"}})
		moved := ask(t, c, g.CreateMoveTask, mooncake.Args{Key: "k", SegmentName: "x", Target: "y"})
		expect(t, "CreateCopyTask", copied, errs.OK)
		expect(t, "CreateMoveTask", moved, errs.OK)
		if list := ask(t, c, g.FetchTasks, mooncake.Args{Client: client(8), Most: 10}); list.Failure != 0 || len(list.Value) != 0 {
			t.Errorf("another client gets %+v, want nothing", list)
		}
		list := ask(t, c, g.FetchTasks, mooncake.Args{Client: client(7), Most: 10}).Value
		if len(list) != 2 || list[0].ID != copied.Value || list[1].ID != moved.Value || list[0].Kind != mooncake.TaskCopy || list[1].Kind != mooncake.TaskMove ||
			list[0].MaxRetries != 10 || list[0].CreatedAt < before {
			t.Fatalf("FetchTasks: got %+v, want both tasks", list)
		}
		want := `{"tenant_id":"default","key":"k","source":"x","targets":["y"],"dynamic_replication_lease_id_high":0,` +
			`"dynamic_replication_lease_id_low":0,"dynamic_replication_version_epoch":0}`
		if list[0].Payload != want || !json.Valid([]byte(list[1].Payload)) ||
			list[1].Payload != `{"tenant_id":"default","key":"k","source":"x","target":"y"}` {
			t.Errorf("payloads of the tasks: got %s and %s, want %s, and a move from x to y", list[0].Payload, list[1].Payload, want)
		}
		end := func(by byte, id mooncake.TaskID, status metadata.TaskStatus) mooncake.Done {
			return ask(t, c, g.MarkTaskToComplete, mooncake.Args{Client: client(by), TaskEnd: mooncake.TaskEnd{ID: id, Status: int32(status), Message: "why"}})
		}
		expect(t, "an end that is none", end(7, copied.Value, metadata.TaskProcessing), errs.InvalidParams)
		expect(t, "the end by a stranger", end(8, copied.Value, metadata.TaskSucceeded), errs.IllegalClient)
		expect(t, "the end of no task", end(7, mooncake.TaskID{9}, metadata.TaskSucceeded), errs.TaskNotFound)
		expect(t, "the end", end(7, copied.Value, metadata.TaskFailed), errs.OK)
		expect(t, "the end again", end(7, copied.Value, metadata.TaskSucceeded), errs.OK)
		state := ask(t, c, g.QueryTask, mooncake.Args{TaskID: copied.Value})
		if v := state.Value; state.Failure != 0 || v.ID != copied.Value || v.Status != int32(metadata.TaskFailed) || v.Message != "why" || v.Client != client(7) ||
			v.CreatedAt < before || v.UpdatedAt < v.CreatedAt {
			t.Errorf("QueryTask: got %+v, want the end", state)
		}
		expect(t, "QueryTask of none", ask(t, c, g.QueryTask, mooncake.Args{TaskID: mooncake.TaskID{9}}), errs.TaskNotFound)
	})
}
