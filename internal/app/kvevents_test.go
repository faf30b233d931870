package app

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/tinylib/msgp/msgp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/promote"
)

func withKVEvents(role promote.Role, id string, etcd []string, capacity int) config.Config {
	c := settings(role, id, etcd)
	c.KVEvents.Enabled, c.KVEvents.Capacity, c.KVEvents.Endpoint = true, capacity, "tcp://127.0.0.1:0"
	return c
}

// A subscriber follows the KV events of one node.
type subscriber struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[pb.KvEventsResponse]
	after  *pb.KvPosition // of what it has read
}

func subscribe(m *member, after *pb.KvPosition) *subscriber {
	m.t.Helper()
	conn, err := grpc.NewClient(m.RPCAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	stream, err := pb.NewObjectServiceClient(conn).KvEvents(m.t.Context(), &pb.KvEventsRequest{After: after})
	if err != nil {
		m.t.Fatal(err)
	}
	return &subscriber{m.t, stream, after}
}

// read reads until it has got an event about a key, and where to go on from with it: after a
// resync that is when all keys that there are have come. A resync is shown as RESYNC.
func (s *subscriber) read(until string) (got []string) {
	s.t.Helper()
	for found := until == ""; ; {
		r, err := s.stream.Recv()
		if err != nil {
			s.t.Fatalf("after %q: %v; want an event of %q", got, err, until)
		}
		if r.GetResync() {
			got = append(got, "RESYNC")
		}
		for _, e := range r.GetEvents() {
			got = append(got, strings.TrimPrefix(e.GetType().String(), "KV_EVENT_TYPE_")+" "+e.GetKey())
			found = found || e.GetKey() == until
		}
		if s.after = r.GetThrough(); found && s.after.GetSequence() > 0 {
			return got
		}
	}
}

// Over a handover a subscriber goes on with the next primary and misses nothing; only
// the primary sends events.
func TestKVEventsOverAHandover(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, withKVEvents(config.Primary, "a", etcd, 1000))
	a.serves()
	b := run(t, withKVEvents(config.Standby, "b", etcd, 1000))
	b.promotable()
	cl := writer(t, client.Config{EtcdEndpoints: etcd})
	router := newRouter(t, a, b)

	s := subscribe(a, nil)
	if got := s.read(""); !slices.Equal(got, []string{"RESYNC"}) {
		t.Errorf("a subscriber without a position gets %q, want RESYNC", got)
	}
	put(t, cl, "k1")
	if got := s.read("k1"); !slices.Equal(got, []string{"STORED k1"}) {
		t.Errorf("got %q, want STORED k1", got)
	}
	if _, err := subscribe(b, nil).stream.Recv(); kindOf(err) != errs.NotLeader {
		t.Errorf("a standby: %v, want NotLeader", err)
	}
	put(t, cl, "k2") // nobody has read it when the primary changes
	a.knows(1)
	if _, err := a.admin.Handover(t.Context(), &pb.HandoverRequest{Term: 1}); err != nil {
		t.Fatal(err)
	}
	b.serves()
	if err := cl.Remove(t.Context(), "k1", client.Removal{Force: true}); err != nil {
		t.Fatal(err)
	}
	put(t, cl, "k3")
	next := subscribe(b, s.after)
	if got := next.read("k3"); !slices.Equal(got, []string{"STORED k2", "REMOVED k1", "STORED k3"}) {
		t.Errorf("from the next primary: got %q, want k2 stored, k1 removed, k3 stored: all since the last one read", got)
	}
	for {
		if _, err := s.stream.Recv(); err != nil {
			if kindOf(err) != errs.NotLeader {
				t.Errorf("the old primary's stream ends with %v, want NotLeader", err)
			}
			break
		}
	}
	router.until("k2", "k3")
	b.kvStatus(`"enabled":true,"published_batches":`)
}

// The Go client goes on by itself: over a handover without a resync, with no event left
// out, and a second client from the position of the first.
func TestClientFollowsKeysOverAHandover(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, withKVEvents(config.Primary, "a", etcd, 1000))
	a.serves()
	b := run(t, withKVEvents(config.Standby, "b", etcd, 1000))
	b.promotable()
	cl := writer(t, client.Config{Addresses: []string{a.RPCAddress(), b.RPCAddress()}})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	next, end := iter.Pull2(cl.KeyEvents(ctx, client.KeyPosition{}))
	defer end()
	var at client.KeyPosition
	until := func(key string) (got []string) {
		for !slices.Contains(got, "STORED "+key) || at == (client.KeyPosition{}) {
			u, err, ok := next()
			if err != nil || !ok {
				t.Fatalf("after %q: %v, %v; want an event of %s", got, err, ok, key)
			}
			if at = u.After; u.Resync {
				got = append(got, "RESYNC")
			}
			for _, e := range u.Events {
				got = append(got, strings.TrimPrefix(pb.KvEventType(e.Type).String(), "KV_EVENT_TYPE_")+" "+e.Key)
			}
		}
		return got
	}
	put(t, cl, "k1")
	if got := until("k1"); !slices.Equal(got, []string{"RESYNC", "STORED k1"}) {
		t.Errorf("got %q, want RESYNC and STORED k1", got)
	}
	behind := at
	a.knows(1)
	if _, err := a.admin.Handover(t.Context(), &pb.HandoverRequest{Term: 1}); err != nil {
		t.Fatal(err)
	}
	put(t, cl, "k2")
	if got := until("k2"); !slices.Equal(got, []string{"STORED k2"}) {
		t.Errorf("over the handover: got %q, want STORED k2 alone", got)
	}
	for u, err := range cl.KeyEvents(ctx, behind) {
		if err != nil || u.Resync {
			t.Fatalf("from a position of the term before: %v, %v; want no resync", u, err)
		}
		if len(u.Events) > 0 {
			if u.Events[0].Key != "k2" || u.Events[0].Type != client.KeyStored || !u.Events[0].InMemory {
				t.Errorf("got %+v, want k2", u.Events[0])
			}
			break
		}
	}
	for u, err := range cl.KeyEvents(ctx, client.KeyPosition{History: "another", Term: 1, Sequence: 1}) {
		if err != nil || !u.Resync {
			t.Errorf("from another journal: %v, %v; want a resync", u, err)
		}
		break
	}
	stop()
	for {
		if _, err, ok := next(); err != nil || !ok {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("at the end: %v, want that of the context", err)
			}
			break
		}
	}
}

// kvStatus demands an answer of /kv_events/status that begins with a text.
func (m *member) kvStatus(want string) {
	m.t.Helper()
	resp, err := http.Get("http://" + m.cfg.Node.HTTPAddress + "/kv_events/status")
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), want) {
		m.t.Errorf("/kv_events/status is %s, want %s", body, want)
	}
}

// Behind what is kept a subscriber begins anew, with all keys that there are.
func TestKVEventsPastRetention(t *testing.T) {
	a := run(t, withKVEvents(config.Primary, "a", nil, 4))
	a.serves()
	cl := writer(t, client.Config{Addresses: []string{a.RPCAddress()}})
	s := subscribe(a, nil)
	s.read("")
	put(t, cl, "gone")
	s.read("gone")
	if err := cl.Remove(t.Context(), "gone", client.Removal{Force: true}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"k1", "k2", "k3", "k4"} {
		put(t, cl, key)
	}
	again := subscribe(a, s.after)
	got := again.read("k4")
	if len(got) == 5 {
		slices.Sort(got[1:])
	}
	if want := []string{"RESYNC", "STORED k1", "STORED k2", "STORED k3", "STORED k4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Nodes without --enable_kv_events say which setting it takes.
func TestNoKVEvents(t *testing.T) {
	a := run(t, settings(config.Primary, "a", nil))
	a.serves()
	if _, err := subscribe(a, nil).stream.Recv(); kindOf(err) != errs.NotSupported || !strings.Contains(err.Error(), "--enable_kv_events") {
		t.Errorf("got %v, want NotSupported and --enable_kv_events", err)
	}
	a.kvStatus(`"enabled":false`)
	cl := writer(t, client.Config{Addresses: []string{a.RPCAddress()}})
	for _, err := range cl.KeyEvents(t.Context(), client.KeyPosition{}) {
		if errs.KindOf(err) != errs.NotSupported {
			t.Errorf("the client: %v, want NotSupported", err)
		}
	}
}

// A router keeps the keys in memory as Mooncake's events over ZeroMQ tell them, from
// whichever node publishes.
type router struct {
	t    *testing.T
	keys chan map[string]bool
}

func newRouter(t *testing.T, nodes ...*member) *router {
	r := &router{t, make(chan map[string]bool, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	sub := zmq4.NewSub(ctx, zmq4.WithAutomaticReconnect(false))
	for _, m := range nodes {
		if err := sub.Dial("tcp://" + m.kv.listener.Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	if err := sub.SetOption(zmq4.OptionSubscribe, ""); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		keys := map[string]bool{}
		for {
			msg, err := sub.Recv()
			if err != nil {
				return
			}
			payload, _, err := msgp.ReadIntfBytes(msg.Frames[2])
			if err != nil {
				t.Errorf("the payload %q: got error %v, want MessagePack", msg.Frames[2], err)
				return
			}
			for _, e := range payload.([]any)[1].([]any) {
				event := e.(map[string]any)
				key, _ := event["object_key"].(string)
				switch event["event_type"] {
				case "cleared":
					clear(keys)
				case "stored":
					keys[key] = true
				case "removed":
					delete(keys, key)
				}
			}
			select {
			case r.keys <- maps.Clone(keys):
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); _ = sub.Close(); <-ended })
	return r
}

// until waits until the router knows just these keys.
func (r *router) until(want ...string) {
	r.t.Helper()
	deadline := time.After(20 * time.Second)
	var got []string
	for !slices.Equal(got, want) {
		select {
		case keys := <-r.keys:
			got = slices.Sorted(maps.Keys(keys))
		case <-deadline:
			r.t.Fatalf("the router knows %q, want %q", got, want)
		}
	}
}
