package rpc_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/rpc"
)

// When a host has used up its share of calls that are not over, the connection that has the
// most of them is closed. Another one from the same address, perhaps of somebody else behind
// the same NAT, keeps its calls, and may begin some more.
func TestGreedyConnectionsGiveWay(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 4 << 20 }).mount()
	open, _, _ := n.server.Budgets()
	release := n.log.stall(t)
	var calls sync.WaitGroup
	put := func(from, to int) {
		for i := from; i < to; i++ {
			calls.Go(func() {
				if _, err := n.objects.PutStart(t.Context(), &pb.PutStartRequest{ClientId: alice, Key: fmt.Sprint(i), Size: 1}); err != nil {
					t.Errorf("call %d of the modest connection: got error %v, want an answer", i, err)
				}
			})
		}
	}
	put(0, 30) // of 6 KiB each, 64 of them free
	within(t, "some calls wait", func() bool { return taken(open) > 100<<10 })
	greedy := n.raw()
	const own = 150 // of 11 KiB each: with the others nearly the 2 MiB that a host may have
	for range own {
		if err := greedy.open(pb.ObjectService_BatchExistKey_FullMethodName, 0); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "the greedy connection has most of the share", func() bool { return taken(open) > own*11<<10 })
	put(30, 150)
	select {
	case <-greedy.ended:
	case <-time.After(30 * time.Second):
		t.Error("the share of a host is used up: got the connection that has the most open, want it closed")
	}
	release()
	calls.Wait()
	n.empty(open)
}
