package metadata_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Commits are applied while a shard is encoded, unmounts among them, and each part is what the
// state was where it stands.
func TestSnapshotWhileCommitsAreApplied(t *testing.T) {
	s := metadata.New(metadata.Options{})
	fillStore(t, s, 100_000)
	first := s.LastSeq() + 1
	encoded := make(chan [][]byte)
	go func() {
		var parts [][]byte
		for i := range metadata.SnapshotParts {
			part, _ := s.AppendSnapshotPart(nil, i)
			parts = append(parts, part)
		}
		encoded <- parts
	}()
	var log []*metadata.Commit
	apply := func(changes ...metadata.Change) {
		seq := first + metadata.Seq(len(log))
		log = append(log, &metadata.Commit{Seq: seq, Term: 1, Time: metadata.Time(seq), Changes: changes})
		if _, err := s.Apply(log[len(log)-1], nil); err != nil {
			t.Fatal(err)
		}
	}
	numbers, n := s.SegmentNumbers()[1:], 0
	var parts [][]byte
	for parts == nil {
		select {
		case parts = <-encoded:
			continue
		default:
		}
		if n%8 == 0 && n/8 < len(numbers) {
			apply(&deleteevents.Event{Type: deleteevents.UnmountSegment, Segments: []segment.Number{numbers[n/8]}})
		}
		e, _, _, err := s.PreparePutStart(&metadata.Put{Tenant: "default", Key: benchKey(1<<30 + n), Client: client(1), Size: 4096, Replicas: 1}, 1)
		if err != nil {
			t.Fatal(err)
		}
		apply(e)
		s.Sweep(3)
		n++
	}
	l := metadata.NewLoader(metadata.Options{})
	for i, part := range parts {
		if err := l.Add(part); err != nil {
			t.Fatalf("part %d: got %v, want it to be read", i, err)
		}
	}
	for seq := l.Start() + 1; seq <= l.End(); seq++ {
		if err := l.Apply(log[seq-first]); err != nil {
			t.Fatalf("the commit %d: got %v, want it applied", seq, err)
		}
	}
	loaded, err := l.Finish()
	if err != nil {
		t.Fatalf("a snapshot with %d commits beside it: got %v, want it loaded", len(log), err)
	}
	for _, commit := range log[loaded.Position().Seq+1-first:] {
		if _, err := loaded.Apply(commit, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := loaded.Position(), s.Position(); got != want {
		t.Errorf("S: the loaded state is at %+v, want %+v", got, want)
	}
}

// While a snapshot encodes a shard, another one waits for it, and commits go on.
func TestTwoSnapshotsOfAShard(t *testing.T) {
	s := metadata.New(metadata.Options{})
	fillStore(t, s, 1000)
	release := s.HoldEncoded(0)
	encoded := make(chan struct{})
	go func() {
		defer close(encoded)
		s.AppendSnapshotPart(nil, 1)
	}()
	for range 10_000 {
		runtime.Gosched() // to the other snapshot
		applied := make(chan struct{})
		go func() {
			defer close(applied)
			s.Position() // waits as a commit does
		}()
		select {
		case <-applied:
			continue
		case <-time.After(5 * time.Second):
			t.Error("two snapshots of a shard at once: commits wait, want them to go on")
		}
		break
	}
	release()
	<-encoded
}
