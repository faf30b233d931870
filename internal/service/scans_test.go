package service_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
)

// Searches take turns, too: half of the processors are for all else.
func TestSearchesTakeTurns(t *testing.T) {
	f := newFixture(t)
	f.Scans = service.NewScans()
	f.put(t, "a")
	var ends []func()
	for range max(1, runtime.GOMAXPROCS(0)/2) {
		end, err := f.Scans.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := f.Keys(soon, "default", "a", true, service.Page{}); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("one search more: got %v, want UNAVAILABLE_IN_CURRENT_STATUS", err)
	}
	for _, end := range ends {
		end()
	}
	if keys, _, err := f.Keys(t.Context(), "default", "a", true, service.Page{}); err != nil || len(keys) != 1 {
		t.Errorf("after them: got %v, %v; want a", keys, err)
	}
}

// Calls that look at every object take turns; one that gives up has changed nothing.
func TestScansTakeTurns(t *testing.T) {
	f := newFixture(t)
	f.Scans = service.NewScans()
	f.put(t, "a")
	looking, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := f.RemoveMatching(t.Context(), func(string) bool { close(looking); <-leave; return false })
		done <- err
	}()
	<-looking
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if n, err := f.RemoveByRegex(soon, service.RemoveRequest{Tenant: "default", Force: true}, "a"); errs.KindOf(err) != errs.Unavailable || n.Removed != 0 {
		t.Errorf("a removal beside another: got %+v, %v; want 0 and UNAVAILABLE_IN_CURRENT_STATUS", n, err)
	}
	if keys, _, err := f.Keys(t.Context(), "default", "a", true, service.Page{}); err != nil || len(keys) != 1 {
		t.Errorf("a search beside it: got %v, %v; want a", keys, err)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n, err := f.RemoveByRegex(t.Context(), service.RemoveRequest{Tenant: "default", Force: true}, "a"); err != nil || n.Removed != 1 {
		t.Errorf("after it: got %+v, %v; want 1", n, err)
	}
}

// A peer that asks for very many searches holds up another by no more than two of them,
// whatever is searched for. So do streams of events that are behind.
func TestScansTakeTurnsByPeer(t *testing.T) {
	for what, wait := range map[string]func(*service.Scans, context.Context) (end func(), err error){
		"searches":          (*service.Scans).Look,
		"streams of events": (*service.Scans).CatchUp,
	} {
		t.Run(what, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { takeTurnsByPeer(t, wait) }) })
	}
}

func takeTurnsByPeer(t *testing.T, wait func(*service.Scans, context.Context) (end func(), err error)) {
	scans := service.NewScans()
	began, goOn := make(chan string, 200), make(chan struct{})
	look := func(peer string) {
		end, err := wait(scans, service.From(t.Context(), service.Caller{Peer: peer}))
		if err != nil {
			t.Error(err)
			return
		}
		began <- peer
		<-goOn
		end()
	}
	for range 100 {
		go look("many")
	}
	synctest.Wait()
	under := len(began)
	if most := max(1, runtime.GOMAXPROCS(0)/2); under > most {
		t.Errorf("%d of one peer are under way at once, want %d at most", under, most)
	}
	for range under {
		<-began
	}
	go look("one")
	synctest.Wait()
	close(goOn)
	synctest.Wait()
	before := 0
	for <-began == "many" {
		before++
	}
	if before > 1 {
		t.Errorf("another one waits for %d of a peer with many, beside those under way; want at most 1", before)
	}
}
