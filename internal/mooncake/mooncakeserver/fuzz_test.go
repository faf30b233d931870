package mooncakeserver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeserver"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/service"
)

// FuzzCalls sends any arguments to each function of each generation: the answer has the
// function's type, or the arguments are refused.
func FuzzCalls(f *testing.F) {
	n := primary(f)
	fuzzCalls(f, n)
}

// FuzzRelay is FuzzCalls through a node that passes them on.
func FuzzRelay(f *testing.F) {
	s, n := standby(f, true), primary(f)
	s.gate.SetHint(service.Hint{RPC: n.address["head"]})
	fuzzCalls(f, s)
}

func fuzzCalls(f *testing.F, n *node) {
	names := mooncake.Names()
	conns, functions := make([]*mooncakeclient.Conn, len(names)), make([][]mooncake.Function, len(names))
	for g, name := range names {
		conns[g] = n.dial(f, name)
		functions[g] = conns[g].Generation.Functions()
		for i, fn := range functions[g] {
			f.Add(uint8(g), uint8(i), arguments(fn))
		}
	}
	put(f, conns[0], 7, "a", "b")
	f.Fuzz(func(t *testing.T, generation, function uint8, body []byte) {
		g := int(generation) % len(names)
		fn := functions[g][int(function)%len(functions[g])]
		answer, _, err := conns[g].Call(context.Background(), fn.ID, raw(body))
		var refused *coro.Error
		switch {
		case errors.As(err, &refused) && refused.Code == coro.CodeInvalidArguments:
		case err != nil:
			t.Fatalf("%s %s of %x: %v; want an answer", names[g], fn.Name, body, err)
		case binary.LittleEndian.Uint32([]byte(answer))&^1 != fn.Result.Hash():
			t.Fatalf("%s %s of %x: got an answer of another type, want hash %08x", names[g], fn.Name, body, fn.Result.Hash())
		}
	})
}

// FuzzSelectGeneration begins as a relay does, with any name of a generation: a node that
// does not know it says so, and goes on.
func FuzzSelectGeneration(f *testing.F) {
	for _, name := range append(mooncake.Names(), "", "none") {
		f.Add(structpack.Pack(new(structpack.Writer), nil, structpack.NewMessage(structpack.Text), &name))
	}
	f.Add([]byte{1, 2, 3})
	n := primary(f)
	c := n.dial(f, "head")
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _, err := c.Call(context.Background(), mooncakeserver.SelectGeneration(), raw(body))
		var refused *coro.Error
		if err != nil && (!errors.As(err, &refused) || refused.Code != coro.CodeInvalidArguments) {
			t.Fatalf("generation %x: got error %v, want it selected, or refused as invalid", body, err)
		}
	})
}
