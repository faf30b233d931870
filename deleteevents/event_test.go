package deleteevents_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func TestEventRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &deleteevents.Event{
			Type:    deleteevents.Type(rapid.IntRange(1, 5).Draw(t, "type")),
			Pattern: rapid.StringN(0, 20, 100).Draw(t, "pattern"),
		}
		for range rapid.IntRange(0, 20).Draw(t, "removals") {
			e.Removals = append(e.Removals, &metadata.Removal{
				Ref: metadata.Ref{
					Shard: uint16(rapid.IntRange(0, metadata.ShardCount-1).Draw(t, "shard")),
					ID:    metadata.ObjectID(rapid.Uint64().Draw(t, "id")),
				},
				LeaseUntil: metadata.Time(rapid.Int64().Draw(t, "until")),
				Request:    rapid.Uint64().Draw(t, "request"),
			})
		}
		for range rapid.IntRange(0, 5).Draw(t, "segments") {
			e.Segments = append(e.Segments, segment.Number(rapid.Uint32().Draw(t, "segment")))
		}
		enc := metadata.Encode(nil, e)
		got, err := deleteevents.Decode(enc)
		if err != nil {
			t.Fatal(err)
		}
		again := metadata.Encode(nil, got)
		if d := got.(*deleteevents.Event); !bytes.Equal(enc, again) || d.Type != e.Type || d.Pattern != e.Pattern ||
			len(d.Removals) != len(e.Removals) || len(d.Segments) != len(e.Segments) {
			t.Fatalf("an event that is decoded and encoded again: got %+v, want %+v", d, e)
		}
	})
}

func TestUnknownTypesAreRefused(t *testing.T) {
	for _, bad := range []deleteevents.Type{0, 7, 255} {
		enc := metadata.Encode(nil, &deleteevents.Event{Type: bad})
		if _, err := deleteevents.Decode(enc); !errors.Is(err, deleteevents.ErrUnknownType) {
			t.Errorf("decoding an event of the unknown type %v: got %v, want ErrUnknownType", bad, err)
		}
		s := metadata.New(metadata.Options{})
		commit := &metadata.Commit{Seq: 1, Term: 1, Time: 1, Changes: []metadata.Change{&deleteevents.Event{Type: bad}}}
		if _, err := s.Apply(commit, nil); err == nil {
			t.Errorf("applying an event of the unknown type %v: got no error, want one, lest the event is skipped", bad)
		}
	}
}

func TestLargestEventFits(t *testing.T) {
	e := &deleteevents.Event{Type: deleteevents.RemoveByRegex, Pattern: strings.Repeat("p", 5000)}
	for i := range deleteevents.MaxRemovals {
		e.Removals = append(e.Removals, &metadata.Removal{
			Ref:        metadata.Ref{Shard: metadata.ShardCount - 1, ID: metadata.ObjectID(uint64(i%2) * math.MaxUint64 / 2)},
			LeaseUntil: math.MaxInt64,
		})
	}
	enc := metadata.Encode(nil, e)
	if len(enc) > metadata.MaxChangeBytes {
		t.Errorf("it takes %d bytes, want at most %d", len(enc), metadata.MaxChangeBytes)
	}
}

// A deletion names ids, so a late one does not remove a later object under the same key.
func TestLateDeletionsMissLaterObjects(t *testing.T) {
	params := metadata.Params{LeaseTTL: time.Second, DiscardTimeout: time.Second, ReleaseTimeout: time.Second}
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	p.Put(nil, "k", "l")
	first := p.Remove("k", false)
	p.Commit(first)
	p.Put(nil, "k")
	late := &metadata.Removal{Ref: first.Removals[0].Ref}
	answers, err := p.Queue.Submit(t.Context(), deleteevents.Of(deleteevents.Remove, late))
	if err != nil || !errors.Is(answers[0], errs.ObjectNotFound) {
		t.Errorf("a late deletion: got %v, %v, want ObjectNotFound", answers, err)
	}
	if p.Alive("k") != 1 {
		t.Errorf("a deletion by id hit the later object under the same key: got %d objects, want 1", p.Alive("k"))
	}
	all := &deleteevents.Event{Type: deleteevents.RemoveAll, Removals: []*metadata.Removal{{Ref: late.Ref}, p.Remove("l", false).Removals[0]}}
	p.Commit(all)
	if all.Removed != 1 {
		t.Errorf("%d removed, want 1", all.Removed)
	}
	gone := &deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{99}}
	if answers, _ := p.Queue.Submit(t.Context(), gone); !errors.Is(answers[0], errs.SegmentNotFound) {
		t.Errorf("unmounting a segment that is not mounted: got %v, want SegmentNotFound", answers)
	}
}
