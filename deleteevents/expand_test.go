package deleteevents_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
)

var params = metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

func expander(p *lonetest.Primary) *deleteevents.Expander {
	return &deleteevents.Expander{Store: p.Store, Queue: p.Queue, Now: p.Now, Fence: func(context.Context) error { return nil }}
}

// An object that was put under a key after the match is another object, and stays. So does an
// object that got a lease after the match.
func TestWhatChangesAfterItWasMatchedStays(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	keys := []string{"again", "gone", "read", "plain"}
	p.Put(nil, keys...)
	matched := 0
	result, err := expander(p).Remove(t.Context(), deleteevents.Selection{
		Type: deleteevents.RemoveByRegex, Pattern: "p", Tenant: metadata.DefaultTenant,
		Match: func(string) bool {
			if matched++; matched == len(keys) { // nothing is removed before all are matched
				p.Commit(p.Remove("again", true), p.Remove("gone", true))
				p.Put(nil, "again")
				p.Get("read")
			}
			return true
		},
	})
	if want := (deleteevents.Result{Removed: 1, Leased: 1, Events: 1, Changed: true}); result != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", result, err, want)
	}
	for key, want := range map[string]int{"again": 1, "gone": 0, "read": 1, "plain": 0} {
		if got := p.Alive(key); got != want {
			t.Errorf("%s: got %d objects, want %d", key, got, want)
		}
	}
}

// A selection is expanded into events that each fit a record.
func TestChunks(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	keys := lonetest.Keys("k", deleteevents.MaxRemovals+1)
	p.Put(nil, keys...)
	result, err := expander(p).Remove(t.Context(), deleteevents.Selection{Type: deleteevents.RemoveAll})
	if want := (deleteevents.Result{Removed: len(keys), Events: 2, Changed: true}); result != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", result, err, want)
	}
	if left := p.Alive(keys...); left != 0 {
		t.Errorf("got %d objects left, want 0", left)
	}
}

// A call that ends early says what it has removed until then.
func TestAnEarlyEnd(t *testing.T) {
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, lonetest.Keys("k", 20)...)
	ctx, cancel := context.WithCancel(t.Context())
	result, err := expander(p).Remove(ctx, deleteevents.Selection{
		Type: deleteevents.RemoveAll, Match: func(string) bool { cancel(); return true },
	})
	if result.Removed != 0 || !errors.Is(err, errs.Unavailable) {
		t.Errorf("a caller that has gone: got %d removed, %v; want 0, Unavailable", result.Removed, err)
	}
	x := expander(p)
	x.Fence = func(context.Context) error { return errs.NotLeader }
	result, err = x.Remove(t.Context(), deleteevents.Selection{Type: deleteevents.RemoveAll})
	if result.Removed != 0 || !errors.Is(err, errs.NotLeader) {
		t.Errorf("a node that may not serve: got %d removed, %v; want 0, NotLeader", result.Removed, err)
	}
	if left := p.Alive(lonetest.Keys("k", 20)...); left != 20 {
		t.Errorf("got %d objects left, want all 20", left)
	}
}
