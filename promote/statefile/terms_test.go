package statefile_test

import (
	"fmt"
	"testing"

	"github.com/understudy-store/understudy/metadata"
)

// resign ends a term cleanly, with a commit of nothing.
func (p *primary) resign() {
	p.t.Helper()
	at := p.store.Position()
	c := &metadata.Commit{Seq: at.Seq + 1, Term: at.Term}
	if _, err := p.store.Apply(c, nil); err != nil {
		p.t.Fatal(err)
	}
	p.commits = append(p.commits, c)
}

// The term changes between two parts, or in front of the first or behind the last: the file
// is loaded all the same, and goes on in the new term.
func TestSavingAcrossAChangeOfTerm(t *testing.T) {
	for _, between := range []int{0, 1, 500, metadata.SnapshotParts - 1, metadata.SnapshotParts} {
		t.Run(fmt.Sprint("before part ", between), func(t *testing.T) {
			p, d := newPrimary(t, 300), open(t, t.TempDir())
			begin := func() {
				p.resign()
				p.begin(2)
				p.put()
			}
			asked := 0
			if between == 0 {
				begin()
			}
			at, err := d.Save(ticking{t.Context(), func() {
				if asked++; asked == between {
					begin()
				}
			}}, p.source())
			if err != nil {
				t.Fatal(err)
			}
			through := p.store.Position()
			if between == metadata.SnapshotParts {
				begin()
			}
			p.put()
			d = reopened(t, d)
			s, skipped := load(t, d)
			if s == nil || skipped != nil || s.Store.Position() != through || s.At != at || at != inTerm(through.Term, through.Seq) {
				t.Fatalf("loaded %+v, passed over %v; want the state at %+v", s, skipped, through)
			}
			for _, c := range p.commits[through.Seq:] {
				if _, err := s.Store.Apply(c, nil); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := s.Store.Position(), p.store.Position(); got != want || got.Term != 2 {
				t.Errorf("going on it comes to %+v, want %+v in term 2", got, want)
			}
		})
	}
}
