package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// A State is what a file holds.
type State struct {
	File  string
	Store *metadata.Store
	At    journal.Cursor // where the store stands in the journal
}

// Load returns the state of the newest file that is whole, nil if there is none. It
// calls skipped for each file that it passes over. It fails with ErrNewer for a file
// that only a newer version can read: an older file is no substitute.
func (d *Dir) Load(clusterID string, options metadata.Options, codec journal.Codec, skipped func(file string, err error)) (*State, error) {
	numbers, err := d.numbers()
	if err != nil {
		return nil, err
	}
	for _, number := range slices.Backward(numbers) {
		name := d.file(number)
		s, err := Read(name, clusterID, options, codec)
		switch {
		case errors.Is(err, ErrNewer):
			return nil, fmt.Errorf("%s: %w", name, err)
		case err != nil:
			skipped(name, err)
		default:
			d.whole[number] = Info{Cluster: clusterID, Head: s.At.Head}
			return s, nil
		}
	}
	return nil, nil
}

// Read returns the state of a file.
func Read(name, clusterID string, options metadata.Options, codec journal.Codec) (*State, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r, err := newReader(f, info.Size())
	if err != nil {
		return nil, err
	}
	l := loading{clusterID: clusterID, loader: metadata.NewLoader(options), codec: codec}
	for !l.ended {
		kind, payload, err := r.frame()
		if err == nil {
			err = l.frame(kind, payload)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	if l.empty() {
		return &State{File: name, Store: metadata.New(options), At: journal.Cursor{Revision: l.end.Revision}}, nil
	}
	store, err := l.loader.Finish()
	if err != nil {
		return nil, err
	}
	if at := store.Position(); at.Seq != l.end.Head.Seq {
		return nil, fmt.Errorf("%w: it leads to %d, and says %d", binenc.ErrCorrupt, at.Seq, l.end.Head.Seq)
	}
	return &State{File: name, Store: store, At: journal.NewCursor(l.end.Head, l.end.Revision, l.end.Value)}, nil
}

// A loading takes in the frames of a file.
type loading struct {
	clusterID string
	loader    *metadata.Loader
	codec     journal.Codec
	end       end
	begun     bool
	parts     int
	ended     bool
}

// empty reports whether the file holds a state before the first commit, which has no
// parts.
func (l *loading) empty() bool { return l.parts == 0 && l.end.Head.Seq == 0 }

func (l *loading) frame(kind byte, payload []byte) error {
	if l.begun != (kind != frameHeader) {
		return fmt.Errorf("%w: a frame of kind %q, and the header was read: %v", binenc.ErrCorrupt, kind, l.begun)
	}
	switch kind {
	case frameHeader:
		l.begun = true
		return checkHeader(payload, l.clusterID)
	case framePart:
		l.parts++
		return l.loader.Add(payload)
	case frameCommit:
		c, err := decodeCommit(l.codec, payload)
		if err != nil {
			return err
		}
		return l.loader.Apply(c)
	case frameEnd:
		l.ended = true
		return json.Unmarshal(payload, &l.end)
	}
	return fmt.Errorf("%w: a frame of kind %q", binenc.ErrCorrupt, kind)
}
