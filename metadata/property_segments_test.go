package metadata_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func (w *world) segmentAction(t *rapid.T) {
	if slices.ContainsFunc(w.queue, func(q queued) bool {
		e, ok := q.change.(*deleteevents.Event)
		_, mount := q.change.(*metadata.Mount)
		_, drain := q.change.(*metadata.SaveDrain)
		return mount || drain || ok && e.Type == deleteevents.UnmountSegment
	}) {
		return // segments are mounted and unmounted one after the other
	}
	if w.search != nil {
		w.search()
		w.search = nil
		return
	}
	n := byte(1 + w.pick(t, "segment", 3))
	if number, ok := w.primary.FindSegment(segment.ID{15: n}); ok {
		if w.pick(t, "unmount", 4) == 0 {
			w.unmountInSteps(number)
		}
		return
	}
	e, err := w.primary.PrepareMount(segment.Spec{
		ID: segment.ID{15: n}, Name: string('a' + rune(n) - 1), Base: uint64(n) << 32, Size: 300, Client: client(n),
		Endpoint: string('a'+rune(n)-1) + ":1",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.submit(func(error) { w.remounts++ }, e)
}

// unmountInSteps begins an unmount: other actions may come before it is submitted. Users of the
// segment go on: they do not know.
func (w *world) unmountInSteps(number segment.Number) {
	look, hold := w.primary.BeginUnmountInSteps([]segment.Number{number}, w.now)
	look()
	w.search = func() {
		leases, end := hold()
		w.endUnmount = end
		w.submit(nil, &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{number}, Claims: leases})
	}
}

// settle ends the waiting for an unmount that is not under way any more.
func (w *world) settle() {
	if w.endUnmount == nil || slices.ContainsFunc(w.queue, func(q queued) bool {
		e, ok := q.change.(*deleteevents.Event)
		return ok && e.Type == deleteevents.UnmountSegment
	}) {
		return
	}
	w.endUnmount()
	w.endUnmount = nil
}
