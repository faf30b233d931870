package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/hostmem"
)

// A bench is a load without a cluster: only its memory and who looks at it.
type bench struct {
	*worker
	at place
}

func newBench() *bench {
	c := Config{Size: 256, Memory: 1 << 20, Hosts: 2}
	c.setDefaults()
	l := &Load{config: c, clock: clock.Boot(), hosts: hostmem.New("h", 2, c.Memory), holds: make(chan hold, maxHolds)}
	l.began = l.clock()
	b := &bench{worker: &worker{reader: newReader(l, l.rng(0)), rng: l.rng(0), block: make([]byte, 256)}}
	b.at = place{"h-0:12345", l.hosts["h-0:12345"].Base + 4096}
	return b
}

// put is a reservation of object 1 that was just made.
func (b *bench) reservation() put {
	return put{started: b.load.Now(), Reservation: client.Reservation{
		Key: "k", ID: 1, Size: 256, Replicas: []client.Replica{{Kind: client.Memory, Endpoint: b.at.endpoint, Address: b.at.address}},
	}}
}

// sight is object 1 under a lease.
func (b *bench) sight(ttl time.Duration) sight {
	now := b.load.clock()
	return sight{key: "k", id: 1, size: 256, places: []place{b.at}, asked: b.load.Now(), lease: rawLease{b.load.clock, now + ttl}}
}

// overwrite lets another object have the memory.
func (b *bench) overwrite() {
	block := make([]byte, 256)
	hostmem.Fill(block, 2, "other")
	if err := b.load.hosts.Write(b.at.endpoint, b.at.address+128, block); err != nil {
		panic(err)
	}
}

func TestBytes(t *testing.T) {
	for _, tt := range []struct {
		name string
		lead func(b *bench, p put)
		want Promise // broken; empty for none
		text string
	}{
		{name: "as they should be", lead: func(b *bench, p put) {
			b.write(&p)
			b.checkOwn(&p)
			for range 100 {
				b.check(b.sight(time.Minute))
			}
			b.load.checkHolds()
		}},
		{"another object's", func(b *bench, _ put) { b.overwrite(); b.check(b.sight(time.Minute)) }, A, "torn"},
		{name: "another object's, when the lease is over", lead: func(b *bench, _ put) { b.overwrite(); b.check(b.sight(0)) }},
		{"another object's, in a reservation", func(b *bench, p put) { b.write(&p); b.overwrite(); b.checkOwn(&p) }, A, "in a reservation"},
		{"changed while a lease holds", func(b *bench, p put) {
			b.write(&p)
			for len(b.load.holds) == 0 {
				b.check(b.sight(time.Minute))
			}
			b.overwrite()
			b.load.checkHolds()
		}, L, "still under that lease"},
		{name: "changed when the lease was over", lead: func(b *bench, _ put) {
			b.overwrite()
			b.load.holds <- hold{b.sight(0)}
			b.load.checkHolds()
		}},
		{"of another size", func(b *bench, _ put) { s := b.sight(time.Minute); s.size = 255; b.check(s) }, A, "255 bytes"},
		{"nowhere", func(b *bench, _ put) { s := b.sight(time.Minute); s.places = nil; b.check(s) }, A, "0 places"},
		{"outside", func(b *bench, _ put) { b.at.address += 1 << 30; b.check(b.sight(time.Minute)) }, A, "outside the segment"},
		{"outside, to be written", func(b *bench, p put) { p.Replicas[0].Address -= 8192; b.write(&p) }, A, "outside the segment"},
		{"on a host that there is not", func(b *bench, _ put) { b.at.endpoint = "x"; b.check(b.sight(time.Minute)) }, A, "does not exist"},
		{name: "of a put whose reservation may be lost", lead: func(b *bench, p put) {
			b.load.MayLose("all nodes die")
			b.write(&p)
			if p.written {
				t.Error("it was written")
			}
			b.checkOwn(&p)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench()
			tt.lead(b, b.reservation())
			counts, examples := b.load.seen.verdict()
			for p, n := range counts {
				if want := tt.want == Promise(p); (n == 1) != want {
					t.Errorf("%s: %d", p, n)
				}
			}
			if all := strings.Join(examples, "\n"); !strings.Contains(all, tt.text) || (all == "") != (tt.want == "") {
				t.Errorf("%q, want %q", all, tt.text)
			}
		})
	}
}

// Of bytes that nobody has read, under a lease that held, the judge says nothing.
func TestNobodyHasLooked(t *testing.T) {
	for name, c := range map[string]struct {
		lead func(b *bench)
		a, l bool // were checked
	}{
		"nothing was read":                    {func(*bench) {}, false, false},
		"the lease had ended":                 {func(b *bench) { b.check(b.sight(0)) }, false, false},
		"read once":                           {func(b *bench) { b.check(b.sight(time.Minute)) }, true, false},
		"the lease that was kept had ended":   {func(b *bench) { b.recheck(hold{b.sight(0)}) }, false, false},
		"read at the end of a lease, as well": {func(b *bench) { b.check(b.sight(time.Minute)); b.recheck(hold{b.sight(time.Minute)}) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			p := b.reservation()
			b.write(&p)
			c.lead(b)
			b.load.ended = 1
			v, err := b.load.Judge(t.Context(), nil, nil, journal.Layout{})
			if err != nil || !v.OK {
				t.Fatalf("%+v, %v", v, err)
			}
			_, a := v.Violations["A"]
			_, l := v.Violations["L"]
			if a != c.a || l != c.l || (v.Looks > 0) != c.a || (v.Kept > 0) != c.l {
				t.Errorf("%+v; A was checked: %t, L: %t", v, c.a, c.l)
			}
		})
	}
}

// Kept leases are looked at again by themselves, before they end.
func TestHeldLeases(t *testing.T) {
	b := newBench()
	p := b.reservation()
	b.write(&p)
	b.load.holds <- hold{b.sight(300 * time.Millisecond)}
	b.overwrite()
	done := make(chan struct{})
	go func() { defer close(done); b.load.holdLeases(t.Context()) }()
	wait(t, "it is seen", func() bool { counts, _ := b.load.seen.verdict(); return counts["L"] == 1 })
	go func() { b.load.holds <- hold{b.sight(0)} }() // over: it says nothing
	wait(t, "it is taken", func() bool { return len(b.load.holds) == 0 })
	t.Cleanup(func() { <-done })
}
