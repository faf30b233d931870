package statefile

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// An Info says whose state a file holds.
type Info struct {
	Cluster string
	Node    string // that wrote it
	Head    journal.Head
	Bytes   int64
}

// An Upload is a file that somebody sends, with what the sender says of it in advance.
type Upload struct {
	io.Reader
	Bytes uint64 // 0 if not known
	Head  string // where it leads in the journal, in JSON; empty if not known
}

// Inspect checks that a file is whole, by its frames and its checksum, and returns
// what it says of itself. It does not decode the state.
func Inspect(name string) (Info, error) {
	f, err := os.Open(name)
	if err != nil {
		return Info{}, err
	}
	defer func() { _ = f.Close() }()
	stat, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	r, err := newReader(f, stat.Size())
	if err != nil {
		return Info{}, err
	}
	var who header
	var last end
	for kind := byte(0); kind != frameEnd; {
		var payload []byte
		before := kind
		if kind, payload, err = r.frame(); err != nil {
			return Info{}, err
		}
		switch {
		case (kind == frameHeader) != (before == 0):
			return Info{}, fmt.Errorf("%w: a frame of kind %q behind one of kind %q", binenc.ErrCorrupt, kind, before)
		case kind == frameHeader:
			err = json.Unmarshal(payload, &who)
		case kind == frameEnd:
			err = json.Unmarshal(payload, &last)
		}
		if err != nil {
			return Info{}, err
		}
	}
	if err := r.close(); err != nil {
		return Info{}, err
	}
	return Info{who.Cluster, who.Node, last.Head, stat.Size()}, nil
}
