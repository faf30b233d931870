package journal_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// someChanges are a few of each stream.
func someChanges() [metadata.StreamCount][]metadata.Change {
	return [metadata.StreamCount][]metadata.Change{
		metadata.LeaseRenewals: {
			&leasesync.Batch{Renewals: []leasesync.Renewal{{Ref: metadata.Ref{Shard: 3, ID: 4}, Deadline: 5}}},
		},
		metadata.ObjectEvents: {
			&metadata.TermStart{Term: 2, Params: params, Guard: time.Second},
			&metadata.Mount{Spec: segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 20}, Replaces: []segment.Number{1}},
			&metadata.PutStart{Tenant: "default", Key: strings.Repeat("key", 200), ID: 11, Size: 4},
			&metadata.PutEnd{Ref: metadata.Ref{Shard: 5, ID: 9}, Selector: metadata.SelectMemory},
		},
		metadata.DeleteEvents: {
			&deleteevents.Event{Type: deleteevents.Remove, Removals: []*metadata.Removal{{Ref: metadata.Ref{Shard: 5, ID: 9}, Request: 1}}},
			&deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{1}},
		},
	}
}

// framed returns changes as they stand in a record.
func framed(t testing.TB, changes []metadata.Change) (b []byte) {
	t.Helper()
	for _, c := range changes {
		enc := metadata.Encode(nil, c)
		b = binenc.AppendString(b, string(enc))
	}
	return b
}

// FuzzRecord feeds the decoder any record. With mend, it first gives a body of the fuzzer, packed or
// not, a fitting header. The decoder must refuse the record, or return changes that survive encoding
// and decoding, and must not take more memory than a record may.
func FuzzRecord(f *testing.F) {
	for stream, changes := range someChanges() {
		record := journal.EncodeRecord(journal.Stamp{Term: 3, Seq: 7, Time: 99}, len(changes), framed(f, changes))
		f.Add(record, byte(stream), byte(0))
		f.Add(record, byte(stream), byte(1))
	}
	f.Add([]byte{1, 1, 0, 0, 0, 0, 1}, byte(0), byte(0))
	zeros := append([]byte{1, 0, 0, 0, 0, 0, 3, 7, 99, 0xe0, 0xff, 0xff, 0x01}, make([]byte, journal.MaxRecordBytes-7)...)
	for stream := range metadata.StreamCount { // a few hundred bytes in etcd
		f.Add(s2.Encode(nil, zeros), byte(stream), byte(3))
	}
	f.Fuzz(func(t *testing.T, record []byte, stream, mend byte) {
		kind := metadata.Stream(stream) % metadata.StreamCount
		record = mended(record, mend)
		var of journal.Stamp
		var changes []metadata.Change
		var err error
		size := unpackedLen(record)
		if n := allocated(func() { of, changes, err = codec.DecodeRecord(kind, record) }); n > 1<<20+32*uint64(size) {
			t.Fatalf("decoding a record of %d bytes: got %d bytes allocated, want 1 MiB and 32 for each byte at most", size, n)
		}
		if err != nil {
			return
		}
		once := framed(t, changes)
		gotOf, got, err := codec.DecodeRecord(kind, journal.EncodeRecord(of, len(changes), once))
		if err != nil || gotOf != of || !bytes.Equal(framed(t, got), once) {
			t.Fatalf("a record that is encoded and decoded again: got %+v with %d changes, %v; want %+v with the same %d",
				gotOf, len(got), err, of, len(changes))
		}
		for _, c := range changes {
			if c.Stream() != kind {
				t.Fatalf("a record of %v: got a %T of %v in it, want changes of its own stream only", kind, c, c.Stream())
			}
		}
	})
}

// mended gives a record the header that fits its body: bit 0 the version and
// the checksum, and bit 1 unpacks the whole first.
func mended(record []byte, mend byte) []byte {
	if n, err := s2.DecodedLen(record); mend&2 != 0 && err == nil && n <= 2*journal.MaxRecordBytes {
		if b, err := s2.Decode(nil, record); err == nil {
			record = b
		}
	}
	const header = 6
	if mend&1 == 0 || len(record) < header {
		return record
	}
	record = bytes.Clone(record)
	record[0] = 1 // the version
	record[1] &= 1
	binary.LittleEndian.PutUint32(record[2:], crc32.Checksum(record[header:], crc32.MakeTable(crc32.Castagnoli)))
	return record
}

// unpackedLen returns how long a record may be when it is unpacked.
func unpackedLen(record []byte) int {
	const header = 6
	if len(record) > header && record[1] == 1 {
		if n, err := s2.DecodedLen(record[header:]); err == nil && n <= journal.MaxRecordBytes {
			return n
		}
	}
	return len(record)
}

// allocated returns how many bytes f takes from the heap, about.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzHead feeds the decoder any value of the head key. It must refuse the value, or return a head
// that survives encoding and decoding, and after which a term can begin.
func FuzzHead(f *testing.F) {
	whole, err := journal.Head{
		Term: 3, Seq: 7, Time: 99, Hold: 5012, Streams: 5, Bytes: 1 << 30, Checked: 6, Digest: 1 << 63, Clean: true,
	}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(whole))
	f.Add([]byte(`{"term":9,"sequence":1,"checked_digest":"0"}`))
	f.Add([]byte(`{"term":1048576,"sequence":1}`))
	f.Add([]byte(`{"term":1,"sequence":1,"lease_hold_ms":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := journal.DecodeHead(b)
		if err != nil {
			return
		}
		text, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := journal.DecodeHead([]byte(text)); err != nil || again != h {
			t.Fatalf("a head that is encoded and decoded again: got %+v, %v, want %+v", again, err, h)
		}
		start := &metadata.TermStart{Term: 1, Params: params, Guard: time.Duration(h.Hold) * time.Millisecond}
		enc := metadata.Encode(nil, start)
		if c, err := metadata.DecodeObjectEvent(enc, eviction.NewCutoff); err != nil || c.(*metadata.TermStart).Guard != start.Guard {
			t.Fatalf("the start of a term behind the head %+v: got %v, want a start that can be decoded, with the same guard",
				h, err)
		}
	})
}

// Found by fuzzing: values that were accepted, but after which this node would have written values
// that no node can read, or skipped records.
func TestValuesThatCannotBe(t *testing.T) {
	for name, head := range map[string]string{
		"a negative hold":     `{"term":1,"sequence":1,"checked_digest":"0","lease_hold_ms":-1}`,
		"a hold without end":  `{"term":1,"sequence":1,"checked_digest":"0","lease_hold_ms":9223372036855}`,
		"negative bytes":      `{"term":1,"sequence":1,"checked_digest":"0","bytes":-1}`,
		"a stream of a newer": `{"term":1,"sequence":1,"checked_digest":"0","streams":8}`,
	} {
		if h, err := journal.DecodeHead([]byte(head)); err == nil {
			t.Errorf("%s: got the head %+v, want it refused", name, h)
		}
	}
	changes := someChanges()[metadata.ObjectEvents]
	of := journal.Stamp{Term: metadata.MaxTerm + 1, Seq: 7}
	if got, _, err := codec.DecodeRecord(metadata.ObjectEvents, journal.EncodeRecord(of, len(changes), framed(t, changes))); err == nil {
		t.Errorf("a record of term %d, beyond the last one: got a record of term %d, want it refused", of.Term, got.Term)
	}
	millions := journal.EncodeRecord(journal.Stamp{Term: 1, Seq: 7}, 1<<21, make([]byte, 1<<21))
	if _, got, err := codec.DecodeRecord(metadata.LeaseRenewals, millions); err == nil {
		t.Errorf("a record of %d bytes: got %d empty batches, want it refused", len(millions), len(got))
	}
}
