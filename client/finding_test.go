package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
)

// A witness is an observer that remembers.
type witness struct {
	mu      sync.Mutex
	calls   []observed
	leaders []client.Leader
	mounts  []error // of remounts
	lent    []int   // segments of each
}

type observed struct {
	method   string
	attempts int
	kind     errs.Kind
	took     time.Duration
}

func (w *witness) Call(method string, attempts int, kind errs.Kind, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, observed{method, attempts, kind, took})
}

func (w *witness) LeaderChanged(l client.Leader) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaders = append(w.leaders, l)
}

func (w *witness) Remounted(segments int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lent = append(w.lent, segments)
	w.mounts = append(w.mounts, err)
}

func (w *witness) last() observed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[len(w.calls)-1]
}

func (w *witness) led() []client.Leader {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]client.Leader(nil), w.leaders...)
}

// found waits until there were so many leaders, and returns them. A call may
// end before its observer is called with who answered it.
func (w *witness) found(t testing.TB, n int) []client.Leader {
	t.Helper()
	within(t, "the leaders", func() bool { return len(w.led()) >= n })
	return w.led()
}

func (w *witness) remounted() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]error(nil), w.mounts...)
}

func soon(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestFindsTheLeader(t *testing.T) {
	cl := newCluster(t, 3)
	n := cl.lead(1)
	for name, addresses := range map[string][]string{
		"in a list":                 cl.addresses(),
		"by a hint":                 {cl.nodes[0].address},
		"with dead ones":            {"127.0.0.1:1", n.address},
		"by a hint, with dead ones": {"127.0.0.1:1", cl.nodes[2].address},
	} {
		w := new(witness)
		c := connect(t, client.Config{Addresses: addresses, Observer: w})
		exists, err := c.ExistKey(soon(t, 30*time.Second), "k")
		if exists || err != nil {
			t.Errorf("%s: got %v, %v; want false and no error", name, exists, err)
		}
		if led := w.found(t, 1); len(led) != 1 || led[0] != (client.Leader{Address: n.address, NodeID: "node-1", Term: 1}) {
			t.Errorf("%s: found %+v; want node-1 at %s in term 1, once", name, led, n.address)
		}
		if got := w.last(); got.method != "ExistKey" || got.attempts != 1 || got.kind != errs.OK || got.took <= 0 {
			t.Errorf("%s: observed %+v; want one attempt of ExistKey that went well", name, got)
		}
	}
}

// A call waits for a primary, and goes on at the next one, until its own deadline.
func TestWaitsForALeader(t *testing.T) {
	cl := newCluster(t, 2)
	w := new(witness)
	c := connect(t, client.Config{Addresses: cl.addresses(), Observer: w})
	var err error
	within(t, "a call that says whom it asked", func() bool { // a busy machine may need more than one
		_, err = c.ExistKey(soon(t, 100*time.Millisecond), "k")
		return err == nil || strings.Contains(err.Error(), cl.nodes[0].address)
	})
	wantKind(t, "nobody serves", err, errs.Unavailable)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not say why: want the deadline", err)
	}
	if got := w.last(); got.kind != errs.Unavailable || got.attempts != 0 || got.took < 50*time.Millisecond || got.took > 20*time.Second {
		t.Errorf("observed %+v; want Unavailable after no attempt, within 50 ms to 20 s", got)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = c.ExistKey(canceled, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is given up: got %v, want context.Canceled", err)
	}

	done := make(chan error, 1)
	go func() {
		_, err := c.ExistKey(context.Background(), "k")
		done <- err
	}()
	within(t, "asking again", func() bool { return cl.nodes[1].asked.Load() > 5 })
	cl.lead(1)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTimeoutOfCallsWithoutADeadline(t *testing.T) {
	cl := newCluster(t, 1)
	c := connect(t, client.Config{Addresses: cl.addresses(), Timeout: 50 * time.Millisecond})
	_, err := c.ExistKey(context.Background(), "k")
	wantKind(t, "nobody serves", err, errs.Unavailable)
	cl.lead(0)
	within(t, "a call in time", func() bool { // a busy machine may need more than one
		return errors.Is(c.Remove(context.Background(), "k", client.Removal{}), errs.ObjectNotFound)
	})
}

// Calls follow the leader from node to node, whether the old one refuses calls or is gone.
func TestFollowsTheLeader(t *testing.T) {
	cl := newCluster(t, 3)
	cl.lead(0)
	w := new(witness)
	c := connect(t, client.Config{Addresses: cl.addresses()[:1], Observer: w})
	mountMemory(t, c)
	for i := range 6 {
		put(t, c, fmt.Sprint("k", i))
		if i%2 == 0 {
			cl.rest() // for a moment nobody serves
		}
		cl.lead((i + 1) % 3)
	}
	put(t, c, "last")
	if led := w.found(t, 7); len(led) != 7 || led[6].Term != 7 {
		t.Errorf("leaders %+v, want 7 entries and Term 7", led)
	}
	if n := cl.objects(); n != 7 {
		t.Errorf("%d objects, want 7", n)
	}
	// The first address is dead now; the client has learned the others.
	cl.nodes[0].stop()
	cl.lead(2)
	put(t, c, "after all")
}

// The client asks two nodes that name each other as leader no more often than nodes that know
// of none.
func TestHintLoop(t *testing.T) {
	cl := newCluster(t, 2)
	a, b := cl.nodes[0], cl.nodes[1]
	for _, n := range []struct{ from, to *node }{{a, b}, {b, a}} {
		n.from.gate.Close(service.Hint{Term: 9, NodeID: n.to.id, RPC: n.to.address})
	}
	c := connect(t, client.Config{Addresses: []string{a.address}})
	seconds := int64(0)
	within(t, "both to be asked twice", func() bool { // a busy machine may need more than a second
		seconds++
		_, err := c.ExistKey(soon(t, time.Second), "k")
		wantKind(t, "nobody serves", err, errs.Unavailable)
		return a.asked.Load() >= 2 && b.asked.Load() >= 2
	})
	for _, n := range cl.nodes {
		// 10 ms, growing by half to 160 ms, make about 12 in a second; jitter may
		// halve the pauses.
		if asked := n.asked.Load(); asked > 30*seconds {
			t.Errorf("%s was asked %d times in %d s, want at most 30 times in each", n.id, asked, seconds)
		}
	}
}

// The client does not search for a leader while no call needs one.
func TestSearchEndsWithTheCalls(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 1)
	c := connect(t, client.Config{Addresses: cl.addresses()})
	_, _ = c.ExistKey(soon(t, 50*time.Millisecond), "k")
	quiet, last := 0, int64(-1)
	tick := time.NewTicker(400 * time.Millisecond) // longer than the longest pause
	defer tick.Stop()
	for range 10 {
		<-tick.C
		if now := cl.nodes[0].asked.Load(); now == last {
			quiet++
		} else {
			quiet, last = 0, now
		}
		if quiet == 2 {
			return
		}
	}
	t.Errorf("asked %d times and does not stop; want a search that ends with its client", last)
}

// The client ignores all answers of a primary that was replaced without its knowledge.
func TestLowerTermIsRefused(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 2)
	old := cl.lead(0)
	c := connect(t, client.Config{Addresses: cl.addresses(), PingInterval: time.Hour}) // a ping would find out first
	mountMemory(t, c)
	put(t, c, "k")
	cl.lead(1)
	put(t, c, "later")
	stale := cl.newMaster(1)
	for i, name := range []string{"the old one", "both"} { // in this order: the answer of the new one has its term
		cl.nodes[i].gate.Open(stale)
		w := new(witness)
		seen := connect(t, client.Config{Addresses: []string{old.address}, Observer: w})
		_, err := seen.ExistKey(soon(t, 20*time.Second), "k")
		wantKind(t, name+", for a client that knows no better", err, errs.OK)
	}
	for name, call := range map[string]func(context.Context) error{
		"read":   func(ctx context.Context) error { _, err := c.ExistKey(ctx, "k"); return err },
		"error":  func(ctx context.Context) error { _, err := c.GetReplicaList(ctx, "missing"); return err },
		"change": func(ctx context.Context) error { return c.Remove(ctx, "k", client.Removal{Force: true}) },
		"never":  func(ctx context.Context) error { _, err := c.RemoveAll(ctx, client.Removal{}); return err },
	} {
		cl.lead(1)
		put(t, c, "now-"+name) // it leads, and says so
		cl.nodes[1].gate.Open(stale)
		err := call(soon(t, 3*time.Second)) // in which it must have been asked
		want := errs.Unavailable
		if name == "change" || name == "never" {
			want = errs.Unresolved // it was done, and may be known to nobody else
		}
		wantKind(t, name, err, want)
		if err == nil || !strings.Contains(err.Error(), "in term 1 although") {
			t.Errorf("%s: %v does not say why: want \"in term 1 although\" in it", name, err)
		}
	}
}

func TestWrongCluster(t *testing.T) {
	cl := newCluster(t, 1)
	cl.lead(0)
	stranger := newNode(cl, "stranger", "elsewhere")
	stranger.gate.Open(cl.newMaster(99))
	asStandby := newNode(cl, "standby", "elsewhere")

	for name, n := range map[string]*node{"primary": stranger, "standby": asStandby} {
		c := connect(t, client.Config{Addresses: []string{n.address}})
		for range 2 { // it does not wait in vain, the second time neither
			_, err := c.ExistKey(soon(t, 30*time.Second), "k")
			wantKind(t, name, err, errs.InvalidParams)
			if err == nil || !strings.Contains(err.Error(), `"elsewhere"`) || !strings.Contains(err.Error(), "correct its addresses or its cluster id") {
				t.Errorf("%s: %v does not say what to do: want the other cluster's name and what to do in it", name, err)
			}
		}
	}
	// Among others it does no harm, and its term is not believed.
	c := connect(t, client.Config{Addresses: []string{stranger.address, asStandby.address, cl.nodes[0].address}})
	mountMemory(t, c)
	put(t, c, "k")
	// Who has met its cluster waits for it.
	cl.rest()
	_, err := c.ExistKey(soon(t, 200*time.Millisecond), "k")
	wantKind(t, "nobody serves", err, errs.Unavailable)
}

// Once a node of the cluster has answered, calls wait for its primary, although only nodes of
// other clusters had answered the search until then.
func TestWrongClusterBefore(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 1)
	f := newFront(t, cl.nodes[0].address)
	f.answering(func(string, proto.Message, proto.Message, error) (proto.Message, error) { return nil, errUnimplemented })
	c := connect(t, client.Config{Addresses: []string{f.address}})
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	defer calling.Wait()
	defer cancel()
	for range 4 { // there is always a call in progress
		calling.Go(func() {
			for ctx.Err() == nil {
				_, _ = c.ExistKey(ctx, "k")
			}
		})
	}
	within(t, "the strangers to be met", func() bool {
		_, err := c.ExistKey(soon(t, 30*time.Second), "k")
		return errors.Is(err, errs.InvalidParams)
	})
	f.answering(nil)
	asked := cl.nodes[0].asked.Load()
	within(t, "the cluster to answer", func() bool { return cl.nodes[0].asked.Load() > asked+2 })
	_, err := c.ExistKey(soon(t, 200*time.Millisecond), "k")
	wantKind(t, "while nobody serves", err, errs.Unavailable)
}

// An address may later belong to another cluster.
func TestWrongClusterLater(t *testing.T) {
	cl := newCluster(t, 1)
	cl.lead(0)
	f := newFront(t, cl.nodes[0].address)
	c := connect(t, client.Config{Addresses: []string{f.address}})
	mountMemory(t, c)
	f.answering(func(_ string, _, resp proto.Message, err error) (proto.Message, error) {
		if r, ok := resp.(*pb.ExistKeyResponse); ok {
			r.Header.ClusterId = "elsewhere"
		}
		return resp, err
	})
	_, err := c.ExistKey(t.Context(), "k")
	wantKind(t, "an answer of another cluster", err, errs.InvalidParams)
	f.answering(nil)
	put(t, c, "k")
}

// A server that is no master may answer at an address.
func TestNotAMaster(t *testing.T) {
	cl := newCluster(t, 1)
	f := newFront(t, cl.nodes[0].address) // offers no admin service: take it for anything
	f.answering(func(string, proto.Message, proto.Message, error) (proto.Message, error) { return nil, errUnimplemented })
	c := connect(t, client.Config{Addresses: []string{f.address}})
	_, err := c.ExistKey(soon(t, 30*time.Second), "k")
	wantKind(t, "no master", err, errs.InvalidParams)
}

// A stopped process accepts calls and answers none. Calls that wait there go on at the next
// primary.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 2)
	l := newLink(t, cl.nodes[0].address)
	cl.nodes[0].hint = l.address
	cl.lead(0)
	c := connect(t, client.Config{Addresses: []string{l.address, cl.nodes[1].address}})
	mountMemory(t, c)
	put(t, c, "k")
	l.freeze()
	done := make(chan error, 2)
	go func() { _, err := c.GetReplicaList(context.Background(), "k"); done <- err }()
	go func() { done <- c.Remove(context.Background(), "k", client.Removal{Force: true}) }()
	asked := cl.nodes[1].asked.Load()
	within(t, "asking the other node", func() bool { return cl.nodes[1].asked.Load() > asked })
	cl.lead(1)
	for range 2 {
		if err := <-done; err != nil && !errors.Is(err, errs.ObjectNotFound) {
			t.Error(err)
		}
	}
	put(t, c, "k")
}

// A connection to a primary may break while another one is open.
func TestBrokenLink(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 1)
	n := cl.lead(0)
	l := newLink(t, n.address)
	w := new(witness)
	c := connect(t, client.Config{Addresses: []string{l.address}, Observer: w, PingInterval: time.Hour})
	mountMemory(t, c)
	key := strings.Repeat("k", 16<<10) // tells the call from a keepalive
	put(t, c, key)
	done := make(chan error, 1)
	l.freeze()
	go func() { done <- c.Remove(context.Background(), key, client.Removal{}) }()
	within(t, "the call is on its way", func() bool { return l.held.Load() > int64(len(key)) })
	client.Announce(c, n.address, 1)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := w.last(); got.attempts != 2 {
		t.Errorf("it took %d attempts, want 2", got.attempts)
	}
	if led := w.found(t, 2); len(led) != 2 || led[1].Address != n.address || led[1].Term != 1 {
		t.Errorf("leaders %+v; want two, of which the second is %s in term 1", led, n.address)
	}
}

// The client does not leave a primary just because it is slow.
func TestSlowLeader(t *testing.T) {
	t.Parallel()
	cl, _ := serving(t)
	w := new(witness)
	// It has two addresses, of which the second is not preferred for answering.
	c := connect(t, client.Config{Addresses: append(cl.addresses(), newLink(t, cl.nodes[0].address).address), Observer: w})
	release := make(chan struct{})
	cl.log.refusing(func() error { <-release; return nil })
	done := make(chan error, 1)
	asked := cl.nodes[0].asked.Load()
	go func() {
		_, err := c.PutStart(context.Background(), client.PutItem{Key: "k", Size: 1}, client.PutConfig{})
		done <- err
	}()
	within(t, "asking whether it still leads", func() bool { return cl.nodes[0].asked.Load() > asked+8 })
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := w.last(); got.attempts != 1 {
		t.Errorf("it took %d attempts, want 1", got.attempts)
	}
}

// A client keeps a bounded number of the addresses that it learns.
func TestLearnedAddressesAreBounded(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 2)
	c := connect(t, client.Config{Addresses: []string{cl.nodes[0].address}})
	for i := range 50 {
		cl.nodes[0].gate.SetHint(service.Hint{Term: uint64(i + 1), RPC: fmt.Sprintf("127.0.0.1:%d", 10_000+i)})
		asked := cl.nodes[0].asked.Load()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.ExistKey(ctx, "k")
		}()
		within(t, "asking", func() bool { return cl.nodes[0].asked.Load() > asked+1 })
		cancel()
		<-done
	}
	if n := client.Candidates(c); n > 1+16 {
		t.Errorf("%d addresses are kept, want at most 17", n)
	}
	cl.mu.Lock()
	cl.term = 50
	cl.mu.Unlock()
	cl.lead(1)
	_, err := c.ExistKey(t.Context(), "k")
	wantKind(t, "afterwards", err, errs.OK)
}
