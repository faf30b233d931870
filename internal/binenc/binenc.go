// Package binenc holds the few primitives from which journal records and
// snapshots are encoded: varints, strings, fixed words. Encoding appends to a
// byte slice and cannot fail; decoding reads through a Reader that remembers
// the first fault, so that callers check once.
//
// A Reader trusts nothing: it never allocates more than the input could hold.
package binenc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt is the fault of input that this encoding could not have made.
var ErrCorrupt = errors.New("corrupt encoding")

// AppendUvarint appends an unsigned number, 7 bits a byte.
func AppendUvarint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// AppendVarint appends a signed number, zig-zag coded.
func AppendVarint(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

// AppendUint64 appends a number as 8 bytes, little-endian; for words without
// leading zeros, such as random ids and digests.
func AppendUint64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

// AppendString appends a length and the bytes.
func AppendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// AppendBool appends one byte, 0 or 1.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// A Reader decodes from a byte slice. After a fault every further read
// returns zero values.
type Reader struct {
	rest []byte
	err  error
}

// NewReader returns a Reader over b, which it does not change or keep beyond
// the strings it returns copies of.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Err returns the first fault, or nil.
func (r *Reader) Err() error { return r.err }

// Len returns how many bytes are left.
func (r *Reader) Len() int { return len(r.rest) }

// Close returns the first fault; bytes left over are one.
func (r *Reader) Close() error {
	if r.err == nil && len(r.rest) > 0 {
		r.Fail("%d bytes left over", len(r.rest))
	}
	return r.err
}

// Fail records a fault of the caller's, unless there was one before.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

// Uvarint reads an unsigned number.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.Fail("a number is cut short or too large")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// UvarintMax reads an unsigned number that is at most max.
func (r *Reader) UvarintMax(what string, max uint64) uint64 {
	v := r.Uvarint()
	if v > max {
		r.Fail("%s is %d, at most %d is possible", what, v, max)
		return 0
	}
	return v
}

// Varint reads a signed number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.Fail("a number is cut short or too large")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Uint64 reads 8 bytes.
func (r *Reader) Uint64() uint64 {
	b := r.Fixed(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	b := r.Fixed(1)
	if b == nil {
		return 0
	}
	return b[0]
}

// Bool reads one byte that must be 0 or 1.
func (r *Reader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail("a flag is %d", v)
	}
	return v == 1
}

// Fixed reads n bytes and returns them without a copy, nil after a fault.
func (r *Reader) Fixed(n int) []byte {
	if n > len(r.rest) {
		r.Fail("%d bytes expected, %d left", n, len(r.rest))
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// Bytes reads a length and that many bytes, without a copy.
func (r *Reader) Bytes(max int) []byte {
	n := r.Uvarint()
	if n > uint64(max) {
		r.Fail("a string has %d bytes, at most %d are possible", n, max)
		return nil
	}
	return r.Fixed(int(n))
}

// String reads a string of at most max bytes.
func (r *Reader) String(max int) string { return string(r.Bytes(max)) }

// Count reads how many elements follow. Each takes at least size bytes, so a
// count that the rest of the input cannot hold is a fault.
func (r *Reader) Count(size int) int {
	n := r.Uvarint()
	if n > uint64(len(r.rest)/max(size, 1)) {
		r.Fail("%d elements in %d bytes", n, len(r.rest))
		return 0
	}
	return int(n)
}
