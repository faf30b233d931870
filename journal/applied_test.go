package journal_test

import (
	"testing"
	"time"
)

// A caller that waits for a commit is woken up by it, and finds it in the state.
func TestApplied(t *testing.T) {
	log := &gatedLog{begun: make(chan struct{}, 1), open: make(chan struct{})}
	l := startLone(t, log)
	for n := range 100 {
		before, applied := l.store.Position().Seq, l.queue.Applied()
		if err := l.mount(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		select {
		case <-applied:
		case <-time.After(30 * time.Second):
			t.Fatal("a caller that waits for a commit: got no wakeup in 30s, want one when the commit is applied")
		}
		if at := l.store.Position().Seq; at <= before {
			t.Errorf("woken up at %d, want more than that", at)
		}
	}
}
