package replay

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/lab/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startNode runs a node without HA in this process until the test ends.
func startNode(t *testing.T, leaseTTL time.Duration) (address string) {
	t.Helper()
	cfg := config.Default(config.Primary)
	cfg.HA.Enabled = false
	cfg.Lease.TTL = leaseTTL
	cfg.Listen.RPCAddress, cfg.Listen.RPCPort, cfg.Listen.MetricsPort = "127.0.0.1", 0, 0
	a, err := app.New(cfg, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a.RPCAddress()
}

// newPlayer returns a player of a trace against a node of its own.
func newPlayer(t *testing.T, tr *trace.Trace, leaseTTL time.Duration, change func(*Config)) *Player {
	t.Helper()
	c := Config{
		Client: client.Config{Addresses: []string{startNode(t, leaseTTL)}}, Trace: tr, Workers: 4, Hosts: 2, Capacity: 0.5, Block: 256, Seed: 1,
	}
	if change != nil {
		change(&c)
	}
	p, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// someBlocks is a trace of one request for n blocks.
func someBlocks(n int) *trace.Trace {
	r := trace.Request{}
	for i := range n {
		r.Blocks = append(r.Blocks, trace.BlockID(i))
	}
	return &trace.Trace{Requests: []trace.Request{r}}
}

// A rig is a worker that has put some blocks, and what it put.
type rig struct {
	*worker
	t    *testing.T
	keys []string
}

func newRig(t *testing.T, leaseTTL time.Duration) *rig {
	t.Helper()
	tr := someBlocks(100)
	p := newPlayer(t, tr, leaseTTL, func(c *Config) { c.Capacity = 2 })
	w := &worker{
		Player: p, client: p.clients[0], rng: rand.New(rand.NewPCG(1, 1)), block: make([]byte, p.Block), scratch: make([]byte, p.Block),
	}
	r := &rig{w, t, w.keys(tr.Requests[0])[:8]}
	left, err := w.put(t.Context(), r.keys)
	if err != nil || len(left) > 0 {
		t.Fatalf("got %d blocks without room (%v), want none", len(left), err)
	}
	return r
}

func (r *rig) get(key string) client.Object {
	r.t.Helper()
	o, err := r.client.GetReplicaList(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

// spoil changes a byte of an object's block behind the store's back.
func (r *rig) spoil(o client.Object) {
	r.t.Helper()
	at := o.Replicas[0]
	block := make([]byte, r.Block)
	if err := r.hosts.Read(at.Endpoint, at.Address, block); err != nil {
		r.t.Fatal(err)
	}
	block[100]++
	if err := r.hosts.Write(at.Endpoint, at.Address, block); err != nil {
		r.t.Fatal(err)
	}
}
