package replay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/lab/trace"
)

// A small trace against a real node, with memory for half of it: nothing is
// broken, and the figures add up.
func TestReplay(t *testing.T) {
	tr := trace.Generate(trace.Options{Requests: 150, Seed: 7})
	taken := 0
	p := newPlayer(t, tr, 50*time.Millisecond, func(c *Config) {
		c.Workers, c.OnTaken = 1, func(n int) { taken = n + 1 }
	})
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := p.Result()
	if r.Violations.Any() || len(r.Examples) > 0 {
		t.Errorf("got violations %+v (%q), want none", r.Violations, r.Examples)
	}
	if r.Requests != 150 || taken != 150 || p.Taken() != 150 || r.Blocks != tr.Stats().References {
		t.Errorf("got %d requests, %d taken, %d blocks; want 150, 150, %d", r.Requests, taken, r.Blocks, tr.Stats().References)
	}
	if r.Hits == 0 || r.Hits >= r.Blocks || r.HitRate != p.HitRate(0, 150) || r.HitRate != 100*float64(r.Hits)/float64(r.Blocks) {
		t.Errorf("got %d hits of %d blocks, %v %%; want some, and their share", r.Hits, r.Blocks, r.HitRate)
	}
	if r.Failed != 0 || r.Calls < 300 || r.PerSecond <= 0 || r.Seconds <= 0 || r.Removals == 0 {
		t.Errorf("got %+v, want no failure or violation, and some removals", r)
	}
	var counted int64
	for call, l := range r.Latency {
		counted += l.Count
		if l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.Max {
			t.Errorf("%s: got %+v, want ascending latencies", call, l)
		}
	}
	if counted != r.Calls {
		t.Errorf("got %d calls and %d latencies, want as many", r.Calls, counted)
	}
}

// Over Mooncake's protocol, where puts are known by their client and key alone,
// each worker is a client of its own.
func TestReplayOverMooncake(t *testing.T) {
	tr := trace.Generate(trace.Options{Requests: 400, Seed: 7})
	over, err := mooncakeclient.NewTransport("")
	if err != nil {
		t.Fatal(err)
	}
	p := newPlayer(t, tr, 50*time.Millisecond, func(c *Config) { c.Client.Transport = over })
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := p.Result(); r.Violations.Any() || r.Hits == 0 || r.Failed != 0 || r.Removals == 0 {
		t.Errorf("got %+v, want no failure or violation, and some removals", r)
	}
	for i := range p.Workers {
		for j := range i {
			if p.clientOf(i) == p.clientOf(j) {
				t.Errorf("workers %d and %d have one client, want two", i, j)
			}
		}
	}
}

// With room for everything a second request for the same blocks hits them all.
func TestHitsAndMisses(t *testing.T) {
	one := someBlocks(10).Requests[0]
	one.Blocks = append(one.Blocks, 3) // twice in one request counts once
	tr := &trace.Trace{Requests: []trace.Request{one, one, someBlocks(20).Requests[0]}}
	p := newPlayer(t, tr, time.Minute, func(c *Config) { c.Workers, c.Capacity = 1, 4 })
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{0, 100, 50} {
		if got := p.HitRate(i, i+1); got != want {
			t.Errorf("request %d: %v %% hits, want %v", i, got, want)
		}
	}
	if r := p.Result(); r.Blocks != 40 || r.Hits != 20 || r.NoRoom != 0 {
		t.Errorf("got %+v, want 20 hits of 40 blocks", r)
	}
}

func TestPrefixesKeepReplaysApart(t *testing.T) {
	w := &worker{Player: &Player{Config: Config{Prefix: "a/"}}}
	if keys := w.keys(someBlocks(2).Requests[0]); strings.Join(keys, " ") != "a/block/0 a/block/1" {
		t.Errorf("got keys %q, want a/block/0 and a/block/1", keys)
	}
}

// Requests come when they are due by the trace's clock, or at once.
func TestPace(t *testing.T) {
	tr := someBlocks(1)
	tr.Requests = append(tr.Requests, tr.Requests[0])
	tr.Requests[1].At = 100 * time.Second
	for speed, least := range map[float64]time.Duration{0: 0, 500: 200 * time.Millisecond} {
		p := newPlayer(t, tr, time.Minute, func(c *Config) { c.Speed, c.Capacity, c.Workers = speed, 4, 2 })
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Duration(p.Result().Seconds * float64(time.Second)); took < least || took > 50*time.Second {
			t.Errorf("at speed %v: got %v, want at least %v and at most 50s", speed, took, least)
		}
	}
}

// A replay ends with its context, in the middle of whatever it does.
func TestCanceledReplay(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var p *Player
	taken := 0 // when the context has ended
	p = newPlayer(t, trace.Generate(trace.Options{Requests: 200}), time.Minute, func(c *Config) {
		c.OnTaken = func(n int) {
			if n == 5 {
				cancel()
				taken = p.Taken()
			}
		}
	})
	if err := p.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	if n := p.Taken(); n > taken+p.Workers {
		t.Errorf("got %d requests taken, and %d when the context ended; want at most one more for each worker", n, taken)
	}
}

// Who cannot mount its memory cannot play.
func TestNobodyToPlayAgainst(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := New(ctx, Config{Client: client.Config{Addresses: []string{"127.0.0.1:1"}}, Trace: someBlocks(4), Hosts: 2, Capacity: 1, Block: 256})
	if !errors.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "mounting the memory of host-") {
		t.Errorf("got error %v, want that the memory cannot be mounted", err)
	}
	if _, err = New(ctx, Config{Trace: someBlocks(4), Hosts: 1, Capacity: 1, Block: 256}); !errors.Is(err, errs.InvalidParams) {
		t.Errorf("without an address: got error %v, want INVALID_PARAMS", err)
	}
}

// An outage is the longest silence of the cluster, to all clients together.
func TestOutage(t *testing.T) {
	var now time.Duration
	m := newMeter(func() time.Duration { return now }, func(uint64) {})
	call := func(at time.Duration, method string, kind errs.Kind) {
		now = at * time.Millisecond
		m.Call(method, 1, kind, time.Millisecond)
	}
	call(100, "ExistKey", errs.OK)
	call(400, "ExistKey", errs.ObjectNotFound) // an answer, too
	call(410, "ExistKey", errs.OK)
	call(600, "ExistKey", errs.Unavailable)
	call(700, "Ping", errs.OK) // not the load's
	call(800, "Remove", errs.Unresolved)
	call(910, "ExistKey", errs.OK)
	call(1000, "ExistKey", errs.OK)
	for since, want := range map[time.Duration]time.Duration{0: 500, 400: 500, 500: 500, 911: 90, 1001: 0} {
		if got := m.outage(since * time.Millisecond); got != want*time.Millisecond {
			t.Errorf("since %d ms: an outage of %v, want %d ms", since, got, want)
		}
	}
	if total, failed := m.counts(); total != 7 || failed != 2 {
		t.Errorf("got %d calls, %d of them failed; want 7 and 2", total, failed)
	}
	if l := m.latencies(); len(l) != 1 || l["ExistKey"].Count != 5 || l["ExistKey"].Max != 1 {
		t.Errorf("got latencies %+v, want 5 of ExistKey, at most 1", l)
	}
}
