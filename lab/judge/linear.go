package judge

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sync/errgroup"
)

// keyTimeout is how long the judge tries to explain one key. Sound histories
// take milliseconds.
const keyTimeout = 15 * time.Second

// linearize checks keys on all cores. It returns how many it could not decide.
func linearize(ctx context.Context, keys []*keyHistory, t *tally) (undecided int, err error) {
	var unknown atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, h := range keys {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !h.linearizable(t) {
				unknown.Add(1)
			}
			return nil
		})
	}
	err = g.Wait()
	return int(unknown.Load()), err
}

// linearizable looks for an order of a key's calls that explains all answers. It
// reports false if it ran out of time; that there is none goes to the tally.
func (h *keyHistory) linearizable(t *tally) (decided bool) {
	if len(h.steps) == 0 {
		return true
	}
	model, operations := h.porcupine(), h.operations()
	switch porcupine.CheckOperationsTimeout(model, operations, keyTimeout) {
	case porcupine.Ok:
		return true
	case porcupine.Illegal:
		t.add(V, "key %s: no order of its calls explains the answers\n%s", h.key, h.conflict(model, operations))
		return true
	default:
		return false
	}
}

// operations are the steps in the checker's form.
func (h *keyHistory) operations() []porcupine.Operation {
	list := make([]porcupine.Operation, 0, len(h.steps)+1)
	open := false
	for _, s := range h.steps {
		list = append(list, porcupine.Operation{Input: s, Call: int64(s.Start), Return: s.until})
		open = open || s.until == never
	}
	if open {
		list = append(list, porcupine.Operation{Input: &step{close: true, Record: new(Record)}, Call: never - 1, Return: never})
	}
	return list
}

// conflict describes where the longest explanation of a history ends: the call
// that does not fit, and what came before and beside it.
func (h *keyHistory) conflict(model porcupine.Model, operations []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, operations, keyTimeout)
	explained := make(map[int]bool)
	for _, partition := range info.PartialLinearizations() {
		for _, partial := range partition {
			if len(partial) > len(explained) {
				clear(explained)
				for _, id := range partial {
					explained[id] = true
				}
			}
		}
	}
	wrong := -1
	for i := range operations {
		s := operations[i].Input.(*step)
		if !explained[i] && s.definite() && (wrong < 0 || s.End < h.steps[wrong].End) {
			wrong = i
		}
	}
	if wrong < 0 {
		return "  it cannot be said where"
	}
	return h.around(wrong)
}

// contextSteps is how many calls before one that does not fit are shown.
const contextSteps = 6

// around shows a step with some of those before it.
func (h *keyHistory) around(wrong int) string {
	at := h.steps[wrong]
	before := slices.DeleteFunc(slices.Clone(h.steps), func(s *step) bool { return s == at || s.Start > at.End })
	before = before[max(0, len(before)-contextSteps):]
	var b strings.Builder
	for _, s := range before {
		fmt.Fprintf(&b, "  %v\n", s.Record)
	}
	fmt.Fprintf(&b, "  does not fit: %v", at.Record)
	return b.String()
}
