package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zeebo/xxh3"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// A world is one cluster in one bubble of virtual time, with its judge and its
// transcript.
type world struct {
	t          testing.TB
	etcd       *Server
	layout     journal.Layout
	transcript *transcript
	judge      *judge
	tasks      sync.WaitGroup
	rates      map[string]float64 // of nodes' clocks, 1 if not there; set before they start
	failover   time.Duration      // of its nodes, and the TTL of their sessions; 0 for the usual

	mu    sync.Mutex // guards all below
	nodes map[string]*node
	all   []*node    // of all lives
	rng   *rand.Rand // of placements
}

// newWorld returns a world with an etcd and no nodes.
func newWorld(t testing.TB, seed uint64) *world {
	w := &world{
		t: t, layout: journal.NewLayout("/understudy", "sim"), nodes: make(map[string]*node), rng: rand.New(rand.NewPCG(seed, 1)),
	}
	w.etcd = newEtcd(t, etcdOptions{
		Latency: func(client string, m proto.Message) time.Duration {
			return latency(seed, w.transcript.now(), client, m)
		},
	})
	w.transcript = newTranscript() // its time starts when the etcd is up
	w.judge = newJudge(w.transcript)
	return w
}

// latency gives each message a time of its own, by whose it is, what kind of
// message about which key, and when: of two messages of one instant one arrives
// after the other, in an order that the seed decides. The rest of its content does
// not count, so that it may change.
func latency(seed uint64, now time.Duration, client string, m proto.Message) time.Duration {
	b := make([]byte, 0, 128)
	b = binary.LittleEndian.AppendUint64(b, seed)
	b = binary.LittleEndian.AppendUint64(b, uint64(now))
	b = append(b, client...)
	b = append(b, m.ProtoReflect().Descriptor().Name()...)
	switch m := m.(type) {
	case *pb.RangeRequest:
		b = append(b, m.Key...)
	case *pb.PutRequest:
		b = append(b, m.Key...)
	case *pb.TxnRequest:
		for _, op := range m.Success {
			b = append(b, op.GetRequestPut().GetKey()...)
			b = append(b, op.GetRequestRange().GetKey()...)
			b = append(b, op.GetRequestDeleteRange().GetKey()...)
		}
	case *pb.LeaseKeepAliveRequest:
		b = binary.LittleEndian.AppendUint64(b, uint64(m.ID))
	case *pb.LeaseKeepAliveResponse:
		b = binary.LittleEndian.AppendUint64(b, uint64(m.ID))
	}
	return 50*time.Microsecond + time.Duration(xxh3.Hash(b)%uint64(500*time.Microsecond))
}

// jitter returns what the next life of a node spreads its retries by.
func (w *world) jitter() *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rand.New(rand.NewPCG(w.rng.Uint64(), 2))
}

// placement is the store's choice of segments.
func (w *world) placement(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// start begins a life of a node.
func (w *world) start(id string) *node {
	n, err := newNode(w, id)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.nodes[id] = n
	w.all = append(w.all, n)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	w.tasks.Go(func() { n.run(ctx) })
	return n
}

// begin starts a primary and standbys, and mounts the segment of the first host.
func (w *world) begin(primary string, standbys ...string) {
	n := w.start(primary)
	w.await("a primary", func() bool { return n.serves() })
	w.mount(0)
	for _, id := range standbys {
		s := w.start(id)
		w.await(id+" to be promotable", func() bool { return s.Status().Self.Promotable })
	}
}

// end ends everything in the world.
func (w *world) end() {
	for _, n := range w.all {
		n.wake()
		n.kill()
	}
	w.tasks.Wait()
}

// node returns the current life of a node, nil for none.
func (w *world) node(id string) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[id]
}

// living returns the current lives of all nodes, by id.
func (w *world) living() (list []*node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		if !n.dead.Load() {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *node) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return list
}

// serving returns the node that answers, nil for none.
func (w *world) serving() *node {
	for _, n := range w.living() {
		if n.serves() {
			return n
		}
	}
	return nil
}

// awaitTimeout bounds how long a test waits for anything.
const awaitTimeout = 60 * time.Second

// await lets time pass until something holds.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	if !w.comes(10*time.Millisecond, holds) {
		w.judge.find("LIVE", "waited %v for %s", awaitTimeout, what)
	}
}

// comes lets time pass until something holds, and reports whether it does. It
// looks every so often.
func (w *world) comes(every time.Duration, holds func() bool) bool {
	for deadline := w.transcript.now() + awaitTimeout; w.transcript.now() < deadline; time.Sleep(every) {
		synctest.Wait()
		if holds() {
			return true
		}
	}
	return false
}

// Memory of the cluster: so little that what is freed is soon used again.
const (
	objectBytes  = 64 << 10
	segmentBytes = 128 * objectBytes
	segmentBase  = 1 << 32
)

var (
	owner = segment.ClientID{1}
	hosts = [2]string{"host", "other"}
)

func (w *world) mount(host int) {
	n := w.serving()
	if n == nil {
		w.t.Fatal("no node serves, want one")
	}
	err := n.master.Load().MountSegment(context.Background(), segment.Spec{
		ID: segment.ID{byte(1 + host)}, Name: hosts[host], Base: segmentBase << host, Size: segmentBytes, Endpoint: hosts[host] + ":1", Client: owner,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// settle waits until every node has been healthy for a session TTL: one serves,
// all others follow it.
func (w *world) settle() bool {
	w.t.Helper()
	since := w.transcript.now()
	return w.comes(50*time.Millisecond, func() bool {
		if !w.healthy() {
			since = w.transcript.now()
		}
		return w.transcript.now()-since > sessionTTL
	})
}

func (w *world) healthy() bool {
	serving := 0
	for _, n := range w.living() {
		self := n.Status().Self
		switch {
		case n.serves():
			serving++
		case self.Role != promote.Standby || !self.Promotable:
			return false
		}
	}
	return serving == 1
}

// equal compares the digests of all nodes at one sequence (promise S).
func (w *world) equal() {
	primary := w.serving()
	if primary == nil {
		w.judge.find("LIVE", "no node serves, want one")
		return
	}
	for _, n := range w.living() {
		if n == primary {
			continue
		}
		if err := w.equalTo(primary, n); err != nil {
			w.judge.find("S", "%s and %s: %v", primary.id, n.id, err)
		}
	}
}

// equalTo compares a follower with the primary. A follower that has just loaded
// a snapshot does not know the digest of a sequence before it; then the next
// one is compared.
func (w *world) equalTo(primary, n *node) (err error) {
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		seq, want, failed := primary.Digest(ctx, 0)
		got := want
		if err = failed; err == nil {
			_, got, err = n.Digest(ctx, seq)
		}
		cancel()
		switch {
		case err == nil && got != want:
			return fmt.Errorf("digest at sequence %d: got %v, want the primary's %v", seq, got, want)
		case err == nil:
			return nil
		}
		time.Sleep(journal.Heartbeat)
	}
	return err
}

// compare notes the digest of each complete node at its sequence, as the
// faults go on.
func (w *world) compare() {
	for _, n := range w.living() {
		if store := n.Store(); store != nil && n.Status().Self.Promotable {
			p := store.Position()
			w.judge.state(n.id, p.Seq, p.Digest)
		}
	}
}

// watchOver compares the nodes' states four times a second until the context
// ends.
func (w *world) watchOver(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.compare()
		}
	}
}

// compact forgets all history of the etcd.
func (w *world) compact() {
	if err := w.etcd.Compact(); err != nil {
		w.judge.find("LIVE", "compacting: %v", err)
	}
}
