package share

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

// slow is read after a pause.
type slow time.Duration

func (s slow) Read(b []byte) (int, error) {
	time.Sleep(time.Duration(s))
	return len(b), nil
}

// A connection that is never waited for needs a slot, of which a peer has half of the processors;
// others wait until it is given back, but not for ever, and other peers have slots of their own.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := NewSlots(clock.Runtime(), 4)
		serve := func(peer string, from slow) *Slot {
			s := slots.Of(peer)
			time.Sleep(2 * longestRun)
			if n, err := s.Read(from, make([]byte, 7)); n != 7 || err != nil {
				t.Fatalf("Read: got %d, %v, want 7 and no error", n, err)
			}
			return s
		}
		has := func(what string, s *Slot, want bool) {
			t.Helper()
			if s.Has() != want {
				t.Errorf("%s: has a slot: got %v, want %v", what, s.Has(), want)
			}
		}
		waits := serve("a", slow(shortestWait))
		waits.Wait(t.Context())
		has("one whose peer is waited for", waits, false)
		first, second, third := serve("a", 0), serve("a", 0), serve("a", 0)
		for _, s := range []*Slot{first, second} {
			s.Wait(t.Context())
			has("one of half of the processors", s, true)
		}
		got := make(chan struct{})
		go func() { third.Wait(t.Context()); close(got) }()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("a third connection of a peer with two slots: got one at once, want it to wait")
		default:
		}
		other := serve("b", 0)
		other.Wait(t.Context())
		has("another peer's", other, true)
		_, _ = first.Read(slow(0), nil) // which ends its slot
		<-got
		has("the third one, after the first", third, true)

		began := time.Now()
		first.Wait(t.Context())
		has("one that has waited for long", first, false)
		if took := time.Since(began); took != longestSlot {
			t.Errorf("it waited %v, want %v", took, longestSlot)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		began = time.Now()
		if first.Wait(stopped); time.Since(began) > 0 {
			t.Errorf("a wait after its context's end: got %v, want none", time.Since(began))
		}
		for _, s := range []*Slot{waits, first, second, third, other} {
			s.End()
			s.End()
		}
		if !slots.Empty() {
			t.Error("all slots are given back: got one still taken, want none")
		}
	})
}
