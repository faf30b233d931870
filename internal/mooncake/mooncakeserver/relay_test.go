package mooncakeserver_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeserver"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// until waits for something.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	waittest.Until(t, 20*time.Second, what, is)
}

// An interruption is a call in the middle of which a node's time ends.
type interruption struct {
	name    string
	prepare func(t *testing.T, c *mooncakeclient.Conn)
	call    func(ctx context.Context, c *mooncakeclient.Conn) error
}

// do makes a call whose answer is of no interest.
func do[R any](call func(g *mooncake.Generation) mooncake.Call[R], args mooncake.Args) func(context.Context, *mooncakeclient.Conn) error {
	return func(ctx context.Context, c *mooncakeclient.Conn) error {
		var r R
		_, err := mooncakeclient.Do(ctx, c, call(c.Generation), &args, &r)
		return err
	}
}

func start(t *testing.T, c *mooncakeclient.Conn, key string) {
	t.Helper()
	expect(t, "PutStart", ask(t, c, c.Generation.PutStart, mooncake.Args{Client: client(7), Key: key, Size: 100, Config: config()}), errs.OK)
}

func spec(n byte) segment.Spec {
	return segment.Spec{ID: segment.ID{n}, Name: "more", Base: uint64(n) << 40, Size: 1 << 20, Endpoint: "more:1", Protocol: "tcp"}
}

// halves are calls of which a part is done after their node was fenced, and a
// part is not: it changes nothing, and what it says must be fenced.
func halves() []interruption {
	put := func(t *testing.T, c *mooncakeclient.Conn) { put(t, c, 7, "present") }
	began := func(t *testing.T, c *mooncakeclient.Conn) { start(t, c, "present") }
	disk := mooncake.Args{Client: client(1), Offloading: true}
	mount := func(t *testing.T, c *mooncakeclient.Conn) {
		expect(t, "MountLocalDiskSegment", ask(t, c, c.Generation.MountLocalDisk, disk), errs.OK)
		put(t, c)
	}
	given := func(t *testing.T, c *mooncakeclient.Conn) {
		mount(t, c)
		ask(t, c, c.Generation.OffloadObjectHeartbeat, disk)
	}
	keys := []string{"present", "absent"}
	return []interruption{
		{"BatchRemove", put, do(func(g *mooncake.Generation) mooncake.Call[[]mooncake.Done] {
			return g.BatchRemove
		},
			mooncake.Args{Keys: keys, Force: true})},
		{"BatchPutStart", put, do(func(g *mooncake.Generation) mooncake.Call[[]mooncake.Result[mooncake.ObjectReplicas]] {
			return g.BatchPutStart
		}, mooncake.Args{Client: client(7), Keys: keys, Sizes: []uint64{100, 100}, Config: config()})},
		{"BatchPutEnd", began, do(func(g *mooncake.Generation) mooncake.Call[[]mooncake.Done] {
			return g.BatchPutEnd
		},
			mooncake.Args{Client: client(7), Items: []mooncake.PutItem{{Key: "present"}, {Key: "absent"}}})},
		{"BatchPutRevoke", began, do(func(g *mooncake.Generation) mooncake.Call[[]mooncake.Done] {
			return g.BatchPutRevoke
		},
			mooncake.Args{Client: client(7), Keys: keys})},
		{"ReMountSegment", func(t *testing.T, c *mooncakeclient.Conn) {
			expect(t, "MountSegment", ask(t, c, c.Generation.MountSegment, mooncake.Args{Client: client(7), Segment: spec(5)}), errs.OK)
		}, do(func(g *mooncake.Generation) mooncake.Call[mooncake.Done] {
			return g.ReMountSegment
		},
			mooncake.Args{Client: client(7), Segments: []segment.Spec{spec(6), spec(5)}})},
		{"OffloadObjectHeartbeat", mount, do(func(g *mooncake.Generation) mooncake.Call[mooncake.Result[[]mooncake.OffloadTask]] {
			return g.OffloadObjectHeartbeat
		}, mooncake.Args{Client: client(1)})},
		{"NotifyOffloadSuccess", given, do(func(g *mooncake.Generation) mooncake.Call[mooncake.Done] {
			return g.NotifyOffloadSuccess
		}, mooncake.Args{
			Client: client(1), Tasks: []mooncake.OffloadTask{{Key: "present", Size: 100}}, Objects: []mooncake.OffloadedObject{{DataSize: 100, Endpoint: "ssd:1"}},
		})},
	}
}

// interrupt makes a node's time end when it next looks at the clock.
func (n *node) interrupt(then func()) {
	var once sync.Once
	pause := func() {
		once.Do(func() {
			n.fenced.Store(true)
			then()
		})
	}
	n.pause.Store(&pause)
}

// A call of which a part was done is not repeated by a relay, and not answered
// as one that changed nothing: a repeated one would hit what was put since.
func TestHalfOfACall(t *testing.T) {
	for _, i := range halves() {
		t.Run(i.name, func(t *testing.T) {
			for _, relayed := range []bool{false, true} {
				s, n := standby(t, true), primary(t)
				s.gate.SetHint(service.Hint{RPC: n.address["head"]})
				i.prepare(t, n.dial(t, "head"))
				before := n.primary.Store.Position().Seq
				n.interrupt(func() { s.gate.SetHint(service.Hint{}) })
				c := n.dial(t, "head")
				if relayed {
					c = s.dial(t, "head")
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err := i.call(ctx, c)
				var refused *coro.Error
				if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
					t.Errorf("relayed: %v; the connection was not closed: %v; want it closed, before the deadline", relayed, err)
				}
				// A relay gives up a call while it is being done.
				until(t, "a part is done, without which the test tests nothing", func() bool { return n.primary.Store.Position().Seq > before })
				if log := s.log.String(); relayed != strings.Contains(log, "got no answer") || strings.Contains(log, "speak as") {
					t.Errorf("relayed: %v; the log is %s; want a line about a call without an answer just if it was relayed", relayed, log)
				}
			}
		})
	}
}

// A call that changed nothing is asked again by a relay, until somebody serves.
func TestNothingOfACall(t *testing.T) {
	s, n := standby(t, true), primary(t)
	hint := service.Hint{RPC: n.address["head"]}
	s.gate.SetHint(hint)
	c := s.dial(t, "head")
	put(t, c, 7, "a")
	ask(t, c, c.Generation.MountLocalDisk, mooncake.Args{Client: client(1), Offloading: true})
	again := func(what string, call func(context.Context, *mooncakeclient.Conn) error) {
		t.Helper()
		failures := strings.Count(s.log.String(), "cannot relay")
		out := make(chan error, 1)
		go func() { out <- call(t.Context(), c) }()
		until(t, what+" is turned away", func() bool { return strings.Count(s.log.String(), "cannot relay") > failures })
		n.fenced.Store(false)
		if err := <-out; err != nil {
			t.Errorf("%s: got %v, want no error", what, err)
		}
	}
	// In the middle of the call.
	n.interrupt(func() {})
	again("ExistKey", do(func(g *mooncake.Generation) mooncake.Call[mooncake.Result[bool]] { return g.ExistKey }, mooncake.Args{Key: "a"}))
	n.interrupt(func() {})
	again("Remove", do(func(g *mooncake.Generation) mooncake.Call[mooncake.Done] { return g.Remove }, mooncake.Args{Key: "b"}))
	n.interrupt(func() {})
	again("BatchRemove", do(func(g *mooncake.Generation) mooncake.Call[[]mooncake.Done] {
		return g.BatchRemove
	},
		mooncake.Args{Keys: []string{"b", "c"}}))
	// Before it.
	n.pause.Store(nil)
	n.fenced.Store(true)
	again("NotifyOffloadSuccess", do(func(g *mooncake.Generation) mooncake.Call[mooncake.Done] {
		return g.NotifyOffloadSuccess
	},
		mooncake.Args{
			Client: client(1), Tasks: []mooncake.OffloadTask{{Key: "a", Size: 100}}, Objects: []mooncake.OffloadedObject{{DataSize: 100, Endpoint: "ssd:1"}},
		}))
	n.fenced.Store(true)
	again("RemoveAll", do(func(g *mooncake.Generation) mooncake.Call[int64] { return g.RemoveAll }, mooncake.Args{Force: true}))
}

// While the primary refuses connections its relays do not all ask it all the
// time. When another one serves they are answered.
func TestRelaysWaitTogether(t *testing.T) {
	s, n := standby(t, true), primary(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dialed, closed := make(chan struct{}, 1000), make(chan struct{})
	go func() {
		defer close(closed)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
			dialed <- struct{}{}
		}
	}()
	s.gate.SetHint(service.Hint{RPC: l.Addr().String()})
	const clients = 20
	answered := make(chan error, clients)
	for range clients {
		c := s.dial(t, "head")
		go func() {
			var r mooncake.Result[bool]
			_, err := mooncakeclient.Do(t.Context(), c, c.Generation.ExistKey, &mooncake.Args{Key: "a"}, &r)
			answered <- err
		}()
	}
	// Each client may try once before anybody knows. Then there is one attempt
	// after each pause: of 20 ms, 40 ms and so on to 500 ms, at least half of that.
	dials, began := 0, time.Now()
	for measured := time.After(600 * time.Millisecond); measured != nil; {
		select {
		case <-dialed:
			dials++
		case <-measured:
			measured = nil
		}
	}
	took := time.Since(began) // more on a busy machine
	if most := clients + 8 + int((took-600*time.Millisecond)/(250*time.Millisecond)); dials > most {
		t.Errorf("%d attempts within %v, want at most %d: one for each of %d clients and a few", dials, took, most, clients)
	}
	s.gate.SetHint(service.Hint{RPC: n.address["head"]})
	for range clients {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	l.Close()
	<-closed
	if log := s.log.String(); strings.Count(log, "cannot relay") != 1 || !strings.Contains(log, l.Addr().String()) {
		t.Errorf("the log is %s; want one line, with the primary's address", log)
	}
}

// A node that does not serve says so to a relay before any request.
func TestRelayOfANodeThatDoesNotServe(t *testing.T) {
	n, fenced := standby(t, true), primary(t)
	fenced.fenced.Store(true)
	name := "head"
	generation := structpack.Pack(new(structpack.Writer), nil, structpack.NewMessage(structpack.Text), &name)
	for _, at := range []*node{n, fenced} {
		var refused *coro.Error
		if _, _, err := at.dial(t, name).Call(t.Context(), mooncakeserver.SelectGeneration(), raw(generation)); !errors.As(err, &refused) ||
			refused.Code != mooncakeserver.CodeNotServing {
			t.Errorf("got %v, want that the node does not serve", err)
		}
	}
}

// A node that serves once more has closed the connections of its earlier term: a
// relay makes new ones, and no client's call is lost.
func TestRelayToALaterTerm(t *testing.T) {
	s, n := standby(t, true), primary(t)
	s.gate.SetHint(service.Hint{Term: 1, RPC: n.address["head"]})
	c := s.dial(t, "head")
	put(t, c, 7, "a")
	for _, srv := range n.servers {
		srv.Disconnect()
	}
	s.gate.SetHint(service.Hint{Term: 2, RPC: n.address["head"]})
	if r := ask(t, c, c.Generation.ExistKey, mooncake.Args{Key: "a"}); !r.Value {
		t.Errorf("ExistKey: got %+v, want that it exists", r)
	}
}

// The log names the primary whose answers are lost, does not blame the clients,
// and is not flooded.
func TestRelaysLogWhatTheyLose(t *testing.T) {
	s, n := standby(t, true), primary(t)
	s.gate.SetHint(service.Hint{RPC: n.address["head"]})
	began, goOn := make(chan struct{}, 30), make(chan struct{})
	pause := func() { began <- struct{}{}; <-goOn }
	n.pause.Store(&pause)
	const clients = 20
	failed := make(chan error, clients)
	for range clients {
		c := s.dial(t, "head")
		go func() {
			var r []mooncake.Done // each of these calls has a goroutine
			_, err := mooncakeclient.Do(t.Context(), c, c.Generation.BatchRemove, &mooncake.Args{Keys: []string{"a"}}, &r)
			failed <- err
		}()
	}
	for range clients {
		<-began
	}
	for _, srv := range n.servers { // the primary dies
		srv.Disconnect()
	}
	for range clients {
		if err := <-failed; err == nil {
			t.Error("a relayed call when the primary dies: got an answer, want an error")
		}
	}
	close(goOn)
	log := s.log.String()
	if got := strings.Count(log, "got no answer"); got < 1 || got > 10 {
		t.Errorf("%d lines about %d calls: %s, want 1 to 10", got, clients, log)
	}
	for _, want := range []string{n.address["head"], `"function":"BatchRemove"`, "EOF"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log of lost relays: got %s, want %s in it", log, want)
		}
	}
	if strings.Contains(log, "does not speak as") {
		t.Errorf("the log of lost relays: got %s, want no blame on clients", log)
	}
}

// A client that waited in vain is logged, with the reason.
func TestNobodyServes(t *testing.T) {
	s := standby(t, true)
	s.front.SetDeadline(2 * time.Second) // for which the primary's refusal must be there, too
	for _, hint := range []string{"", "127.0.0.1:1"} {
		s.gate.SetHint(service.Hint{RPC: hint})
		c := s.dial(t, "head")
		var refused *coro.Error
		if err := fails(t, c, c.Generation.ExistKey, mooncake.Args{Key: "a"}); errors.As(err, &refused) {
			t.Error(err)
		}
	}
	log := s.log.String()
	if strings.Count(log, "no node has served for 2s") != 2 || !strings.Contains(log, `"primary":"127.0.0.1:1","client":"127.0.0.1:`) ||
		!strings.Contains(log, "connection refused") || strings.Contains(log, "does not speak as") {
		t.Errorf("the log is %s; want the refused connection, and no client blamed", log)
	}
}

// A relay passes on what the primary answers, however large that is.
func TestRelayOfALargeAnswer(t *testing.T) {
	s, n := standby(t, true), primary(t)
	s.gate.SetHint(service.Hint{RPC: n.address["head"]})
	c := n.dial(t, "head")
	const segments, items = 8, 3_000
	putLong(t, c, segments, "a")
	get := c.Generation.BatchGetReplicaList
	keys := raw(structpack.Pack(new(structpack.Writer), nil, get.Args, &mooncake.Args{Keys: slices.Repeat([]string{"a"}, items)}))
	answer, _, err := c.Call(t.Context(), get.ID, keys)
	if err != nil || len(answer) < items*segments*metadata.MaxNameBytes {
		t.Fatalf("%d bytes, %v; want more", len(answer), err)
	}
	if relayed, _, err := s.dial(t, "head").Call(t.Context(), get.ID, keys); err != nil || relayed != answer {
		t.Errorf("%d bytes of %d, %v; the log is %s; want the same answer", len(relayed), len(answer), err, s.log.String())
	}
}
