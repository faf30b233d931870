package deleteevents_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// FuzzDecode feeds the decoder any bytes. It must refuse them, or return an event that survives
// encoding and decoding, with no more ids than there are bytes.
func FuzzDecode(f *testing.F) {
	late := &metadata.Removal{Ref: metadata.Ref{Shard: 1023, ID: math.MaxUint64}, LeaseUntil: math.MaxInt64, Request: 1}
	for _, e := range []*deleteevents.Event{
		{Type: deleteevents.Remove, Removals: []*metadata.Removal{{Request: 1}}},
		{Type: deleteevents.RemoveByRegex, Pattern: "^a.*$", Removals: []*metadata.Removal{late, {LeaseUntil: math.MinInt64}}},
		{Type: deleteevents.UnmountSegment, Segments: []segment.Number{1, math.MaxUint32}},
	} {
		enc := metadata.Encode(nil, e)
		f.Add(enc)
	}
	f.Add([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := deleteevents.Decode(b)
		if err != nil {
			return
		}
		e := c.(*deleteevents.Event)
		if len(e.Removals) > len(b)/4 || len(e.Segments) > len(b) || len(e.Pattern) > deleteevents.MaxPatternBytes {
			t.Fatalf("%d bytes: got %d removals, %d segments and a pattern of %d bytes, want no more than the bytes can hold",
				len(b), len(e.Removals), len(e.Segments), len(e.Pattern))
		}
		once := metadata.Encode(nil, e)
		again, err := deleteevents.Decode(once)
		if err != nil {
			t.Fatalf("%x encodes to %x: decoding that got %v, want no error", b, once, err)
		}
		if twice := metadata.Encode(nil, again); !bytes.Equal(once, twice) {
			t.Fatalf("%x encodes to %x: decoded and encoded again got %x, want the same", b, once, twice)
		}
	})
}
