package promote

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An interruption is written when it is over, not at some later look; one that etcd did not
// take is written a second later, with those that came meanwhile.
func TestInterruptionsAreRecordedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		term := &Term{recorded: TermRecord{Term: 7, NodeID: "a"}, counted: make(chan struct{}, 1)}
		ctx, end := context.WithCancel(t.Context())
		began := time.Now()
		type written struct {
			TermRecord
			at time.Duration
		}
		var last atomic.Pointer[written]
		last.Store(new(written))
		var away atomic.Bool
		ended := make(chan error)
		go func() {
			ended <- term.recordInterruptions(ctx, func(_ context.Context, r TermRecord) error {
				if away.Load() {
					return errors.New("etcd is away")
				}
				last.Store(&written{r, time.Since(began)})
				return nil
			})
		}()
		want := func(what string, r Interruptions, after time.Duration) {
			t.Helper()
			synctest.Wait()
			if w := last.Load(); w.Term != 7 || w.NodeID != "a" || w.Interruptions != r || w.at != after {
				t.Errorf("%s: got %+v; want %+v, written at %v", what, *w, r, after)
			}
		}
		time.Sleep(1300 * time.Millisecond)
		term.interrupted(20 * time.Millisecond)
		want("the first", Interruptions{1, 20, 20}, 1300*time.Millisecond)
		term.interrupted(50 * time.Millisecond)
		want("the second", Interruptions{2, 70, 50}, 1300*time.Millisecond)
		away.Store(true)
		term.interrupted(time.Millisecond)
		time.Sleep(500 * time.Millisecond)
		away.Store(false)
		term.interrupted(time.Millisecond)
		want("while etcd was away", Interruptions{2, 70, 50}, 1300*time.Millisecond)
		time.Sleep(500 * time.Millisecond)
		want("when it is back", Interruptions{4, 72, 50}, 2300*time.Millisecond)
		end()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v at the end, want that the context has ended", err)
		}
	})
}
