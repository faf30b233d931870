package metadata_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
)

// Readers find the whole object of the key that they ask for, or none, while objects are put and
// removed and reuse memory, and while tables grow and shrink.
func TestReadersWhileObjectsComeAndGo(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<30)
	var names []string
	for i := range 600 { // many lengths, so that chunks empty, and change their class
		names = append(names, fmt.Sprint("key-", i, strings.Repeat("x", i%500)))
	}
	sized := func(name string) func(*metadata.Put) {
		return func(p *metadata.Put) { p.Size = uint64(len(name)) }
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			grants := leases(c.primary)
			for at := 0; ; at = (at + 100) % len(names) {
				select {
				case <-done:
					return
				default:
				}
				asked := names[at : at+100]
				lookups := c.primary.Lookups(metadata.DefaultTenant, asked)
				for i, name := range asked {
					e := lookups.Lock(i)
					if e.Exists() && (e.Key() != name || e.Tenant() != metadata.DefaultTenant) {
						t.Errorf("looking up %.20s: got the object of %.20s, want its own or none", name, e.Key())
					}
					e.Unlock()
					list, wait, err := grants.BatchGetReplicaList(lookups, i, 1)
					if wait == nil && err == nil && (list.Size != uint64(len(name)) || len(list.Replicas) != 1 || list.Replicas[0].Segment != "a") {
						t.Errorf("reading %.20s: got %+v, want %d bytes on a, or no object", name, list, len(name))
					}
				}
			}
		})
	}
	for round := range 4 {
		var starts, ends, removed []metadata.Change
		for _, name := range names[round*50:] {
			e, err := c.preparePut(name, sized(name))
			if err != nil {
				t.Fatal(err)
			}
			starts = append(starts, e)
		}
		c.must(c.commit(starts...))
		for _, name := range names[round*50:] {
			e, _, err := c.primary.PreparePutEnd(c.putRef(name), nil)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, e)
		}
		c.must(c.commit(ends...))
		for _, name := range names[round*50:] {
			e, _, err := deleteevents.Prepare(c.primary, deleteevents.Request{Tenant: metadata.DefaultTenant, Key: name, Force: true}, c.now)
			if err != nil {
				t.Fatal(err)
			}
			removed = append(removed, e)
		}
		c.must(c.commit(removed...))
	}
	close(done)
	readers.Wait()
}
