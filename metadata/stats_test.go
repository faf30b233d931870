package metadata_test

import (
	"sync"
	"testing"

	"github.com/understudy-store/understudy/metadata"
)

// Figures are those of the sequence that they come with, also while commits are
// applied: here a segment comes with every even one, and goes with the next.
func TestFiguresAreOfOneSequence(t *testing.T) {
	c := newCluster(t)
	var reading sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		reading.Go(func() {
			for {
				if at, st := c.primary.Figures(); st.Segments != int(1-at.Seq%2) {
					t.Errorf("at %d there are %d segments", at.Seq, st.Segments)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 5000 {
		c.unmount(c.mount(1, "host-1", 1<<20))
	}
	close(done)
	reading.Wait()
	at, st := c.primary.Figures()
	if at != c.primary.Position() || st != c.primary.Stats() || at == (metadata.Position{}) {
		t.Errorf("%+v, %+v", at, st)
	}
}
