package kvpublisher_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/rs/zerolog"
	"github.com/tinylib/msgp/msgp"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/internal/mooncake/kvpublisher"
	"github.com/understudy-store/understudy/internal/service/kvevents"
	"github.com/understudy-store/understudy/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a publisher of a feed that the test fills.
type rig struct {
	*kvpublisher.Publisher
	t     *testing.T
	feed  *kvevents.Feed
	store *metadata.Store
	term  metadata.Term
	seq   metadata.Seq

	tenants []string
}

func newRig(t *testing.T, capacity int, change ...func(*kvpublisher.Config)) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, feed: kvevents.New(capacity, func() string { return "h" }), store: metadata.New(metadata.Options{}), term: 1}
	c := kvpublisher.Config{
		Listener: l, Feed: r.feed, Tenants: func() []string { return r.tenants }, Allow: func(netip.Addr) bool { return true }, Log: zerolog.Nop(),
		Wall:   func() time.Time { return time.UnixMilli(1234) },
		Format: kvpublisher.Format{BackendID: "store", ObjectKey: true, Legacy: true},
	}
	for _, f := range change {
		f(&c)
	}
	r.Publisher = kvpublisher.New(c)
	r.background(r.Run)
	r.commit()
	return r
}

// background runs something until the test ends or stop is called.
func (r *rig) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); ctx.Err() == nil {
			r.t.Errorf("background work: got its end with error %v, want it to go on until it is stopped", err)
		}
	}()
	stop = func() { cancel(); <-ended }
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) publish() (stop func()) {
	term := r.term
	return r.background(func(ctx context.Context) error { return r.Publish(ctx, term) })
}

func (r *rig) commit(seen ...metadata.MediaChange) {
	r.seq++
	for i := range seen {
		r.feed.MediaChanged(r.store, r.seq, &seen[i])
	}
	r.feed.Applied(r.store, r.term, r.seq, false)
}

func came(key string) metadata.MediaChange {
	return metadata.MediaChange{Tenant: "default", Key: key, After: metadata.InMemory}
}

// subscribe connects with the Go library of ZeroMQ, and waits until that has effect.
func (r *rig) subscribe(others int) zmq4.Socket {
	r.t.Helper()
	sub := zmq4.NewSub(r.t.Context(), zmq4.WithAutomaticReconnect(false))
	r.t.Cleanup(func() { _ = sub.Close() })
	if err := sub.Dial("tcp://" + r.Listener.Addr().String()); err != nil {
		r.t.Fatal(err)
	}
	if err := sub.SetOption(zmq4.OptionSubscribe, ""); err != nil {
		r.t.Fatal(err)
	}
	r.until("a subscriber is there", func() bool { return r.Subscribed() == others+1 })
	return sub
}

func (r *rig) until(what string, so func() bool) {
	r.t.Helper()
	for deadline := time.After(20 * time.Second); !so(); {
		select {
		case <-deadline:
			r.t.Fatalf("after 20 s: got no change, want that %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// A batch is what a subscriber got.
type batch struct {
	number uint64
	millis int64
	events []map[string]any
}

func (r *rig) receive(sub zmq4.Socket) (b batch) {
	r.t.Helper()
	msg, err := sub.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	if len(msg.Frames) != 3 || len(msg.Frames[0]) != 0 || len(msg.Frames[1]) != 8 {
		r.t.Fatalf("frames %q, want an empty topic, a number of 8 bytes and a payload", msg.Frames)
	}
	b.number = binary.BigEndian.Uint64(msg.Frames[1])
	payload, rest, err := msgp.ReadIntfBytes(msg.Frames[2])
	if err != nil || len(rest) > 0 {
		r.t.Fatalf("payload %q: got error %v, rest %q, want MessagePack and no rest", msg.Frames[2], err, rest)
	}
	parts := payload.([]any)
	if len(parts) != 3 || fmt.Sprint(parts[2]) != "0" {
		r.t.Fatalf("the payload is %v, want a time, events and the rank 0", parts)
	}
	b.millis = parts[0].(int64)
	for _, e := range parts[1].([]any) {
		b.events = append(b.events, e.(map[string]any))
	}
	return b
}

// text shows an event with its fields in order.
func text(event map[string]any) string {
	var fields []string
	for name, value := range event {
		fields = append(fields, fmt.Sprintf("%s=%v", name, value))
	}
	slices.Sort(fields)
	return strings.Join(fields, " ")
}

const (
	termOne = 1 << 32
	unknown = "additional_salt=<nil> "
)

// A subscriber with another implementation of ZeroMQ gets Mooncake's events: numbered
// batches, the fields of RFC #1527, and vLLM's names of them.
func TestEventsOverZeroMQ(t *testing.T) {
	r := newRig(t, 100)
	sub := r.subscribe(0)
	r.publish()
	first := r.receive(sub)
	if len(first.events) != 1 || first.events[0]["event_type"] != "cleared" || first.events[0]["type"] != "AllBlocksCleared" || first.number != termOne+1 {
		t.Errorf("a publisher that knows of nothing before begins with %+v, want batch %d, which clears everything", first, termOne+1)
	}
	r.commit(came("42"), metadata.MediaChange{Tenant: "default", Key: "a/b", Group: "g", After: metadata.InMemory | metadata.OnDisk})
	got := r.receive(sub)
	if got.number != termOne+2 || got.millis != 1234 {
		t.Errorf("batch %d at %d, want %d at 1234", got.number, got.millis, termOne+2)
	}
	for i, want := range []string{
		unknown + "backend_id=store base_block_idx=0 block_hashes=[42] block_size=<nil> dp_rank=<nil> event_id=4294967298 event_type=stored group_id=<nil> lora_name=<nil> medium=cpu " +
			"model_name=<nil> object_key=42 parent_block_hash=<nil> parent_hash=<nil> seq_hashes=[42] tenant_id=default timestamp=1234 token_ids=<nil> type=BlockStored",
		unknown + "backend_id=store base_block_idx=0 block_hashes=[] block_size=<nil> dp_rank=<nil> event_id=4294967299 event_type=stored group_id=g lora_name=<nil> medium=cpu " +
			"model_name=<nil> object_key=a/b parent_block_hash=<nil> parent_hash=<nil> seq_hashes=[] tenant_id=default timestamp=1234 token_ids=<nil> type=BlockStored",
		unknown + "backend_id=store base_block_idx=0 block_hashes=[] block_size=<nil> dp_rank=<nil> event_id=4294967300 event_type=stored group_id=g lora_name=<nil> medium=disk " +
			"model_name=<nil> object_key=a/b parent_block_hash=<nil> parent_hash=<nil> seq_hashes=[] tenant_id=default timestamp=1234 token_ids=<nil> type=BlockStored",
	} {
		if i >= len(got.events) || text(got.events[i]) != want {
			t.Errorf("event %d of %v\nwant %s", i, got.events, want)
		}
	}
	r.commit(metadata.MediaChange{Tenant: "default", Key: "0x2A", Before: metadata.InMemory, Evicted: true})
	want := unknown + "backend_id=store base_block_idx=<nil> block_hashes=[42] block_size=<nil> dp_rank=<nil> event_id=4294967301 event_type=removed group_id=<nil> lora_name=<nil> medium=cpu " +
		"model_name=<nil> object_key=0x2A seq_hashes=[42] tenant_id=default timestamp=1234 type=BlockRemoved"
	if got := r.receive(sub); len(got.events) != 1 || text(got.events[0]) != want {
		t.Errorf("got %v\nwant %s", got.events, want)
	}
	if got, want := r.Status(), (kvpublisher.Status{Enabled: true, Batches: 3, Events: 5, Unparsed: 2}); got != want {
		t.Errorf("the status is %+v, want %+v", got, want)
	}
}

// Without keys and the names of vLLM, only what is a hash is published.
func TestHashesOnly(t *testing.T) {
	r := newRig(t, 100, func(c *kvpublisher.Config) { c.Format = kvpublisher.Format{BackendID: "b"} })
	sub := r.subscribe(0)
	r.publish()
	r.receive(sub)
	r.commit(came("name"), came("18446744073709551615"), came("+1"), came("0x"), came("18446744073709551616"))
	want := unknown + "backend_id=b base_block_idx=0 block_size=<nil> dp_rank=<nil> event_id=4294967298 event_type=stored group_id=<nil> lora_name=<nil> medium=cpu " +
		"model_name=<nil> parent_hash=<nil> seq_hashes=[18446744073709551615] tenant_id=default timestamp=1234 token_ids=<nil>"
	if got := r.receive(sub); len(got.events) != 1 || text(got.events[0]) != want {
		t.Errorf("got %v\nwant %s", got.events, want)
	}
	if got := r.Status().Unparsed; got != 4 {
		t.Errorf("%d keys are no hashes, want 4", got)
	}
}

// The next term's numbers leave a gap, and what may not have been published comes again.
// If too little is kept for that, everything is cleared first.
func TestTermsAndLosses(t *testing.T) {
	r := newRig(t, 4)
	sub := r.subscribe(0)
	stop := r.publish()
	r.receive(sub)
	for i := range 6 {
		r.commit(came(fmt.Sprint(i)))
		r.receive(sub)
	}
	stop()
	r.term = 2
	r.commit()
	stop = r.publish()
	got := r.receive(sub)
	if got.number != 2<<32+1 || len(got.events) != 4 || got.events[0]["object_key"] != "2" {
		t.Errorf("the next term begins with batch %d of %v, want the 4 events that are kept, as batch %d", got.number, got.events, uint64(2<<32+1))
	}
	stop()
	r.term, r.store, r.tenants = 3, metadata.New(metadata.Options{}), []string{"default", "empty"} // a snapshot replaced the state
	r.commit()
	r.publish()
	if got := r.receive(sub); len(got.events) != 2 || got.events[0]["event_type"] != "cleared" || got.events[1]["event_type"] != "cleared" || got.events[1]["tenant_id"] != "empty" {
		t.Errorf("a term of which nothing before is known begins with %v, want everything cleared, also of a tenant without keys", got.events)
	}
	r.commit(metadata.MediaChange{Tenant: "other", Key: "k", After: metadata.InMemory})
	if got := r.receive(sub); len(got.events) != 2 || got.events[0]["event_type"] != "cleared" || got.events[0]["tenant_id"] != "other" {
		t.Errorf("the first event of another tenant: %v, want its keys cleared before", got.events)
	}
}

// raw connects without a library: it greets, subscribes, and reads nothing.
func (r *rig) raw(frame string) net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	greeting := "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 48)
	ready := "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB"
	if _, err := io.WriteString(conn, greeting+ready+frame); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// A subscriber that does not read is disconnected; the others get everything.
func TestSlowSubscriber(t *testing.T) {
	r := newRig(t, 1<<12, func(c *kvpublisher.Config) { c.HoldBytes = 1 << 20 })
	r.raw("\x00\x01\x01")
	r.until("the slow one has subscribed", func() bool { return r.Subscribed() == 1 })
	quick := r.subscribe(1)
	r.publish()
	last := r.receive(quick).number
	for i := 0; r.Status().Dropped == 0; i++ {
		r.commit(came(fmt.Sprint(i, strings.Repeat("k", 60<<10))))
		b := r.receive(quick)
		if last++; b.number != last {
			t.Fatalf("batch %d for the quick one, want %d", b.number, last)
		}
		if i == 1000 {
			t.Fatalf("a subscriber that does not read: got %d batches of 60 KiB held for it, want it dropped", i)
		}
	}
	r.until("only the quick one is left", func() bool { return r.Subscribed() == 1 })
}

// Peers that speak something else, or announce what nobody would send, are disconnected.
func TestHostilePeers(t *testing.T) {
	r := newRig(t, 10)
	for what, frame := range map[string]string{
		"a frame of 2^62 bytes": "\x02\x40\x00\x00\x00\x00\x00\x00\x00",
		"a frame of 2 KiB":      "\x02\x00\x00\x00\x00\x00\x00\x08\x00",
	} {
		conn := r.raw(frame)
		if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v, want the connection closed", what, err)
		}
	}
	conn, err := net.Dial("tcp", r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n"+strings.Repeat("x", 64)+"\r\n\r\n")
	if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("a peer that speaks HTTP: %v, want the connection closed", err)
	}
	if r.subscribe(0); r.Subscribed() != 1 {
		t.Errorf("a subscriber after all those peers: got %d served, want 1", r.Subscribed())
	}
}

// Who may not use Mooncake's protocol gets no events.
func TestForeignAddresses(t *testing.T) {
	r := newRig(t, 10, func(c *kvpublisher.Config) { c.Allow = func(a netip.Addr) bool { return !a.IsLoopback() } })
	if got, err := io.ReadAll(r.raw("")); len(got) != 0 {
		t.Errorf("an address that is not allowed got %q, %v; want a closed connection", got, err)
	}
}

// One host leaves half of the places to others, and gets its own back.
func TestSubscribersOfOneHost(t *testing.T) {
	r := newRig(t, 100)
	const half = 128
	var conns []net.Conn
	for range half {
		conns = append(conns, r.raw("\x00\x01\x01"))
	}
	r.until("half have subscribed", func() bool { return r.Subscribed() == half })
	conn, err := net.Dial("tcp", r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := io.Copy(io.Discard, conn); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one too many: it got %d bytes, %v; want an end at once", n, err)
	}
	_ = conns[0].Close()
	r.until("one has gone", func() bool { return r.Subscribed() == half-1 })
	r.subscribe(half - 1)
}
