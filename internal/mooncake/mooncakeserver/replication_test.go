package mooncakeserver_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/service"
)

// An object that is read often is copied by its owner, which gets a task as any copy
// has, and needs no call of its own for it.
func TestDynamicReplication(t *testing.T) {
	each(t, func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		before, err := n.gate.Master()
		if err != nil {
			t.Fatal(err)
		}
		on := *before
		on.Replication = service.Replication{Enforce: true, Window: 10 * time.Second, Rate: .5, Replicas: 2}
		m := service.NewMaster(on)
		n.gate.Open(m)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = m.DriveTasks(ctx, zerolog.Nop()) }()
		defer func() { cancel(); <-done }()

		mountPair(t, c, "k")
		for range 5 {
			expect(t, "GetReplicaList", ask(t, c, g.GetReplicaList, mooncake.Args{Key: "k"}), errs.OK)
		}
		tasks := ask(t, c, g.FetchTasks, mooncake.Args{Client: client(7), Most: 10}).Value
		for end := 0; len(tasks) == 0 && end < 600; end++ {
			if err := clock.Sleep(t.Context(), 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			tasks = ask(t, c, g.FetchTasks, mooncake.Args{Client: client(7), Most: 10}).Value
		}
		if len(tasks) != 1 || tasks[0].Kind != mooncake.TaskCopy {
			t.Fatalf("FetchTasks: got %+v, want one copy", tasks)
		}
		var what struct {
			Key, Source string
			Targets     []string
		}
		if err := json.Unmarshal([]byte(tasks[0].Payload), &what); err != nil || what.Key != "k" || what.Source != "x" || len(what.Targets) != 1 {
			t.Fatalf("got the payload %s, %v; want a copy of k from x", tasks[0].Payload, err)
		}
		copying := mooncake.Args{Client: client(7), Key: what.Key, SegmentName: what.Source, Targets: what.Targets}
		expect(t, "CopyStart", ask(t, c, g.CopyStart, copying), errs.OK)
		expect(t, "CopyEnd", ask(t, c, g.CopyEnd, copying), errs.OK)
		if r := ask(t, c, g.GetReplicaList, mooncake.Args{Key: "k"}); len(r.Value.Replicas) != 2 {
			t.Errorf("got %+v, want two replicas", r.Value.Replicas)
		}
	})
}
