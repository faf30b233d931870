package leasesync_test

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// FuzzDecode feeds the decoder any bytes. It must refuse them, or return a batch that survives
// encoding and decoding, with no more renewals than there are bytes.
func FuzzDecode(f *testing.F) {
	for _, renewals := range [][]leasesync.Renewal{
		{{Ref: metadata.Ref{Shard: 3, ID: 4}, Deadline: 5}},
		{{Ref: metadata.Ref{Shard: 3, ID: 4}, Deadline: 5}, {Ref: metadata.Ref{Shard: 3, ID: 9}, Deadline: 4}, {Ref: metadata.Ref{Shard: 9, ID: 1}}},
		{{Ref: metadata.Ref{ID: math.MaxUint64}, Deadline: math.MaxInt64}, {Ref: metadata.Ref{Shard: 1}, Deadline: math.MinInt64}},
	} {
		enc := metadata.Encode(nil, leasesync.Pack(renewals)[0])
		f.Add(enc)
	}
	f.Add([]byte{})
	f.Add([]byte{3, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := leasesync.Decode(b)
		if err != nil {
			return
		}
		renewals := c.(*leasesync.Batch).Renewals
		if n := len(renewals); n == 0 || n > len(b)/2 || cap(renewals) > 64+3*len(b) {
			t.Fatalf("%d bytes: got %d renewals in room for %d, want 1 or more, and no more than the bytes can hold",
				len(b), n, cap(renewals))
		}
		once := metadata.Encode(nil, c)
		again, err := leasesync.Decode(once)
		if err != nil || !slices.Equal(again.(*leasesync.Batch).Renewals, renewals) {
			t.Fatalf("a batch that is encoded and decoded again: got %+v, %v, want %+v", again, err, c)
		}
		if twice := metadata.Encode(nil, again); !bytes.Equal(once, twice) {
			t.Fatalf("%+v encodes to %x: decoded and encoded again got %x, want the same", c, once, twice)
		}
	})
}
