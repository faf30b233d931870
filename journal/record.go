package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/s2"

	"github.com/understudy-store/understudy/internal/binenc"
	"github.com/understudy-store/understudy/metadata"
)

// FormatVersion is the version of the record format that this program writes.
// It reads MinFormatVersion up to it.
const (
	FormatVersion    = 1
	MinFormatVersion = 1
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
	body = binenc.AppendUvarint(body, uint64(of.Term))
	body = binenc.AppendUvarint(body, uint64(of.Seq))
	body = binenc.AppendVarint(body, int64(of.Time))
	body = binenc.AppendUvarint(body, uint64(count))
	for _, p := range parts {
		body = append(body, p...)
	}
	record := append(make([]byte, 0, recordHeader+len(body)), FormatVersion, packedPlain, 0, 0, 0, 0)
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
	of := Stamp{metadata.Term(r.UvarintMax("a term", metadata.MaxTerm)), metadata.Seq(r.Uvarint()), metadata.Time(r.Varint())}
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
	if v := record[0]; v < MinFormatVersion || v > FormatVersion {
		return nil, fmt.Errorf("format version %d; this program reads %d to %d, upgrade this node", v, MinFormatVersion, FormatVersion)
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
