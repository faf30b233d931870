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

// keyTimeout is how long the judge tries to explain one key. Correct histories take
// milliseconds.
const keyTimeout = 15 * time.Second

// contextSteps is how many calls are shown before one that does not fit.
const contextSteps = 6

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
			switch h.explained() {
			case porcupine.Ok:
				h.needed = h.neededRemovals()
			case porcupine.Illegal:
				h.broken(t)
			case porcupine.Unknown:
				unknown.Add(1)
			}
			return nil
		})
	}
	err = g.Wait()
	return int(unknown.Load()), err
}

// explained looks for an order of a key's calls that explains all answers.
func (h *keyHistory) explained() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(h.porcupine(), h.operations(), keyTimeout)
}

// broken counts a violation for a key whose answers cannot be explained: of L if they could
// be if leases kept nothing, of D if they could be if acknowledged puts were lost, else of
// V.
func (h *keyHistory) broken(t *tally) {
	unleased := *h
	unleased.unleased = true
	if unleased.explained() == porcupine.Ok {
		t.add(L, "key %s: an object went under a lease, though nothing that may do so was asked for\n%s", h.key, h.conflict())
		return
	}
	forgetful := *h
	forgetful.forgets = true
	if forgetful.explained() == porcupine.Ok {
		t.add(D, "key %s: something acknowledged is gone, and neither a removal nor time explains it\n%s", h.key, h.conflict())
	} else {
		t.add(V, "key %s: no order of its calls explains the answers\n%s", h.key, h.conflict())
	}
}

// neededRemovals returns the removals by pattern without which the answers could not be
// explained. These must have removed an object of the key.
func (h *keyHistory) neededRemovals() (list []*Record) {
	for i, s := range h.steps {
		if s.Call != RemoveRegex || !s.maybe {
			continue
		}
		without := *h
		without.steps = slices.Delete(slices.Clone(h.steps), i, i+1)
		if without.explained() == porcupine.Illegal {
			list = append(list, s.Record)
		}
	}
	return list
}

// operations returns the steps in the checker's form.
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
func (h *keyHistory) conflict() string {
	_, info := porcupine.CheckOperationsVerbose(h.porcupine(), h.operations(), keyTimeout)
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
	for i, s := range h.steps {
		if !explained[i] && s.definite() && (wrong < 0 || s.End < h.steps[wrong].End) {
			wrong = i
		}
	}
	if wrong < 0 {
		return "  it is not clear where"
	}
	at := h.steps[wrong]
	before := slices.DeleteFunc(slices.Clone(h.steps), func(s *step) bool { return s == at || s.Start > at.End })
	var b strings.Builder
	for _, s := range before[max(0, len(before)-contextSteps):] {
		fmt.Fprintf(&b, "  %v\n", s.Record)
	}
	fmt.Fprintf(&b, "  does not fit: %v", at.Record)
	return b.String()
}
