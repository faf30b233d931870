package journal

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/klauspost/compress/s2"

	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
)

// A Layout names the keys of one cluster in etcd. All are under one root, so
// that one watch sees everything of the cluster in one order.
type Layout struct {
	Root string
	// View is a key outside of Root with the serving node's RPC address, for
	// clients that look there; empty for none. It comes and goes with the leader
	// key, and is there only while its node serves.
	View string
}

// NewLayout returns the layout under {prefix}/{cluster id}/.
func NewLayout(prefix, clusterID string) Layout {
	return Layout{Root: strings.TrimRight(prefix, "/") + "/" + clusterID + "/"}
}

// Leader is the key of the elected node. It lives as long as its lease.
func (l Layout) Leader() string { return l.Root + "leader" }

// DeleteLeader are the operations that delete the leader key and what goes with
// it.
func (l Layout) DeleteLeader() []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpDelete(l.Leader())}
	if l.View != "" {
		ops = append(ops, clientv3.OpDelete(l.View))
	}
	return ops
}

// Head is the key of the journal's end. It lives for ever.
func (l Layout) Head() string { return l.Root + "head" }

// Ancestors is the key of the list of histories that the journal descends from.
func (l Layout) Ancestors() string { return l.Root + "ancestors" }

// Nodes is the prefix of the nodes' own keys, which live on their own leases.
func (l Layout) Nodes() string { return l.Root + "nodes/" }

// Node is the key of one node.
func (l Layout) Node(id string) string { return l.Nodes() + id }

// Witnesses is the prefix of the keys of nodes without metadata, which live on their own
// leases.
func (l Layout) Witnesses() string { return l.Root + "witnesses/" }

// Witness is the key of one of these nodes.
func (l Layout) Witness(id string) string { return l.Witnesses() + id }

// Saved is the prefix of what nodes say of their newest state files. These keys
// live until their node has been absent for long.
func (l Layout) Saved() string { return l.Root + "saved/" }

// SavedBy is the key of one node's newest state file.
func (l Layout) SavedBy(id string) string { return l.Saved() + id }

// Complete is the prefix of what etcd keeps of the nodes that hold the whole state.
// These keys live until an operator gives their node up.
func (l Layout) Complete() string { return l.Root + "complete/" }

// CompleteNode is the key of one of these nodes.
func (l Layout) CompleteNode(id string) string { return l.Complete() + id }

// Forgotten is the prefix of the keys of nodes that an operator gave up, so that no node
// that remembers one of them lists it again. There are at most as many as of complete
// nodes.
func (l Layout) Forgotten() string { return l.Root + "forgotten/" }

// ForgottenNode is the key of one of these nodes.
func (l Layout) ForgottenNode(id string) string { return l.Forgotten() + id }

// Defragmenting is the key of the node that defragments its member of etcd, where each has
// one.
func (l Layout) Defragmenting() string { return l.Root + "defragmenting" }

// Replaced is the prefix of the keys of members of etcd that may be replaced by a node of
// their name, which has lost its data.
func (l Layout) Replaced() string { return l.Root + "replaced/" }

// Pause is the key of an operator's order that no node takes over by itself. It lives
// as long as its lease.
func (l Layout) Pause() string { return l.Root + "pause" }

// Terms is the prefix of the records of terms, which are for people.
func (l Layout) Terms() string { return l.Root + "terms/" }

// Term is the key of the record of one term. Keys sort as terms do.
func (l Layout) Term(term metadata.Term) string {
	return fmt.Sprintf("%s%08d", l.Terms(), uint64(term))
}

// Records is the prefix of the records of one stream.
func (l Layout) Records(stream metadata.Stream) string { return l.Root + stream.String() + "/" }

// Record is the key of the record of one stream in one commit. Keys sort as
// their sequences do.
func (l Layout) Record(stream metadata.Stream, seq metadata.Seq) string {
	return fmt.Sprintf("%s%020d", l.Records(stream), uint64(seq))
}

// streamOf returns the stream whose record a key is.
func (l Layout) streamOf(key string) (metadata.Stream, bool) {
	rest, ok := strings.CutPrefix(key, l.Root)
	if !ok {
		return 0, false
	}
	for stream := range metadata.StreamCount {
		if strings.HasPrefix(rest, stream.String()+"/") {
			return stream, true
		}
	}
	return 0, false
}

// seqOf returns the sequence in the key of a record of a stream.
func (l Layout) seqOf(stream metadata.Stream, key string) (metadata.Seq, error) {
	seq, err := strconv.ParseUint(strings.TrimPrefix(key, l.Records(stream)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("a foreign key %s among the records: %w", key, err)
	}
	return metadata.Seq(seq), nil
}

// A Head is the journal's end, as it stands in etcd under one key for ever.
type Head struct {
	// Format is the oldest format of heads and records that programs must know to read
	// this one; 0 for 1.
	Format int `json:"format,omitempty"`

	Term metadata.Term `json:"term"`
	Seq  metadata.Seq  `json:"sequence"`
	// Time is the cluster time of the commit.
	Time metadata.Time `json:"cluster_time_ms"`
	// Wall is the wall time of the commit, in ms since 1970: for people, who ask how long
	// nobody served. 0 from older versions.
	Wall int64 `json:"wall_ms,omitempty"`
	// Hold is how long the primary of the term honours a lease, in ms: what a
	// term after a loss of all state must wait for.
	Hold int64 `json:"lease_hold_ms"`
	// History is the journal's, Parent the one that it was founded from, and Fork the
	// sequence at which; the last two are empty if it was founded empty.
	History History      `json:"history,omitempty"`
	Parent  History      `json:"parent_history,omitempty"`
	Fork    metadata.Seq `json:"fork_sequence,omitempty"`
	// ForkOwed says, in a head that founds a journal, that others may have acknowledged
	// more than its state holds: the first entry behind it must quarantine what is free.
	// It stands until there is one, whoever writes it.
	ForkOwed bool `json:"fork_owed,omitempty"`
	// Election is the writer's.
	Election Election `json:"election,omitempty"`
	// Streams has a bit for each record that belongs to the commit.
	Streams uint8 `json:"streams"`
	// Bytes counts what was written to records, ever.
	Bytes int64 `json:"bytes"`
	// Checked is a sequence that the primary has applied, and Digest its state
	// there.
	Checked metadata.Seq    `json:"checked_sequence"`
	Digest  metadata.Digest `json:"checked_digest,string"`
	// Window is how long, in ms, the primary answers calls from when it sent the
	// commit, and Failover for how long followers see no newer head before they
	// depose it. Both are 0 in the older format: the primary answers while its
	// session lasts, and nobody deposes it.
	Window   int64 `json:"serve_window_ms,omitempty"`
	Failover int64 `json:"failover_after_ms,omitempty"`
	// Raised says that slow commits raised both: the next primary begins with them.
	Raised bool `json:"failover_raised,omitempty"`
	// Clean says that the term ended with a handover: no lease was granted that
	// is not in the journal, and nobody answers any more.
	Clean bool `json:"clean,omitempty"`
	// Heir is the node that the primary handed over to, if it did: the others, the
	// old primary among them, leave the election to it for a failover time.
	Heir string `json:"heir,omitempty"`
}

// After reports whether this head is of a later commit than another.
func (h Head) After(other Head) bool {
	return h.Term > other.Term || h.Term == other.Term && h.Seq > other.Seq
}

// Lag is how far a state at a position is behind, in commits and in cluster
// time. The time is 0 if nothing was applied to the state yet: it has none.
func (h Head) Lag(at metadata.Position) (entries uint64, behind time.Duration) {
	if h.Seq <= at.Seq {
		return 0, 0
	}
	if at.Seq > 0 {
		behind = max(0, h.Time.Sub(at.Time))
	}
	return uint64(h.Seq - at.Seq), behind
}

// ServeWindow is Window as a duration.
func (h Head) ServeWindow() time.Duration { return time.Duration(h.Window) * time.Millisecond }

// FailoverAfter is Failover as a duration.
func (h Head) FailoverAfter() time.Duration { return time.Duration(h.Failover) * time.Millisecond }

func (h Head) encode() (string, error) {
	b, err := json.Marshal(h)
	return string(b), err
}

// maxID is how many digits the id of a history or of an election has.
const maxID = 32

// maxHold is the longest hold, in ms, that is a time.Duration.
const maxHold = math.MaxInt64 / int64(time.Millisecond)

// DecodeHead decodes the value of the head key. It refuses one that this
// program could not have written, and one that names streams it does not know:
// their records would be passed over.
func DecodeHead(b []byte) (Head, error) {
	var h Head
	if err := json.Unmarshal(b, &h); err != nil {
		return Head{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	switch {
	case h.Format > FormatVersion:
		return Head{}, fmt.Errorf("the head of the journal has format %d, this program reads %d at most: %w", h.Format, FormatVersion, ErrNewer)
	case h.Term == 0 || h.Term > metadata.MaxTerm || h.Seq == 0:
		return Head{}, fmt.Errorf("%w: it has term %d and sequence %d, which cannot be", errUnreadable, h.Term, h.Seq)
	case len(h.History) > maxID || len(h.Parent) > maxID || len(h.Election) > maxID:
		return Head{}, fmt.Errorf("%w: it has an id of more than %d digits, which cannot be", errUnreadable, maxID)
	case h.Hold < 0 || h.Hold > maxHold || h.Bytes < 0:
		return Head{}, fmt.Errorf("%w: it has a lease hold of %d ms and %d bytes, which cannot be", errUnreadable, h.Hold, h.Bytes)
	case h.Window < 0 || h.Window > h.Failover || h.Failover > maxHold:
		return Head{}, fmt.Errorf("%w: it has a serve window of %d ms and a failover time of %d ms, which cannot be", errUnreadable, h.Window, h.Failover)
	case h.Streams >= 1<<metadata.StreamCount:
		return Head{}, fmt.Errorf("commit %d has streams %#b, of which this version knows %d; %w", h.Seq, h.Streams, metadata.StreamCount, ErrNewer)
	}
	return h, nil
}

// This program reads the journal's formats from MinFormatVersion to FormatVersion,
// and writes what every node in the cluster reads. FormatBeats is the first with
// serve windows and histories in its heads. Records are the same in both.
const (
	MinFormatVersion = 1
	FormatBeats      = 2
	FormatVersion    = FormatBeats

	recordVersion = 1
)

const (
	packedPlain = 0
	packedS2    = 1

	// recordHeader is the version, the packing and the checksum.
	recordHeader = 6
	// packFrom is the size from which a record is compressed.
	packFrom = 256
	// maxRecordBytes bounds a record after decompression.
	maxRecordBytes = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeRecord returns the record of one stream of a commit: a version, a
// packing, a checksum, and, packed, the commit it belongs to with its changes,
// each behind its length.
func encodeRecord(of Stamp, count int, parts [][]byte) []byte {
	size := 32
	for _, p := range parts {
		size += len(p)
	}
	body := make([]byte, 0, size)
	body = binary.AppendUvarint(body, uint64(of.Term))
	body = binary.AppendUvarint(body, uint64(of.Seq))
	body = binary.AppendVarint(body, int64(of.Time))
	body = binary.AppendUvarint(body, uint64(count))
	for _, p := range parts {
		body = append(body, p...)
	}
	record := append(make([]byte, 0, recordHeader+len(body)), recordVersion, packedPlain, 0, 0, 0, 0)
	if len(body) >= packFrom {
		if packed := s2.Encode(nil, body); len(packed) < len(body) {
			record[1], body = packedS2, packed
		}
	}
	record = append(record, body...)
	binary.LittleEndian.PutUint32(record[2:], crc32.Checksum(record[recordHeader:], castagnoli))
	return record
}

// A Stamp says which commit a record belongs to.
type Stamp struct {
	Term metadata.Term
	Seq  metadata.Seq
	Time metadata.Time
}

// Codec decodes the changes of each stream.
type Codec [metadata.StreamCount]func([]byte) (metadata.Change, error)

// DecodeRecord decodes a record on its own.
func (c Codec) DecodeRecord(stream metadata.Stream, record []byte) (Stamp, []metadata.Change, error) {
	body, err := unpack(record)
	if err != nil {
		return Stamp{}, nil, err
	}
	r := binenc.NewReader(body)
	of := readStamp(r)
	n := r.Count(1)
	changes := make([]metadata.Change, 0, n)
	for range n {
		b := r.Bytes(metadata.MaxChangeBytes)
		if r.Err() != nil {
			break
		}
		change, err := c[stream](b)
		if err != nil {
			return Stamp{}, nil, err
		}
		changes = append(changes, change)
	}
	return of, changes, r.Close()
}

// readStamp reads what a record begins with.
func readStamp(r *binenc.Reader) Stamp {
	return Stamp{metadata.Term(r.UvarintMax("a term", metadata.MaxTerm)), metadata.Seq(r.Uvarint()), metadata.Time(r.Varint())}
}

// decodeRecord appends the changes of a record to dst. The record must belong
// to the given commit.
func (c Codec) decodeRecord(dst []metadata.Change, stream metadata.Stream, of Stamp, record []byte) ([]metadata.Change, error) {
	got, changes, err := c.DecodeRecord(stream, record)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%v record %d: %w", stream, of.Seq, err)
	case got != of:
		return nil, fmt.Errorf("%v record of commit %+v stands in the place of %+v", stream, got, of)
	}
	return append(dst, changes...), nil
}

// unpack checks a record's header and returns its body.
func unpack(record []byte) ([]byte, error) {
	if len(record) < recordHeader {
		return nil, fmt.Errorf("%w: %d bytes", binenc.ErrCorrupt, len(record))
	}
	if v := record[0]; v != recordVersion {
		return nil, fmt.Errorf("format version %d; this program reads %d, upgrade this node", v, recordVersion)
	}
	body := record[recordHeader:]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(record[2:]) {
		return nil, fmt.Errorf("%w: the checksum is wrong", binenc.ErrCorrupt)
	}
	switch record[1] {
	case packedPlain:
		return body, nil
	case packedS2:
		n, err := s2.DecodedLen(body)
		if err != nil || n > maxRecordBytes {
			return nil, fmt.Errorf("%w: it unpacks to %d bytes, at most %d are possible", binenc.ErrCorrupt, n, maxRecordBytes)
		}
		out, err := s2.Decode(nil, body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", binenc.ErrCorrupt, err)
		}
		return out, nil
	}
	return nil, fmt.Errorf("%w: unknown packing %d", binenc.ErrCorrupt, record[1])
}
