package metadata_test

import (
	"sync"
	"testing"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// Figures are those of the sequence that they name, also while commits are applied. Here every
// even sequence mounts a segment, and the next one unmounts it.
func TestFiguresAreOfOneSequence(t *testing.T) {
	c := newCluster(t)
	var reading sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		reading.Go(func() {
			for {
				if at, st := c.primary.Figures(); st.Segments != int(1-at.Seq%2) {
					t.Errorf("at %d: got %d segments in the figures, want %d, that of this sequence",
						at.Seq, st.Segments, 1-at.Seq%2)
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
		t.Errorf("got the figures %+v at %+v, want %+v at %+v", st, at, c.primary.Stats(), c.primary.Position())
	}
}

// The figures are the sums over all segments and SSDs, after any change, on each node.
func TestFiguresAreSums(t *testing.T) {
	c := newCluster(t)
	check := func(what string) {
		t.Helper()
		for node, s := range c.everywhere() {
			if faults := s.ChargeFaults(); faults != nil {
				t.Errorf("%s, %s: got %v, want the sums over all segments and SSDs", what, node, faults)
			}
		}
	}
	a, b := c.mount(1, "a", 1<<20), c.mount(2, "b", 1<<21)
	on := func(name string) func(*metadata.Put) {
		return func(p *metadata.Put) { p.Preferred = []string{name} }
	}
	for _, key := range []string{"1", "2", "3"} {
		c.put(key+"a", on("a"))
		c.put(key+"b", on("b"))
		c.read(key + "a")
		c.read(key + "b")
	}
	check("puts")
	removed := func(keys ...string) {
		for _, key := range keys {
			c.must([]error{c.remove(key, true)}) // into quarantine, until the lease ends
		}
	}
	removed("1a", "1b")
	if st := c.primary.Stats(); st.Busy != 6*104 || st.Quarantined != 2*104 || st.Capacity != 3<<20 {
		t.Errorf("got %+v, want 6 ranges busy, 2 of them in quarantine", st)
	}
	check("removals")
	e, err := c.primary.PrepareClose(client(1), a, c.now.Add(time.Hour))
	c.must([]error{err})
	c.must(c.commit(e))
	check("a closed segment")
	removed("2a", "2b")
	check("removals from a closed segment")
	if st := c.primary.Stats(); st.Busy != 3*104 || st.Quarantined != 2*104 || st.LeavingSoon != 2*104 || st.Capacity != 1<<21 || st.Closed != 1<<20 {
		t.Errorf("got %+v, want what is on b", st)
	}
	c.pass(time.Minute)
	c.commit()
	check("the end of quarantine")
	removed("3a", "3b")
	c.unmount(a)
	check("an unmount of the closed one")
	c.unmount(b)
	check("an unmount")
	c.mountDisk(1, true)
	c.setCapacity(1, 500)
	c.setCapacity(1, 300)
	check("an SSD")
	c.unmountDisk(1)
	check("none")
	if st := c.primary.Stats(); st.Busy+st.Quarantined+st.LeavingSoon+st.Capacity+st.Closed+st.SSDCapacity != 0 {
		t.Errorf("got %+v, want none of anything", st)
	}
}
