package share

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// A peer that waits often holds up no other: lines take turns, and a peer at its limit is
// passed over.
func TestWaitTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(Rule{Total: 4, Peer: 2, Few: 4})
		got := make(chan string, 20)
		wait := func(peer string, n int64) {
			go func() {
				if err := b.Wait(t.Context(), peer, n); err != nil {
					t.Error(err)
				}
				got <- peer
			}()
			synctest.Wait()
		}
		next := func() (peers []string) {
			synctest.Wait()
			for len(got) > 0 {
				peers = append(peers, <-got)
			}
			return peers
		}
		for range 5 {
			wait("many", 1)
		}
		wait("one", 1)
		if peers := next(); !slices.Equal(peers, []string{"many", "many", "one"}) {
			t.Errorf("at first: got %v, want many twice, and one", peers)
		}
		wait("one", 1)
		wait("another", 1) // all are taken
		if peers := next(); !slices.Equal(peers, []string{"one"}) {
			t.Errorf("the last one: got %v, want one", peers)
		}
		b.GiveBack("many", 1)
		if peers := next(); !slices.Equal(peers, []string{"many"}) {
			t.Errorf("when one is given back: got %v, want many, which waited first", peers)
		}
		b.GiveBack("many", 1)
		if peers := next(); !slices.Equal(peers, []string{"another"}) {
			t.Errorf("when the next is given back: got %v, want another", peers)
		}
		b.GiveBack("one", 2)
		b.GiveBack("many", 1)
		b.GiveBack("another", 1)
		if peers := next(); len(peers) != 2 {
			t.Errorf("when all are given back: got %v, want many twice", peers)
		}
		b.GiveBack("many", 2)
		if !b.Empty() {
			t.Errorf("all is given back: got %v counted, want none", b.of)
		}
	})
}

// Who waits for much keeps its turn against others, but not against peers with few.
func TestWaitForMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(Rule{Total: 16, Peer: 10, Few: 1})
		ctx, leave := context.WithCancelCause(t.Context())
		if taken, _, _ := b.Take("a", 10); !taken {
			t.Fatal("the first of the whole budget: got nothing for a, want 10")
		}
		var left error
		go func() { left = b.Wait(ctx, "b", 8) }()
		synctest.Wait()
		passed := false
		go func() { passed = b.Wait(t.Context(), "c", 2) == nil }()
		if err := b.Wait(t.Context(), "d", 1); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if passed {
			t.Error("c waits for 2 and b, before it, for 8: got c served first, want b")
		}
		why := errors.New("on purpose")
		leave(why)
		synctest.Wait()
		if !errors.Is(left, why) || !passed {
			t.Errorf("when b leaves: it got %v, and c is served: %t; want %v and true", left, passed, why)
		}
	})
}
