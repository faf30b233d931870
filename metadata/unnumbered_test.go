package metadata_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
)

func unnumbered(p *metadata.Put) { p.Unnumbered = true }

// A client without request ids can put again, in the same term, if it never got the answer to
// its put. No other client can, nor one that got the answer.
func TestUnnumberedPuts(t *testing.T) {
	other := func(p *metadata.Put) { p.Client = client(2) }
	for name, tc := range map[string]struct {
		takeOver, abandon, end bool
		options                []func(*metadata.Put)
		want                   errs.Kind
	}{
		"answered":                               {options: []func(*metadata.Put){unnumbered}, want: errs.ObjectExists},
		"its caller was gone":                    {abandon: true, options: []func(*metadata.Put){unnumbered}},
		"of an earlier term":                     {takeOver: true, options: []func(*metadata.Put){unnumbered}, want: errs.ObjectExists},
		"both":                                   {takeOver: true, abandon: true, options: []func(*metadata.Put){unnumbered}, want: errs.ObjectExists},
		"its caller was gone, numbered":          {abandon: true, want: errs.ObjectExists},
		"of an earlier term, numbered":           {takeOver: true, want: errs.ObjectExists},
		"its caller was gone, another client's":  {abandon: true, options: []func(*metadata.Put){unnumbered, other}, want: errs.ObjectExists},
		"of an earlier term, another client's":   {takeOver: true, options: []func(*metadata.Put){unnumbered, other}, want: errs.ObjectExists},
		"its caller was gone, but came back":     {abandon: true, end: true, options: []func(*metadata.Put){unnumbered}, want: errs.ObjectExists},
		"of an earlier term, and finished since": {takeOver: true, end: true, options: []func(*metadata.Put){unnumbered}, want: errs.ObjectExists},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.mount(1, "a", 1<<10)
			if err := c.putStart("k", unnumbered); err != nil {
				t.Fatal(err)
			}
			before, _ := c.primary.Inspect(metadata.DefaultTenant, "k")
			digest := c.primary.Position().Digest
			if tc.abandon {
				c.primary.Abandon(metadata.DefaultTenant, "k", before.ID)
			}
			if c.primary.Position().Digest != digest {
				t.Error("the caller of a put has gone: got another digest, want the same: the mark is no state")
			}
			if tc.takeOver {
				c.takeOver(0)
			}
			if tc.end {
				c.must([]error{c.putEnd("k")})
			}
			err := c.putStart("k", tc.options...)
			wantKind(t, "the put", err, tc.want)
			if err != nil {
				return
			}
			after, _ := c.primary.Inspect(metadata.DefaultTenant, "k")
			if after.ID <= before.ID || after.Replicas[0].Address == before.Replicas[0].Address {
				t.Errorf("a put that replaces %v at %#x: got %v at %#x, want a later id, and other memory",
					before.ID, before.Replicas[0].Address, after.ID, after.Replicas[0].Address)
			}
			if st := c.primary.Stats(); st.Quarantined != 104 || st.Busy != 208 {
				t.Errorf("a put was replaced: got %d bytes in quarantine and %d busy, want 104, its own, and 208",
					st.Quarantined, st.Busy)
			}
			wantKind(t, "once more", c.putStart("k", unnumbered), errs.ObjectExists)
			c.pass(params.ReleaseTimeout - time.Second)
			c.commit()
			if st := c.primary.Stats(); st.Quarantined != 104 {
				t.Errorf("A: 1s before the release time: got %d bytes in quarantine, want 104: the first writer may be late",
					st.Quarantined)
			}
			c.pass(time.Second)
			c.commit()
			if st := c.primary.Stats(); st.Quarantined != 0 {
				t.Errorf("after the release time: got %d bytes in quarantine, want none", st.Quarantined)
			}
		})
	}
}

// A caller may be gone before its put is committed.
func TestAbandonedBeforeItIsCommitted(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	e, err := c.preparePut("k", unnumbered)
	if err != nil {
		t.Fatal(err)
	}
	c.primary.Abandon(metadata.DefaultTenant, "k", e.ID+1) // another put: no effect
	c.primary.Abandon("nobody", "k", e.ID)
	c.primary.Abandon(metadata.DefaultTenant, "k", e.ID)
	c.must(c.commit(e))
	c.must([]error{c.putStart("k", unnumbered)})

	e, _ = c.preparePut("told", unnumbered)
	c.primary.Abandon(metadata.DefaultTenant, "told", e.ID+1)
	c.must(c.commit(e))
	wantKind(t, "a put that only another id was abandoned of", c.putStart("told", unnumbered), errs.ObjectExists)
}

// An object that readers rely on is not given up.
func TestAbandonLeavesReadableObjects(t *testing.T) {
	c := newCluster(t)
	c.mount(1, "a", 1<<10)
	onDiskToo := func(p *metadata.Put) { p.DiskPath = "/d/k" }
	c.put("k", onDiskToo)
	o, _ := c.primary.Inspect(metadata.DefaultTenant, "k")
	c.primary.Abandon(metadata.DefaultTenant, "k", o.ID)
	c.unmount(c.primary.Segments()[0].ID) // the file on disk is still being written
	c.mount(2, "b", 1<<10)
	wantKind(t, "a put", c.putStart("k", unnumbered, onDiskToo), errs.ObjectExists)
}
