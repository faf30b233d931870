package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// beats are stories of who may answer and who deposes (design section 8, Beats). Each is
// made so that it breaks a promise without the safeguard that it is about.
func beats() map[string]func(story) {
	return map[string]func(story){
		"leader key deleted by hand":      leaderKeyDeleted,
		"a lease after the election":      leaseAfterTheElection,
		"answers come late":               answersComeLate,
		"a commit before the deposal":     commitBeforeDeposal,
		"etcd is slow":                    etcdIsSlow,
		"etcd is back after a silence":    etcdIsBackAfterASilence,
		"the window becomes shorter":      windowBecomesShorter,
		"a raised pace and a takeover":    raisedPaceOutlivesATakeover,
		"a long catch-up":                 longCatchUp,
		"clocks differ":                   clocksDiffer,
		"etcd is quick for one side":      oneWayCut,
		"a standby is stopped for longer": stoppedStandby,
	}
}

func TestBeats(t *testing.T) {
	for name, play := range beats() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var broken []string
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				defer w.end()
				c := w.callers(1, 0, 1)[0]
				c.name = "app"
				play(story{c, w})
				if broken = w.judge.broken(); len(broken) > 0 {
					t.Log(w.transcript.String())
				}
			})
			for _, b := range broken {
				t.Error(b)
			}
		})
	}
}

// unseat deletes the leader key by hand.
func (w *world) unseat() { w.do(clientv3.OpDelete(w.layout.Leader())) }

// race reads a key from all nodes in turn for a time. The judge finds an answer of
// an old term after one of a newer term.
func (s story) race(key string, ids []string, lasts time.Duration) {
	var racing sync.WaitGroup
	end := s.world.transcript.now() + lasts
	for i, id := range ids {
		racing.Go(func() {
			c := *s.caller
			c.only, c.name = id, "app/"+id
			c.rng = rand.New(rand.NewPCG(1, uint64(i))) // draws of its own: several callers run at once
			time.Sleep(time.Duration(i) * time.Millisecond)
			for s.world.transcript.now() < end {
				_ = c.get(key)
				time.Sleep(7 * time.Millisecond)
			}
		})
	}
	racing.Wait()
}

// stays demands that nobody was elected after a term.
func (s story) stays(term metadata.Term) {
	n := s.primary()
	if got := n.Status().Leader.Term; got != term {
		s.world.judge.find("LIVE", "the term is %d, want %d: nobody had a reason to depose the primary", got, term)
	}
}

// The old primary is cut off and may answer for a while yet when somebody deletes
// its leader key: whoever is elected waits for that.
func leaderKeyDeleted(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	time.Sleep(time.Second)
	s.world.node("a").cut()
	s.world.unseat()
	s.race("k1", []string{"a", "b"}, 2*time.Second)
	s.world.node("a").heal()
	s.equal()
}

// The old primary still gives leases when the next one is elected, which removes the
// object as soon as it serves: its bytes go to nobody while a reader relies on them.
func leaseAfterTheElection(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	for i := range segmentBytes / objectBytes {
		s.puts(fmt.Sprint("other", i)) // until the memory is full
	}
	time.Sleep(time.Second)
	s.world.node("a").cut()
	s.world.unseat()
	var reading sync.WaitGroup
	reading.Go(func() { s.race("k1", []string{"a"}, failoverAfter) })
	writer := *s.caller
	writer.only, writer.name = "b", "writer"
	again := func(call func() error) {
		for call() != nil {
			time.Sleep(7 * time.Millisecond)
		}
	}
	again(func() error { return writer.remove("k1") })
	var id metadata.ObjectID
	again(func() error { return writer.putStart("k2", false, writer.next+2, &id) })
	reading.Wait()
	s.world.node("a").heal()
	s.equal()
}

// Answers of etcd take long to the primary: its right counts from the sending.
func answersComeLate(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	a := s.world.node("a")
	a.links[0].Delay(0, failoverAfter/4)
	time.Sleep(time.Second)
	txns := atomic.Bool{}
	s.world.etcd.Fault(func(c Call) Verdict {
		if _, txn := c.Request.(*pb.TxnRequest); txn && c.Client == "a/journal" {
			if txns.Swap(true) {
				return Drop // the one behind
			}
		}
		return Serve
	})
	s.world.await("a commit whose answer is on its way", txns.Load)
	time.Sleep(failoverAfter/4 + 10*time.Millisecond) // it arrives
	s.world.unseat()
	s.race("k1", []string{"a", "b"}, 2*time.Second)
	s.world.etcd.Fault(nil)
	a.links[0].Delay(0, 0)
	s.equal()
}

// The primary's commits are held back until a follower has looked twice, and come
// before its transaction: it stays.
func commitBeforeDeposal(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	a := s.world.node("a")
	a.links[0].Stall()
	var looks atomic.Int64
	s.world.etcd.Fault(func(c Call) Verdict {
		if r, txn := c.Request.(*pb.TxnRequest); txn && c.Client == "b/journal" && len(r.Compare) == 0 && len(r.Success) == 2 {
			looks.Add(1)
		}
		return Serve
	})
	s.world.node("b").links[0].Delay(20*time.Millisecond, 0)
	s.world.comes(time.Millisecond, func() bool { return looks.Load() >= 3 }) // two, and one for the node's status
	a.links[0].Resume()
	time.Sleep(time.Second)
	s.world.node("b").links[0].Delay(0, 0)
	s.stays(1)
	s.equal()
}

// etcd takes longer for everybody than it may for a follower to depose, and for a
// while the primary's commits do not come through at all: nobody is deposed.
func etcdIsSlow(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	slow := func(d time.Duration) {
		for _, n := range s.world.living() {
			n.links[0].Delay(d, d)
		}
	}
	slow(100 * time.Millisecond)
	a := s.world.node("a")
	a.links[0].Stall()
	time.Sleep(5 * failoverAfter)
	a.links[0].Resume()
	s.stays(1)
	slow(0)
	s.equal()
}

// headOf returns the head that a transaction puts, false for none.
func (w *world) headOf(c Call) (h journal.Head, ok bool) {
	r, txn := c.Request.(*pb.TxnRequest)
	if !txn {
		return h, false
	}
	for _, op := range r.Success {
		if put := op.GetRequestPut(); put != nil && string(put.Key) == w.layout.Head() {
			return h, json.Unmarshal(put.Value, &h) == nil
		}
	}
	return h, false
}

// etcd is away for both nodes almost for the failover time, and the standby reaches it
// again before the primary does: nobody is deposed.
func etcdIsBackAfterASilence(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	a, b := s.world.node("a"), s.world.node("b")
	a.links[0].Stall()
	time.Sleep(failoverAfter / 20) // b has all that a has committed
	b.links[0].Stall()
	time.Sleep(failoverAfter * 8 / 10)
	b.links[0].Resume()
	time.Sleep(failoverAfter / 2)
	a.links[0].Resume()
	s.puts("k2")
	s.stays(1)
	s.equal()
}

// slowDown has slow commits raise a primary's pace, and returns its window then.
func (s story) slowDown(n *node) time.Duration {
	for range 3 {
		n.links[0].Stall()
		time.Sleep(failoverAfter / 2)
		n.links[0].Resume()
		time.Sleep(failoverAfter / 2)
	}
	s.world.await("a slower pace", func() bool { return n.Status().Raised > 0 })
	return n.Status().Window
}

// A primary whose pace was raised dies: the next one begins with that pace, since etcd
// may be as slow as before.
func raisedPaceOutlivesATakeover(s story) {
	s.world.begin("a", "b")
	a, b := s.world.node("a"), s.world.node("b")
	high := s.slowDown(a)
	s.puts("k1")
	a.kill()
	s.world.await("a takeover", func() bool { return s.world.serving() == b })
	time.Sleep(failoverAfter)
	if got := b.Status().Window; got != high {
		s.world.judge.find("LIVE", "after the takeover the window is %v, it was raised to %v", got, high)
	}
	s.puts("k2")
	time.Sleep(15 * time.Minute)
	if got := b.Status().Window; got >= high {
		s.world.judge.find("LIVE", "after a quiet quarter of an hour the window is %v", got)
	}
	s.world.start("a")
	s.equal()
}

// After a quiet quarter of an hour the primary lowers its window, and is cut off with
// the first commit that says so, which arrives: what it had before does not count.
func windowBecomesShorter(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	a := s.world.node("a")
	high := s.slowDown(a)
	lowered := make(chan struct{})
	var once sync.Once
	s.world.etcd.Fault(func(c Call) Verdict {
		if h, ok := s.world.headOf(c); ok && strings.HasPrefix(c.Client, "a/") && h.ServeWindow() < high {
			once.Do(func() { close(lowered) })
			return Lose
		}
		return Serve
	})
	select {
	case <-lowered:
	case <-time.After(20 * time.Minute):
		s.world.judge.find("LIVE", "the window stays %v", high)
		return
	}
	time.Sleep(5 * time.Millisecond)
	a.cut()
	s.world.etcd.Fault(nil)
	s.world.unseat()
	s.race("k1", []string{"a", "b"}, 2*time.Second)
	a.heal()
	s.equal()
}

// An elected node needs longer than the failover time to read the journal to its
// end: its beats keep it elected.
func longCatchUp(s story) {
	s.world.begin("a", "b", "c")
	s.puts("k1")
	s.world.node("b").links[0].HoldWatches()
	s.world.node("c").links[0].HoldWatches()
	s.puts("k2")
	s.world.node("a").kill()
	time.Sleep(6 * failoverAfter)
	s.world.node("b").links[0].ReleaseWatches()
	s.world.node("c").links[0].ReleaseWatches()
	s.stays(2)
	deposals := int64(0)
	for _, n := range s.world.living() {
		deposals += n.Status().Deposals
	}
	if deposals != 1 {
		s.world.judge.find("LIVE", "%d nodes were deposed, want a alone", deposals)
	}
	s.reads("k1", "k2")
}

// The clock of the primary is slow, as seen from the standby, by all that two clocks within
// 1/1000 of a common rate may differ: timers go at the standby's rate. Windows are long, so
// that the difference is more than a commit and a takeover need.
func clocksDiffer(s story) {
	s.world.failover, s.world.rates = 30*time.Second, map[string]float64{"a": 0.999 / 1.001}
	s.world.begin("a", "b")
	s.puts("k1")
	for range 3 {
		time.Sleep(time.Second)
		old := s.primary()
		window := old.Status().Window
		old.cut()
		s.world.unseat()
		time.Sleep(window * 9 / 10)
		s.race("k1", []string{"a", "b"}, window/5)
		old.heal()
		if !s.world.settle() {
			s.world.judge.find("LIVE", "the nodes are not healthy")
			return
		}
	}
	s.equal()
}

// Requests of the primary arrive, and no answer comes back; then the other way
// round: it is silent in time, and deposed when its commits stop.
func oneWayCut(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	for _, v := range []Verdict{Lose, Drop} {
		old := s.primary()
		s.world.etcd.Fault(func(c Call) Verdict {
			if strings.HasPrefix(c.Client, old.id+"/") {
				return v
			}
			return Serve
		})
		s.race("k1", []string{"a", "b"}, 4*failoverAfter)
		if n := s.primary(); n == old {
			s.world.judge.find("LIVE", "%s is still the primary though no answer reaches it", old.id)
		}
		s.world.etcd.Fault(nil)
		if !s.world.settle() {
			s.world.judge.find("LIVE", "the nodes are not healthy")
			return
		}
	}
	s.equal()
}

// A standby that was stopped has heard nothing for long, and deposes nobody.
func stoppedStandby(s story) {
	s.world.begin("a", "b")
	s.puts("k1")
	for range 5 {
		s.world.node("b").pause()
		time.Sleep(5 * failoverAfter)
		s.world.node("b").wake()
		time.Sleep(failoverAfter)
	}
	s.stays(1)
	s.equal()
}
