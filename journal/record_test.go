package journal

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
)

var objectCodec = Codec{metadata.ObjectEvents: func(b []byte) (metadata.Change, error) { return metadata.DecodeObjectEvent(b, nil) }}

func encoded(t testing.TB, changes ...metadata.Change) []byte {
	t.Helper()
	s, err := new(Queue).newSubmission(t.Context(), changes)
	if err != nil {
		t.Fatal(err)
	}
	return encodeRecord(Stamp{3, 7, 99}, len(changes), [][]byte{s.encoded[metadata.ObjectEvents]})
}

func sample() []metadata.Change {
	return []metadata.Change{
		&metadata.PutEnd{Ref: metadata.Ref{Shard: 5, ID: 9}, Selector: metadata.SelectMemory},
		&metadata.PutStart{Tenant: "default", Key: strings.Repeat("key", 200), ID: 11, Size: 4},
		&metadata.Discard{Ref: metadata.Ref{Shard: 1, ID: 2}},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	for _, n := range []int{1, 3} {
		changes := sample()[:n]
		record := encoded(t, changes...)
		if packed := record[1] == packedS2; packed != (n == 3) {
			t.Errorf("a record of %d changes: got packed: %v, want %v", n, packed, n == 3)
		}
		got, err := objectCodec.decodeRecord(nil, metadata.ObjectEvents, Stamp{3, 7, 99}, record)
		if err != nil || len(got) != n {
			t.Fatalf("decoding a record of %d changes: got %v, %v, want as many", n, got, err)
		}
		for i := range got {
			a := metadata.Encode(nil, changes[i])
			b := metadata.Encode(nil, got[i])
			if !bytes.Equal(a, b) {
				t.Errorf("change %d of a record: got %x, want %x as encoded", i, b, a)
			}
		}
	}
}

// For a log that keeps nothing, changes are measured, but not encoded.
func TestNoLogGetsNoRecords(t *testing.T) {
	var sizes [2]int
	for i, log := range []Log{NoLog{}, struct{ NoLog }{}} {
		store := metadata.New(metadata.Options{})
		w := NewWriter(WriterConfig{Store: store, Queue: NewQueue(store, 1<<20), Log: log, Now: store.Time})
		s, err := w.Queue.newSubmission(t.Context(), sample())
		if err != nil {
			t.Fatal(err)
		}
		sizes[i] = s.size
		c, changes := w.build([]*submission{s})
		if kept := i == 1; kept != (c.bytes() > 0) || kept != (len(s.encoded[metadata.ObjectEvents]) == s.size) || len(changes) != 3 {
			t.Errorf("%T: got records of %d bytes, %d bytes encoded, and %d changes, want 0 bytes for NoLog only, and 3 changes",
				log, c.bytes(), len(s.encoded[metadata.ObjectEvents]), len(changes))
		}
		large := &metadata.PutStart{Tenant: "default", Key: strings.Repeat("k", metadata.MaxKeyBytes), DiskPath: strings.Repeat("p", metadata.MaxChangeBytes)}
		if _, err := w.Queue.newSubmission(t.Context(), []metadata.Change{large}); errs.KindOf(err) != errs.InvalidParams {
			t.Errorf("%T, a change of more than %d bytes: got %v, want INVALID_PARAMS", log, metadata.MaxChangeBytes, err)
		}
	}
	if sizes[0] != sizes[1] {
		t.Errorf("the size of a submission: got %d for NoLog and %d for another log, want the same", sizes[0], sizes[1])
	}
}

func TestRecordsOfOtherCommitsAreRefused(t *testing.T) {
	record := encoded(t, sample()...)
	for name, decode := range map[string]func() ([]metadata.Change, error){
		"another sequence": func() ([]metadata.Change, error) {
			return objectCodec.decodeRecord(nil, metadata.ObjectEvents, Stamp{3, 8, 99}, record)
		},
		"another term": func() ([]metadata.Change, error) {
			return objectCodec.decodeRecord(nil, metadata.ObjectEvents, Stamp{4, 7, 99}, record)
		},
		"an empty one": func() ([]metadata.Change, error) {
			return objectCodec.decodeRecord(nil, metadata.ObjectEvents, Stamp{3, 7, 99}, nil)
		},
		"cut short": func() ([]metadata.Change, error) {
			return objectCodec.decodeRecord(nil, metadata.ObjectEvents, Stamp{3, 7, 99}, record[:len(record)-1])
		},
	} {
		if _, err := decode(); err == nil {
			t.Errorf("a record (%s): got no error, want it refused", name)
		}
	}
	bomb := append([]byte{recordVersion, packedS2, 0, 0, 0, 0}, 0xff, 0xff, 0xff, 0xff, 0x0f)
	if _, err := unpack(bomb); !errors.Is(err, binenc.ErrCorrupt) {
		t.Errorf("a record that says it unpacks to 4 GiB: got %v, want ErrCorrupt", err)
	}
}

// A commit is a prefix of the queue [model], whole submissions, up to its size.
func TestModelSealTakesAPrefix(t *testing.T) {
	q := NewQueue(metadata.New(metadata.Options{}), 1<<30)
	var want []*submission
	for i := range 100 {
		s := &submission{size: 30 << 10, done: make(chan struct{})}
		if i%7 == 0 {
			s.size = 100
		}
		want = append(want, s)
		if err := q.push(s); err != nil {
			t.Fatal(err)
		}
	}
	var got []*submission
	for {
		sealed := q.seal()
		if len(sealed) == 0 {
			break
		}
		size := 0
		for _, s := range sealed {
			size += s.size
			if !s.sealed || q.withdraw(s) {
				t.Fatal("a submission in a commit: got that it can be withdrawn, want that it cannot")
			}
		}
		if size > MaxCommitBytes {
			t.Errorf("got a commit of %d bytes, want %d at most", size, MaxCommitBytes)
		}
		got = append(got, sealed...)
	}
	if len(got) != len(want) {
		t.Fatalf("got %d submissions in commits, want all %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("got submission %d out of order, want commits in the order of the queue", i)
		}
	}
}
