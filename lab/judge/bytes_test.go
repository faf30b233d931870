package judge

import (
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
	at client.Replica // where object 1 is
}

func newBench() *bench {
	l := &Load{speaks: new(Config).generation(), clock: clock.Boot(), hosts: hostmem.New("h", 2, 1<<20), holds: make(chan sight, maxHolds)}
	l.config.MaxCalls = 1 << 20
	l.began = l.clock()
	b := &bench{worker: &worker{reader: newReader(l, 0), block: make([]byte, objectSize)}}
	b.at = client.Replica{Kind: client.Memory, Endpoint: "h-0:12345", Address: l.hosts["h-0:12345"].Base + 8192}
	return b
}

// reservation is one of object 1 that was just made.
func (b *bench) reservation() put {
	return put{started: b.load.Now(), Reservation: client.Reservation{Key: "k", ID: 1, Size: objectSize, Replicas: []client.Replica{b.at}}}
}

// sight is object 1 under a lease.
func (b *bench) sight(ttl time.Duration) sight {
	now := b.load.Now()
	return sight{client.Object{ID: 1, Size: objectSize, Replicas: []client.Replica{b.at}}, "k", now, now + ttl}
}

// overwrite lets another object have the memory.
func (b *bench) overwrite() {
	block := make([]byte, objectSize)
	hostmem.Fill(block, 2, "other")
	if err := b.load.hosts.Write(b.at.Endpoint, b.at.Address+128, block); err != nil {
		panic(err)
	}
}

func TestBytes(t *testing.T) {
	for _, tt := range []struct {
		name string
		lead func(b *bench, p put)
		want string // the promise that is broken; empty for none
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
			b.load.holds <- b.sight(0)
			b.load.checkHolds()
		}},
		{"of another size", func(b *bench, _ put) { s := b.sight(time.Minute); s.Size = 255; b.check(s) }, A, "255 bytes"},
		{"nowhere", func(b *bench, _ put) { s := b.sight(time.Minute); s.Replicas = nil; b.check(s) }, A, "0 places"},
		{"outside", func(b *bench, _ put) { b.at.Address += 1 << 30; b.check(b.sight(time.Minute)) }, A, "outside the segment"},
		{"outside, to be written", func(b *bench, p put) { p.Replicas[0].Address -= 16384; b.write(&p) }, A, "outside the segment"},
		{"on a host that there is not", func(b *bench, _ put) { b.at.Endpoint = "x"; b.check(b.sight(time.Minute)) }, A, "does not exist"},
		{name: "of a put whose reservation may be lost", lead: func(b *bench, p put) {
			b.load.MayLose("all nodes die")
			b.write(&p)
			if p.written {
				t.Error("A: the bytes of a put whose reservation may be lost were written, want them not written")
			}
			b.checkOwn(&p)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench()
			tt.lead(b, b.reservation())
			want := map[string]int{}
			if tt.want != "" {
				want[tt.want] = 1
			}
			b.load.seen.want(t, want, tt.text)
		})
	}
}

// A and L count as checked only if somebody has read bytes under a lease that held.
func TestUnreadBytesAreNotChecked(t *testing.T) {
	for name, c := range map[string]struct {
		lead func(b *bench)
		a, l bool // were checked
	}{
		"nothing was read":                    {func(*bench) {}, false, false},
		"the lease had ended":                 {func(b *bench) { b.check(b.sight(0)) }, false, false},
		"read once":                           {func(b *bench) { b.check(b.sight(time.Minute)) }, true, false},
		"the lease that was kept had ended":   {func(b *bench) { b.recheck(b.sight(0)) }, false, false},
		"read at the end of a lease, as well": {func(b *bench) { b.check(b.sight(time.Minute)); b.recheck(b.sight(time.Minute)) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			p := b.reservation()
			b.write(&p)
			c.lead(b)
			b.load.ended = 1
			v, err := b.load.Judge(t.Context(), nil, nil, journal.Layout{})
			if err != nil || !v.OK {
				t.Fatalf("got %+v, %v; want a verdict that is OK", v, err)
			}
			_, a := v.Violations["A"]
			_, l := v.Violations["L"]
			if a != c.a || l != c.l || (v.Looks > 0) != c.a || (v.Kept > 0) != c.l {
				t.Errorf("got A checked: %t, L checked: %t, %d looks, %d leases kept; want A checked: %t, L checked: %t", a, l, v.Looks, v.Kept, c.a, c.l)
			}
		})
	}
}

// Kept leases are looked at again by themselves, before they end.
func TestHeldLeases(t *testing.T) {
	b := newBench()
	p := b.reservation()
	b.write(&p)
	b.overwrite()
	done := make(chan struct{})
	go func() { defer close(done); b.load.holdLeases(t.Context()) }()
	wait(t, "the broken L is counted", func() bool {
		if len(b.load.holds) == 0 { // the first, or a look at the one before came too late
			b.load.holds <- b.sight(300 * time.Millisecond)
		}
		return b.load.seen.verdict(Verdict{}).Violations[L] > 0
	})
	go func() { b.load.holds <- b.sight(0) }() // over: counts for nothing
	wait(t, "the lease is taken", func() bool { return len(b.load.holds) == 0 })
	t.Cleanup(func() { <-done })
}
