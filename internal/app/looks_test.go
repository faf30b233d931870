package app

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
)

// However many ask for a node's status, it reads from etcd a bounded number of times. Each is told
// what was read after it had asked, soon.
func TestLooksAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			callers = 200
			lasts   = 10 * time.Second
			takes   = 10 * time.Millisecond
		)
		l := newLooks[time.Time]()
		var reads atomic.Int64
		read := func(context.Context) time.Time {
			reads.Add(1)
			begun := time.Now()
			time.Sleep(takes)
			return begun
		}
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					asked := time.Now()
					if begun := l.share(ctx, read); begun.Before(asked) && ctx.Err() == nil {
						t.Errorf("a look of %v for one who asked at %v, want a later one", begun, asked)
						return // it may have taken no time, so that the test's would never end
					}
					if took := time.Since(asked); took > takes+time.Second/looksPerSecond+takes {
						t.Errorf("a look took %v, want little more than that of one, %v", took, takes)
					}
				}
			})
		}
		all.Wait()
		if got, most := reads.Load(), int64(lasts/time.Second*looksPerSecond+looksAtOnce+1); got > most || got < most/2 {
			t.Errorf("%d callers had %d looks, want at most %d and about as many", callers, got, most)
		}
	})
}

// Callers of the same look share it without harm.
func TestStatusesAtOnce(t *testing.T) {
	t.Parallel()
	a := run(t, settings(config.Primary, "a", etcdtest.Start(t).Endpoints()))
	a.serves()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if st, err := a.admin.Status(t.Context(), &pb.StatusRequest{}); err != nil || st.GetNode().GetNodeId() != "a" {
				t.Errorf("got %v, %v; want the status of a", st, err)
			}
		})
	}
	all.Wait()
}
