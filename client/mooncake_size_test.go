package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

// A request that is too large for any node is refused in the same way over both protocols, at
// once and without closing the connection.
func TestTooLargeOverMooncake(t *testing.T) {
	cl := newCluster(t, 1)
	link := newLink(t, cl.lead(0).port("head", false).address)
	const most = 1 << 20
	w := new(witness)
	c := overMooncake(t, func(c *client.Config) { c.MaxMessageBytes, c.Observer = most, w }, link.address)
	numbered := connect(t, client.Config{Addresses: []string{cl.nodes[0].address}, MaxMessageBytes: most})
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("%04d%s", i, strings.Repeat("k", 2000))
	}
	items := make([]client.PutItem, len(keys))
	for i, key := range keys {
		items[i] = client.PutItem{Key: key, Size: 1}
	}
	for _, c := range []*client.Client{numbered, c} {
		_, reading := c.BatchExistKey(t.Context(), keys)
		_, putting := c.BatchPutStart(t.Context(), items, client.PutConfig{})
		for _, err := range []error{reading, putting} {
			if errs.KindOf(err) != errs.InvalidParams || !strings.Contains(err.Error(), "at most 1048576 are possible; split it") {
				t.Errorf("got %.300v, want InvalidParams and \"at most 1048576 are possible; split it\"", err)
			}
			if c != numbered && w.last().attempts != 1 {
				t.Errorf("%d attempts, want 1", w.last().attempts)
			}
		}
		if _, err := c.BatchExistKey(t.Context(), keys[:500]); err != nil {
			t.Errorf("half of it: got %v, want no error", err)
		}
	}
	link.mu.Lock()
	defer link.mu.Unlock()
	// A refusal that breaks its connection makes three. A second one is for the question
	// whether the leader still leads, which is asked while a slow machine is at a call.
	if n := len(link.conns) / 2; n > 2 {
		t.Errorf("%d connections, want 1 or 2", n)
	}
}

// Answers may have any number of objects.
func TestLargeAnswersOverMooncake(t *testing.T) {
	const objects, batch = 70_000, 10_000
	cl := newCluster(t, 1)
	w := new(witness)
	c := overMooncake(t, func(c *client.Config) { c.Observer = w }, cl.lead(0).port("head", false).address)
	mountMemory(t, c)
	for b := range objects / batch {
		items, refs := make([]client.PutItem, batch), make([]client.PutRef, batch)
		for i := range items {
			items[i] = client.PutItem{Key: fmt.Sprintf("k%d-%d", b, i), Size: 1}
		}
		reserved, err := c.BatchPutStart(t.Context(), items, client.PutConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range reserved {
			refs[i] = reserved[i].Ref()
		}
		if _, err := c.BatchPutEnd(t.Context(), refs, client.SelectAll); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range c.GetReplicaListByRegex(t.Context(), "^k", 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != objects || w.last().attempts != 1 {
		t.Errorf("%d objects in %d attempts, want %d objects in 1 attempt", n, w.last().attempts, objects)
	}
}

// A babbler answers ServiceReady and Ping, and sends unreadable answers to all other calls.
type babbler struct{ generation *mooncake.Generation }

func (b *babbler) Quick(uint32) bool { return true }
func (b *babbler) Delivered(int)     {}
func (b *babbler) Close()            {}

func (b *babbler) Call(_ context.Context, function uint32, _ string, reply []byte) ([]byte, error) {
	g := b.generation
	switch function {
	case g.ServiceReady.ID:
		return structpack.Pack(new(structpack.Writer), reply, g.ServiceReady.Result, &mooncake.Result[string]{Value: "2.0.0"}), nil
	case g.Ping.ID:
		return structpack.Pack(new(structpack.Writer), reply, g.Ping.Result, &mooncake.Result[mooncake.PingResult]{Value: mooncake.PingResult{View: 1}}), nil
	}
	return append(reply, "babble"...), nil
}

// The client does not repeat a call with an unreadable answer, since the next one would be
// unreadable as well. The outcome of a mutation is then open.
func TestUnreadableAnswersOverMooncake(t *testing.T) {
	g, _ := mooncake.NewGeneration("head")
	p := servePort(t, coro.NewServer(&coro.Server{Open: func(*coro.Conn) coro.Handler { return &babbler{g} }}))
	w := new(witness)
	c := overMooncake(t, func(c *client.Config) { c.Observer, c.Timeout = w, 20*time.Second }, p.address)
	_, reading := c.ExistKey(t.Context(), "k")
	wantKind(t, "a read", reading, errs.Internal)
	once := func(what string) {
		t.Helper()
		if got := w.last(); got.attempts != 1 {
			t.Errorf("%s: got %d attempts, want 1", what, got.attempts)
		}
	}
	once("a read")
	wantKind(t, "a removal", c.Remove(t.Context(), "k", client.Removal{}), errs.Unresolved)
	once("a removal")
	wantKind(t, "the end of a put", c.PutEnd(t.Context(), client.PutRef{Key: "k", ID: 1}, client.SelectAll), errs.Unresolved)
	once("the end of a put")
	_, removing := c.BatchRemove(t.Context(), []string{"k"}, client.Removal{})
	wantKind(t, "a batch", removing, errs.Unresolved)
	once("a batch")
}
