package statefile

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// A file is a magic with the version, frames, and a checksum of all of that. Each
// frame is a kind, a length and a payload: the header, the snapshot's parts in their
// order, the commits behind them, and the end. A state before the first commit has no
// parts.
const (
	magic   = "understudy state"
	version = 1

	prefixBytes   = len(magic) + 1
	checksumBytes = 8
	frameBytes    = 5 // in front of a payload
)

// Kinds of frames.
const (
	frameHeader = 'h'
	framePart   = 'p'
	frameCommit = 'c'
	frameEnd    = 'e'
)

// A header says whose state it is.
type header struct {
	Cluster string `json:"cluster_id"`
	Node    string `json:"node_id"`
}

// An end says where the file leads in the journal.
type end struct {
	Head     journal.Head `json:"head"`
	Revision int64        `json:"revision"`        // of etcd
	Value    string       `json:"value,omitempty"` // of the head in etcd, if it is known
}

// A writer writes a file. It remembers the first error.
type writer struct {
	out   *bufio.Writer
	sum   xxh3.Hasher
	err   error
	wrote func() // called behind each frame; nil for nothing
}

func newWriter(to io.Writer) *writer {
	w := &writer{}
	w.out = bufio.NewWriterSize(to, 1<<20)
	w.write([]byte(magic))
	w.write([]byte{version})
	return w
}

func (w *writer) write(b []byte) {
	if w.err != nil {
		return
	}
	_, _ = w.sum.Write(b) // never fails
	_, w.err = w.out.Write(b)
}

func (w *writer) frame(kind byte, payload []byte) {
	head := [frameBytes]byte{kind}
	binary.LittleEndian.PutUint32(head[1:], uint32(len(payload)))
	w.write(head[:])
	w.write(payload)
	if w.wrote != nil {
		w.wrote()
	}
}

// close writes the checksum.
func (w *writer) close() error {
	w.write(binary.LittleEndian.AppendUint64(nil, w.sum.Sum64()))
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}

// A reader reads a file of a size.
type reader struct {
	in      *bufio.Reader // of what the checksum covers
	rest    io.Reader     // behind it
	left    int64         // of what the checksum covers
	sum     xxh3.Hasher
	payload []byte
}

// newReader checks the beginning of a file.
func newReader(from io.Reader, size int64) (*reader, error) {
	r := &reader{rest: from, left: size - checksumBytes}
	if r.left < int64(prefixBytes) {
		return nil, fmt.Errorf("%w: it has %d bytes", binenc.ErrCorrupt, size)
	}
	r.in = bufio.NewReaderSize(io.TeeReader(io.LimitReader(from, r.left), &r.sum), 1<<20)
	prefix := make([]byte, prefixBytes)
	if err := r.read(prefix); err != nil {
		return nil, err
	}
	return r, checkPrefix(prefix)
}

// checkPrefix checks that a file is one, of a version that this program reads.
func checkPrefix(prefix []byte) error {
	switch v := prefix[len(magic)]; {
	case string(prefix[:len(magic)]) != magic:
		return fmt.Errorf("%w: it is no state file", binenc.ErrCorrupt)
	case v > version:
		return fmt.Errorf("version %d: %w", v, ErrNewer)
	case v < version:
		return fmt.Errorf("%w: version %d", binenc.ErrCorrupt, v)
	}
	return nil
}

// maxHeader is more than any header has.
const maxHeader = 4 << 10

// CheckBeginning checks, by the first bytes of a file that is being sent, that it is a state
// file of a cluster. It consumes none of them.
func CheckBeginning(in *bufio.Reader, clusterID string) error {
	prefix, err := in.Peek(prefixBytes + frameBytes)
	if err != nil {
		return fmt.Errorf("%w: it has %d bytes", binenc.ErrCorrupt, len(prefix))
	}
	if err := checkPrefix(prefix[:prefixBytes]); err != nil {
		return err
	}
	kind, n := prefix[prefixBytes], binary.LittleEndian.Uint32(prefix[prefixBytes+1:])
	if kind != frameHeader || n > maxHeader {
		return fmt.Errorf("%w: it begins with a frame of kind %q and %d bytes", binenc.ErrCorrupt, kind, n)
	}
	all, err := in.Peek(prefixBytes + frameBytes + int(n))
	if err != nil {
		return fmt.Errorf("%w: it has %d bytes", binenc.ErrCorrupt, len(all))
	}
	return checkHeader(all[prefixBytes+frameBytes:], clusterID)
}

func checkHeader(payload []byte, clusterID string) error {
	var who header
	if err := json.Unmarshal(payload, &who); err != nil {
		return err
	}
	if who.Cluster != clusterID {
		return fmt.Errorf("it is of cluster %q, not of %q", who.Cluster, clusterID)
	}
	return nil
}

func (r *reader) read(b []byte) error {
	r.left -= int64(len(b))
	_, err := io.ReadFull(r.in, b)
	return err
}

// frame reads the next frame. The payload is valid until the next one is read.
func (r *reader) frame() (kind byte, payload []byte, err error) {
	var head [frameBytes]byte
	if err := r.read(head[:]); err != nil {
		return 0, nil, err
	}
	n := int64(binary.LittleEndian.Uint32(head[1:]))
	if n > r.left {
		return 0, nil, fmt.Errorf("%w: a frame has %d bytes, %d are left", binenc.ErrCorrupt, n, r.left)
	}
	if int64(cap(r.payload)) < n {
		r.payload = make([]byte, n+n/4)
	}
	r.payload = r.payload[:n]
	return head[0], r.payload, r.read(r.payload)
}

// close compares the checksum. Nothing that was read counts before it agrees.
func (r *reader) close() error {
	if r.left != 0 {
		return fmt.Errorf("%w: %d bytes stand behind the end", binenc.ErrCorrupt, r.left)
	}
	b := make([]byte, checksumBytes)
	if _, err := io.ReadFull(r.rest, b); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(b) != r.sum.Sum64() {
		return fmt.Errorf("%w: the checksum is wrong", binenc.ErrCorrupt)
	}
	return nil
}

func appendCommit(b []byte, c *metadata.Commit) []byte {
	b = binary.AppendUvarint(b, uint64(c.Seq))
	b = binary.AppendUvarint(b, uint64(c.Term))
	b = binary.AppendVarint(b, int64(c.Time))
	b = binary.AppendUvarint(b, uint64(len(c.Changes)))
	var scratch []byte
	for _, change := range c.Changes {
		coder := binenc.Encoder(scratch[:0])
		change.Code(&coder)
		scratch = coder.Encoded()
		b = append(b, byte(change.Stream()))
		b = binary.AppendUvarint(b, uint64(len(scratch)))
		b = append(b, scratch...)
	}
	return b
}

func decodeCommit(codec journal.Codec, b []byte) (*metadata.Commit, error) {
	r := binenc.NewReader(b)
	c := &metadata.Commit{
		Seq: metadata.Seq(r.Uvarint()), Term: metadata.Term(r.UvarintMax("a term", metadata.MaxTerm)), Time: metadata.Time(r.Varint()),
	}
	for range r.Count(2) {
		stream := r.Byte()
		if stream >= byte(metadata.StreamCount) {
			r.Fail("stream %d", stream)
		}
		change := r.Bytes(metadata.MaxChangeBytes)
		if r.Err() != nil {
			break
		}
		decoded, err := codec[stream](change) //nolint:gosec // stream is checked above
		if err != nil {
			return nil, err
		}
		c.Changes = append(c.Changes, decoded)
	}
	return c, r.Close()
}
