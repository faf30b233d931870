package journal_test

import (
	"fmt"
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// all submits changes, each of which must succeed.
func (p *primary) all(changes ...metadata.Change) {
	p.t.Helper()
	answers, err := p.queue.Submit(p.t.Context(), changes...)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, err := range answers {
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// More ranges leave quarantine at once than one commit frees, while no caller commits. A node that
// reads only records frees the same ranges at the same commits, since heartbeats that free ranges have
// records.
func TestHeartbeatsThatFreeMemoryHaveRecords(t *testing.T) {
	const objects = 10_000
	etcd := etcdtest.Start(t)
	start := now(t, etcd.Client(t))
	p := newPrimary(t, etcd.Client(t), 64<<20)
	p.writer.Filler = leasesync.NewFiller()
	if err := p.writer.Commit(t.Context(), &metadata.UseRules{Version: metadata.NewestRules}); err != nil {
		t.Fatal(err)
	}
	p.run().mount()
	const together = 500
	for i := 0; i < objects; i += together {
		var starts, ends []metadata.Change
		for j := range together {
			starts = append(starts, p.prepare(fmt.Sprint("k", i+j)))
		}
		p.all(starts...)
		for _, c := range starts {
			end, _, err := p.store.PreparePutEnd(metadata.PutRef{Tenant: "default", Key: c.(*metadata.PutStart).Key, Selector: metadata.SelectMemory}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		p.all(ends...)
	}
	var removals []metadata.Change
	at := p.now()
	for i := range objects {
		key := fmt.Sprint("k", i)
		e := p.store.Lock("default", key)
		e.Grant(at+5000, at) // until the same time for all, behind their removal
		e.Unlock()
		removal, _, err := deleteevents.Prepare(p.store, deleteevents.Request{Tenant: "default", Key: key, Force: true}, at)
		if err != nil {
			t.Fatal(err)
		}
		removals = append(removals, removal)
	}
	p.all(removals...)
	if p.store.Stats().Quarantined == 0 {
		t.Fatal("objects were removed under leases: got nothing in quarantine, want their memory")
	}
	waitFor(t, "nothing to be in quarantine", func() bool { return p.store.Stats().Quarantined == 0 })
	p.mustPut("l")
	etcd.Compact(t, p.log.Tip().Revision)
	s := newStandby()
	ended := follow(t, etcd.Client(t), start, s)
	p.mustPut("m")
	select {
	case err := <-ended:
		t.Fatalf("the reader ended with %v, want it to read on", err)
	default:
	}
	s.waitFor(t, p.store.Position())
	if got := s.store.Stats().Quarantined; got != 0 {
		t.Errorf("the reader has %d bytes in quarantine, want none", got)
	}
}
