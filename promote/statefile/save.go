package statefile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/files"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A Source is the state that is saved. Commits may go on meanwhile.
type Source struct {
	ClusterID, NodeID string
	Store             *metadata.Store
	// Ancestors are the histories that the journal of the store descends from, as far as
	// they are known.
	Ancestors []journal.Ancestor
	// At returns where in the journal the store stands, or is about to stand.
	At func() journal.Cursor
	// Read reads the commits behind a position, as journal.Reader does.
	Read func(ctx context.Context, behind journal.Cursor, f journal.Consumer) error
	// Valid is asked before the file gets its name; nil if the state is still to be
	// saved.
	Valid func() error
	// Wrote is called whenever more of a file is written; may be nil.
	Wrote func()
}

// Save writes a file, and returns where it leads. It locks one part of the state at a
// time, for as long as it takes to copy that.
func (d *Dir) Save(ctx context.Context, of Source) (at journal.Cursor, err error) {
	numbers, err := d.writable()
	if err != nil {
		return at, err
	}
	number := uint64(1)
	if n := len(numbers); n > 0 {
		number = numbers[n-1] + 1
	}
	if at, err = d.write(ctx, of, d.file(number)); err != nil {
		return at, err
	}
	d.whole[number] = Info{Cluster: of.ClusterID, Node: of.NodeID, Head: at.Head}
	return at, d.prune(&of, at.Head)
}

// SaveDiverged writes a file that this program neither loads nor deletes, and returns
// its name. One of the same state that is there already stays. Branches of a journal may
// have forked off at one sequence: the digest tells their states apart.
func (d *Dir) SaveDiverged(ctx context.Context, of Source) (name string, err error) {
	at := of.At().Head
	digest, _ := of.Store.DigestAt(at.Seq)
	name = filepath.Join(d.path, fmt.Sprintf("diverged-%.8s-%d-%v%s", at.History, at.Seq, digest, suffix))
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	_, err = d.write(ctx, of, name)
	return name, err
}

// write writes a file, which gets its name when it is whole.
func (d *Dir) write(ctx context.Context, of Source, name string) (at journal.Cursor, err error) {
	if d.Spare > 0 {
		if err := CheckSpace(d.path, d.size(), d.Spare); err != nil {
			return at, err
		}
	}
	f, err := os.OpenFile(name+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return at, err
	}
	at, err = of.Write(ctx, &steady{File: f})
	return at, files.Place(f, name, err, of.Valid)
}

// A steady file is synced while it is written. One sync of everything at the end could take
// longer than a save may write nothing, and hold up other users of the disk.
type steady struct {
	*os.File
	unsynced int
}

const syncBytes = 256 << 20

func (f *steady) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	if f.unsynced += n; err == nil && f.unsynced >= syncBytes {
		f.unsynced, err = 0, f.Sync()
	}
	return n, err
}

// writable fails if a file of a newer format is there, which this program must not replace.
func (d *Dir) writable() ([]uint64, error) {
	numbers, err := d.numbers()
	if err != nil {
		return nil, err
	}
	for _, number := range numbers {
		if err := d.peek(number); errors.Is(err, ErrNewer) {
			return nil, fmt.Errorf("%s: %w", d.file(number), err)
		}
	}
	return numbers, nil
}

// peek checks the beginning of a file.
func (d *Dir) peek(number uint64) error {
	f, err := os.Open(d.file(number))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	prefix := make([]byte, prefixBytes)
	if _, err := io.ReadFull(f, prefix); err != nil {
		return err
	}
	return checkPrefix(prefix)
}

// Write writes a file: the state, and the commits that bring all of it to one
// sequence. It returns where the file leads.
func (of *Source) Write(ctx context.Context, to io.Writer) (journal.Cursor, error) {
	at, part, start, err := of.begin(ctx)
	if err != nil {
		return at, err
	}
	w := newWriter(to)
	w.wrote = of.Wrote
	who, err := json.Marshal(header{of.ClusterID, of.NodeID})
	if err != nil {
		return at, err
	}
	w.frame(frameHeader, who)
	if start > 0 {
		if at, err = of.copy(ctx, w, at, part, start); err != nil {
			return at, err
		}
	}
	last, err := json.Marshal(end{at.Head, at.Revision, at.Value()})
	if err != nil {
		return at, err
	}
	w.frame(frameEnd, last)
	return at, w.close()
}

// copy writes the parts and the commits behind them.
func (of *Source) copy(ctx context.Context, w *writer, at journal.Cursor, part []byte, start metadata.Seq) (journal.Cursor, error) {
	rules, through := of.Store.Rules(), start
	for number := 0; ; {
		w.frame(framePart, part)
		if number++; number == metadata.SnapshotParts || w.err != nil {
			break
		}
		if err := ctx.Err(); err != nil {
			return at, err
		}
		var p metadata.Position
		part, p = of.Store.AppendSnapshotPart(part[:0], number)
		through = p.Seq
	}
	if of.Store.Rules() != rules {
		return at, errors.New("the rules in force were raised meanwhile")
	}
	if w.err == nil && at.Head.Seq < through {
		t := &tail{to: w, from: start, through: through}
		if err := of.Read(ctx, at, t); !errors.Is(err, errTailWritten) {
			return at, fmt.Errorf("reading the commits that were applied meanwhile: %w", err)
		}
		at = t.at
	}
	return at, nil
}

// begin takes the first part of the snapshot, and a position of the journal at which that
// stands, or which the part is ahead of.
func (of *Source) begin(ctx context.Context) (at journal.Cursor, part []byte, start metadata.Seq, err error) {
	for {
		at = of.At()
		var p metadata.Position
		if part, p = of.Store.AppendSnapshotPart(part[:0], 0); at.Head.Seq <= p.Seq {
			return at, part, p.Seq, nil
		}
		if err := clock.Sleep(ctx, time.Millisecond); err != nil { // a commit is about to be applied
			return at, nil, 0, err
		}
	}
}

// A tail writes the commits behind a snapshot's beginning.
type tail struct {
	to            *writer
	from, through metadata.Seq
	at            journal.Cursor
	buffer        []byte
}

var errTailWritten = errors.New("the snapshot's commits are written")

// Commit writes a commit, and ends the reading at the snapshot's end.
func (t *tail) Commit(c *metadata.Commit, at journal.Cursor) error {
	if c.Seq > t.from {
		t.buffer = appendCommit(t.buffer[:0], c)
		t.to.frame(frameCommit, t.buffer)
	}
	if t.at = at; c.Seq < t.through {
		return t.to.err
	}
	return errTailWritten
}

// Founded ends the saving: the state is about to go on in another history.
func (t *tail) Founded(journal.Cursor) error {
	return errors.New("the journal was founded anew meanwhile")
}

// Changed ignores keys that are not the journal's.
func (t *tail) Changed(string) {}
