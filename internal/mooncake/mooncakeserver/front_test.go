package mooncakeserver_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/service"
)

// zero appends a value of a type: lists of two elements, all else empty. It
// returns what follows the type in its literal.
func zero(b []byte, t structpack.Type) ([]byte, structpack.Type) {
	node, rest := t[:1], t[1:]
	switch node { //nolint:exhaustive // those that arguments have
	case structpack.I32, structpack.U32:
		return append(b, make([]byte, 4)...), rest
	case structpack.I64, structpack.U64:
		return append(b, make([]byte, 8)...), rest
	case structpack.U8, structpack.Bool:
		return append(b, 0), rest
	case structpack.String[:1]:
		return append(b, 0), rest[1:]
	case "\x82", "\x84", "\x85": // map, vector: two elements; optional: none
		key := node
		var elements []byte
		var after structpack.Type
		for range 2 {
			if elements, after = zero(elements, rest); key == "\x82" {
				elements, after = zero(elements, after)
			}
		}
		if node == "\x85" {
			return append(b, 0), after
		}
		return append(append(b, 2), elements...), after
	case "\xfd":
		for rest[:1] != "\xff" {
			if rest[:1] == "\x89" {
				return b, rest[3:]
			}
			b, rest = zero(b, rest)
		}
		return b, rest[1:]
	}
	panic("a type that arguments do not have")
}

// arguments are valid ones of a function.
func arguments(f mooncake.Function) []byte {
	if f.Args == "" {
		return nil
	}
	b, _ := zero(binary.LittleEndian.AppendUint32(nil, f.Args.Hash()), f.Args)
	return b
}

func raw(b []byte) func([]byte) []byte { return func(to []byte) []byte { return append(to, b...) } }

// Every function of every generation gets an answer of its own type; there
// are no NVMe-oF pools: a list of them is empty, and none can be mounted.
func TestEveryFunction(t *testing.T) {
	for _, name := range mooncake.Names() {
		n := primary(t)
		c := n.dial(t, name)
		failed := func(k errs.Kind) string {
			return "\x00" + string(binary.LittleEndian.AppendUint32(nil, uint32(k.Number())))
		}
		noPools := map[string]string{
			"MountNoFSegment": failed(errs.NotSupported), "ReMountNoFSegment": failed(errs.NotSupported), "UnmountNoFSegment": failed(errs.NotSupported),
			"GetAllNoFSegments": "\x01\x00", "GetNoFSegmentsByName": failed(errs.SegmentNotFound),
		}
		for _, f := range c.Generation.Functions() {
			answer, _, err := c.Call(t.Context(), f.ID, raw(arguments(f)))
			if err != nil {
				t.Fatalf("%s %s: got %v, want no error", name, f.Name, err)
			}
			if got := binary.LittleEndian.Uint32([]byte(answer)); got != f.Result.Hash() {
				t.Errorf("%s %s: an answer of type %08x, want %08x", name, f.Name, got, f.Result.Hash())
			}
			if want, fixed := noPools[f.Name]; fixed && answer[4:] != want {
				t.Errorf("%s %s: %x, want %x", name, f.Name, answer[4:], want)
			}
		}
	}
}

// Arguments that end anywhere, or go on, are refused; nothing else happens.
func TestCutArguments(t *testing.T) {
	for _, name := range mooncake.Names() {
		n := primary(t)
		c, before := n.dial(t, name), n.primary.Changes()
		refused := func(f mooncake.Function, b []byte) {
			t.Helper()
			var e *coro.Error
			if _, _, err := c.Call(t.Context(), f.ID, raw(b)); !errors.As(err, &e) || *e != (coro.Error{Code: coro.CodeInvalidArguments, Message: "invalid rpc arg"}) {
				t.Errorf("%s %s of %x: %v; want \"invalid rpc arg\"", name, f.Name, b, err)
			}
		}
		for _, f := range c.Generation.Functions() {
			whole := arguments(f)
			for i := range whole {
				refused(f, whole[:i])
			}
			refused(f, append(whole, 0))
		}
		if after := n.primary.Changes(); after != before {
			t.Errorf("%s: something was changed: got %d changes, want the %d from before", name, after, before)
		}
	}
}

// A client of another release is distinguished from one that sends nonsense.
func TestAnotherGeneration(t *testing.T) {
	n := primary(t)
	c := n.dial(t, "v0.3.11")
	head, _ := mooncake.NewGeneration("head")
	var refused *coro.Error
	if err := fails(t, c, head.GetReplicaList, mooncake.Args{Key: "a", Tenant: "default"}); !errors.As(err, &refused) || refused.Code != coro.CodeInvalidArguments {
		t.Errorf("got %v, want that the arguments are invalid", err)
	}
	log := n.log.String()
	for _, want := range []string{`"generation":"v0.3.11"`, `"spoken_by":["head","v0.3.12"]`, "--mooncake-listen"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log after a client of another release: got %s, want %s in it", log, want)
		}
	}
	if err := fails(t, c, mooncake.Call[int64]{Function: mooncake.Function{Name: "no such", ID: 1}, Result: structpack.NewMessage(structpack.Int64)},
		mooncake.Args{}); !errors.As(err, &refused) || refused.Code != coro.CodeNotRegistered {
		t.Errorf("a function that there is not: %v; want CodeNotRegistered", err)
	}
}

// A node that does not serve closes connections; one that stops to serve does
// not answer what it does not know to be true any more.
func TestNotServing(t *testing.T) {
	s := standby(t, false)
	c := s.dial(t, "head")
	_ = fails(t, c, c.Generation.ServiceReady, mooncake.Args{})

	n := primary(t)
	for _, f := range []func() error{
		func() error {
			c := n.dial(t, "head")
			put(t, c, 7, "a")
			n.fenced.Store(true)
			return fails(t, c, c.Generation.GetReplicaList, mooncake.Args{Key: "a"})
		},
		func() error {
			c := n.dial(t, "head")
			return fails(t, c, c.Generation.BatchExistKey, mooncake.Args{Keys: []string{"a"}})
		},
		func() error {
			c := n.dial(t, "head")
			return fails(t, c, c.Generation.RemoveAll, mooncake.Args{Force: true})
		},
		func() error {
			c := n.dial(t, "head")
			_, _, err := c.Call(t.Context(), mooncake.FunctionID("QueryTask"), raw(arguments(mooncake.Function{Args: c.Generation.Ping.Function.Args})))
			return err
		},
		func() error {
			n.gate.Close(service.Hint{})
			c := n.dial(t, "head")
			return fails(t, c, c.Generation.GetReplicaList, mooncake.Args{Key: "a"})
		},
	} {
		var refused *coro.Error
		if err := f(); err == nil || errors.As(err, &refused) {
			t.Errorf("the connection was not closed: %v; want it closed, without an answer", err)
		}
	}
}

// A relay passes requests of any generation on, waits while nobody serves, and
// serves itself when it has become the primary.
func TestRelay(t *testing.T) {
	s := standby(t, true)
	n := standby(t, false)
	head := func() string { return n.address["head"] }

	for _, name := range mooncake.Names() {
		c := s.dial(t, name)
		answered := make(chan int32, 1)
		go func() {
			r := mooncake.Result[bool]{Failure: 1}
			b, _, err := c.Call(t.Context(), c.Generation.ExistKey.ID, raw(arguments(c.Generation.ExistKey.Function)))
			if err == nil {
				err = structpack.Unpack(new(structpack.Reader), b, c.Generation.ExistKey.Result, &r)
			}
			if err != nil {
				t.Error(err)
			}
			answered <- r.Failure
		}()
		if n.primary == nil { // nobody serves yet
			s.gate.SetHint(service.Hint{RPC: head()})
			n.serve(t)
		}
		if got := <-answered; got != 0 {
			t.Errorf("%s: got %d, want 0", name, got)
		}
		put(t, c, 7, "key of "+name)
		if r := ask(t, c, c.Generation.ExistKey, mooncake.Args{Key: "key of " + name}); !r.Value {
			t.Errorf("%s: %+v; want true", name, r)
		}
		var refused *coro.Error
		if _, _, err := c.Call(t.Context(), c.Generation.PutStart.ID, raw([]byte("nonsense"))); !errors.As(err, &refused) || refused.Code != coro.CodeInvalidArguments {
			t.Errorf("%s: %v; want CodeInvalidArguments", name, err)
		}
	}

	c := s.dial(t, "head")
	put(t, c, 7, "a")
	n.gate.Close(service.Hint{}) // it serves no more
	s.serve(t)
	if r := ask(t, c, c.Generation.ExistKey, mooncake.Args{Key: "a"}); r.Failure != 0 || r.Value {
		t.Errorf("from its own, empty state: %+v; want false", r)
	}
}

// Two nodes that take each other for the primary do not pass a request to and
// fro; the client's patience ends the wait.
func TestRelaysDoNotCircle(t *testing.T) {
	a, b := standby(t, true), standby(t, true)
	a.gate.SetHint(service.Hint{RPC: b.address["head"]})
	b.gate.SetHint(service.Hint{RPC: a.address["head"]})
	c := a.dial(t, "v0.3.12")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := c.Call(ctx, c.Generation.ExistKey.ID, raw(arguments(c.Generation.ExistKey.Function))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want context.DeadlineExceeded", err)
	}
	c.Close()
	a.gate.SetHint(service.Hint{RPC: primary(t).address["head"]})
	c = a.dial(t, "v0.3.12")
	if r := ask(t, c, c.Generation.ExistKey, mooncake.Args{Key: "a"}); r.Failure != 0 {
		t.Errorf("got %+v, want Failure 0", r)
	}
}

// A primary that hangs holds a relayed call up until another one serves, and no
// longer; the next call goes there.
func TestRelayFromAPrimaryThatHangs(t *testing.T) {
	s, hanging, next := standby(t, true), primary(t), primary(t)
	s.gate.SetHint(service.Hint{RPC: hanging.address["head"]})
	began, goOn := make(chan struct{}), make(chan struct{})
	pause := func() { close(began); <-goOn }
	hanging.pause.Store(&pause)
	defer close(goOn)

	c := s.dial(t, "head")
	failed := make(chan error, 1)
	go func() {
		_, _, err := c.Call(t.Context(), c.Generation.ExistKey.ID, raw(arguments(c.Generation.ExistKey.Function)))
		failed <- err
	}()
	<-began
	s.gate.SetHint(service.Hint{}) // its session has ended
	s.gate.SetHint(service.Hint{RPC: next.address["head"]})
	if err := <-failed; err == nil {
		t.Error("a call relayed to a primary that hangs: got an answer, want an error once another serves")
	}
	c = s.dial(t, "head")
	if r := ask(t, c, c.Generation.ExistKey, mooncake.Args{Key: "a"}); r.Failure != 0 {
		t.Errorf("got %+v, want Failure 0", r)
	}
}

// Who sends garbage must not fill the log.
func TestGarbageIsLoggedTenTimesAMinute(t *testing.T) {
	n := primary(t)
	for range 20 {
		c, err := net.Dial("tcp", n.address["head"])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c) // until it is closed, which is when the line is written
		c.Close()
	}
	if got := strings.Count(n.log.String(), "does not speak as a Mooncake client should"); got < 1 || got > 10 {
		t.Errorf("%d lines about 20 connections, want 1 to 10: %s", got, n.log)
	}
}
