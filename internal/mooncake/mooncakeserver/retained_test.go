package mooncakeserver_test

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/segment"
)

// What is kept of a request keeps no more of it than that.
func TestStateKeepsNoRequests(t *testing.T) {
	n := primary(t)
	c := n.dial(t, "head")
	g := c.Generation
	put(t, c, 7, "a")
	mount := func(i byte, padding string) {
		t.Helper()
		a := mooncake.Args{Client: client(9), Segment: segment.Spec{ID: segment.ID{66, i}, Name: "other", Base: uint64(i+1) << 20, Size: 1 << 20, Endpoint: "o", Protocol: "tcp", HostID: "h"}}
		plain := structpack.Pack(new(structpack.Writer), nil, g.MountSegment.Args, &a)
		padded := bytes.Join([][]byte{{plain[0] | 1}, plain[1:4], {4}, []byte(padding), {0}, plain[4:]}, nil) // with the literal of a type
		answer, _, err := c.Call(t.Context(), g.MountSegment.ID, raw(padded))
		var r mooncake.Done
		if err == nil {
			err = structpack.Unpack(new(structpack.Reader), answer, g.MountSegment.Result, &r)
		}
		if err != nil || r.Failure != 0 {
			t.Fatalf("MountSegment: got failure %d, error %v, want success", r.Failure, err)
		}
	}
	mount(0, "")
	keep := func(i byte, padding string) {
		t.Helper()
		mount(i+1, padding)
		copies := mooncake.Args{Key: "a", Targets: []string{"other"}, Tenant: padding}
		expect(t, "CreateCopyTask", ask(t, c, g.CreateCopyTask, copies), errs.OK)
		moves := mooncake.Args{Key: "a", SegmentName: "a", Target: "other", Tenant: padding}
		expect(t, "CreateMoveTask", ask(t, c, g.CreateMoveTask, moves), errs.OK)
	}
	const requests, size = 8, 4 << 20
	before := heap()
	for i := range byte(requests) {
		keep(i, strings.Repeat("x", size))
	}
	ask(t, c, g.ExistKey, mooncake.Args{Key: "a"}) // and the connection has nothing left of them
	if grown := int64(heap() - before); grown > requests*size/2 {
		t.Errorf("%d segments and %d tasks keep %d bytes, want far less than the %d of their requests", requests, 2*requests, grown, 3*requests*size)
	}
}

// heap returns the bytes that are in use.
func heap() uint64 {
	var m runtime.MemStats
	for range 2 { // what a pool has goes with the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
