package mooncakeserver_test

import (
	"strings"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeserver"
	"github.com/understudy-store/understudy/segment"
)

// Each order leaves a line with what it asked for and what became of it, though that
// stands in an answer.
func TestOrdersAreLogged(t *testing.T) {
	each(t, func(t *testing.T, n *node, c *mooncakeclient.Conn, g *mooncake.Generation) {
		put(t, c, 1, "x1", "x2", "y")
		logs := func(what string, fields ...string) { t.Helper(); n.audits(t, what, fields...) }
		ask(t, c, g.RemoveByRegex, mooncake.Args{Key: "^x", Force: true})
		logs("a removal by pattern", `"order":"RemoveByRegex"`, `"request":"regex:\"^x\"`, `force:true`, `"objects":2`, `"result":"OK"`)
		expect(t, "a pattern that is none", ask(t, c, g.RemoveByRegex, mooncake.Args{Key: "("}), errs.InvalidParams)
		logs("a pattern that is none", `"objects":0`, `"result":"INVALID_PARAMS"`)
		ask(t, c, g.RemoveAll, mooncake.Args{Force: true})
		logs("the removal of all", `"order":"RemoveAll"`, `"objects":1`, `"result":"OK"`)
		expect(t, "an unknown segment", ask(t, c, g.UnmountSegment, mooncake.Args{SegmentID: segment.ID{7}, Client: client(9)}), errs.OK)
		logs("an unmount", `"order":"UnmountSegment"`, `segment_id:07000000-0000`, `client_id:09000000-`, `"result":`)
	})
}

// Who has had all lines that one gets for nothing leaves one of each order that changes
// something, and another host's.
func TestIdleOrdersFillNoLog(t *testing.T) {
	n := primary(t)
	c := n.dial(t, "head")
	put(t, c, 1, "x")
	for range 60 {
		ask(t, c, c.Generation.RemoveByRegex, mooncake.Args{Key: "none"})
		ask(t, c, c.Generation.UnmountSegment, mooncake.Args{SegmentID: segment.ID{7}, Client: client(9)})
	}
	if got := strings.Count(n.log.String(), "an order was given"); got != 50 {
		t.Errorf("%d lines of orders that changed nothing, want 50 of one host", got)
	}
	ask(t, c, c.Generation.RemoveAll, mooncake.Args{Force: true})
	n.audits(t, "the removal of all", `"order":"RemoveAll"`, `"objects":1`)
}

func TestRefusedOrdersAreLogged(t *testing.T) {
	n := standby(t, false)
	n.front.NoOrders = true
	n.serve(t)
	c := n.dial(t, "head")
	_ = fails(t, c, c.Generation.RemoveAll, mooncake.Args{Force: true})
	n.audits(t, "an order that is not taken", `"order":"RemoveAll"`, `"result":"NOT_SUPPORTED"`, "a call was refused")
}

// audits checks what the last line of the log has.
func (n *node) audits(t *testing.T, what string, fields ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(n.log.String()), "\n")
	last := lines[len(lines)-1]
	for _, want := range append(fields, `"part":"audit"`, `"peer":"127.0.0.1:`) {
		if !strings.Contains(last, want) {
			t.Errorf("%s: the log ends with %s, want %s", what, last, want)
		}
	}
}

// Where nobody gives orders, or callers of other protocols have roles, a client unmounts what
// it has mounted itself, at once or later, and nothing else.
func TestUnmountsOfOthers(t *testing.T) {
	for what, setup := range map[string]func(*mooncakeserver.Front){
		"no orders": func(f *mooncakeserver.Front) { f.NoOrders = true },
		"roles":     func(f *mooncakeserver.Front) { f.Roles = true },
	} {
		n := standby(t, false)
		setup(n.front)
		n.serve(t)
		c := n.dial(t, "head")
		for i := range byte(4) {
			spec := segment.Spec{ID: segment.ID{10 + i}, Name: "m", Base: uint64(i+1) << 40, Size: 1 << 20, Endpoint: "m:1", Protocol: "tcp"}
			expect(t, "a mount", ask(t, c, c.Generation.MountSegment, mooncake.Args{Client: client(5 + i/2), Segment: spec}), errs.OK)
		}
		g := c.Generation
		expect(t, what+": another's", ask(t, c, g.UnmountSegment, mooncake.Args{SegmentID: segment.ID{10}, Client: client(6)}), errs.IllegalClient)
		expect(t, what+": another's, later", ask(t, c, g.GracefulUnmount, mooncake.Args{SegmentID: segment.ID{10}, Client: client(6)}), errs.InvalidParams)
		expect(t, what+": its own", ask(t, c, g.UnmountSegment, mooncake.Args{SegmentID: segment.ID{10}, Client: client(5)}), errs.OK)
		expect(t, what+": its own, again", ask(t, c, g.UnmountSegment, mooncake.Args{SegmentID: segment.ID{10}, Client: client(5)}), errs.OK)
		expect(t, what+": its own, later", ask(t, c, g.GracefulUnmount, mooncake.Args{SegmentID: segment.ID{11}, Client: client(5), GraceMillis: 1000}), errs.OK)
		for _, id := range []segment.ID{{12}, {13}} {
			if _, _, mounted := n.primary.Store.OwnerOf(id); !mounted {
				t.Errorf("%s: got segment %v unmounted, want it mounted: it was not asked for", what, id)
			}
		}
	}
}
