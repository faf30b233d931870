package journal_test

import (
	"context"
	"errors"
	"testing"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/journal"
)

type tag struct{}

// A tracer notes what the writer says of commits.
type tracer struct {
	seen     []journal.Head
	outcomes []error
	callers  []any
}

func (r *tracer) Commit(ctx context.Context, head journal.Head, _ int, callers []context.Context) (context.Context, func(error)) {
	r.seen = append(r.seen, head)
	for _, c := range callers {
		r.callers = append(r.callers, c.Value(tag{}))
	}
	return context.WithValue(ctx, tag{}, "traced"), func(err error) { r.outcomes = append(r.outcomes, err) }
}

// A tracer gets each commit that callers wait for, with their contexts and the outcome. It does not get
// heartbeats.
func TestTracer(t *testing.T) {
	p := newPrimary(t, etcdtest.Start(t).Client(t), 1<<20)
	r, traced := &tracer{}, false
	p.writer.Tracer = r
	p.seen.onCommit = func(ctx context.Context) { traced = traced || ctx.Value(tag{}) == "traced" }
	p.run().mount()
	began := len(r.seen)
	ctx := context.WithValue(t.Context(), tag{}, "mine")
	if err := p.put(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	at := p.store.Position()
	if _, err := p.client.Delete(t.Context(), p.layout.Leader()); err != nil {
		t.Fatal(err)
	}
	if err := p.put(ctx, "late"); err == nil {
		t.Fatal("a put after the end of the term: got no error, want it refused")
	}
	err := <-p.done // the writer ends: from here on nobody else reads what it wrote
	p.done <- err
	if n := len(r.seen) - began; n < 1 || n > 2 || r.seen[began].Term != 1 || r.seen[began].Seq > at.Seq || r.callers[began] != "mine" {
		t.Errorf("got %+v of callers %v after %d, want the commits of two puts at most, the first before %v", r.seen, r.callers, began, at)
	}
	if r.outcomes[began] != nil || !traced {
		t.Errorf("the outcomes are %v and the observer got the tracer's context: %v; want none for the first put, and true", r.outcomes, traced)
	}
	if last := r.outcomes[len(r.outcomes)-1]; len(r.outcomes) != len(r.seen) || len(r.seen)-began == 2 && !errors.Is(last, journal.ErrFenced) {
		t.Errorf("got %d outcomes of %d commits, the last %v; want one each, the last ErrFenced", len(r.outcomes), len(r.seen), last)
	}
}
