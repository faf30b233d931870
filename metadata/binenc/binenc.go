// Package binenc holds the few primitives from which journal records and
// snapshots are encoded: varints, strings, fixed words. A Coder goes through the
// fields of a value in either direction, so the order and the form of each field
// are written down once. Encoding cannot fail; decoding remembers the first
// fault, so that callers check once.
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

// AppendString appends a length and the bytes.
func AppendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// A Reader decodes from a byte slice. After a fault every further read
// returns zero values.
type Reader struct {
	rest []byte
	err  error
}

// NewReader returns a Reader over b. It does not change b. What Fixed and Bytes return
// are parts of b.
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

// Fail records a fault that the caller has found, unless there was one before.
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

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if b := r.Fixed(1); b != nil {
		return b[0]
	}
	return 0
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

// A Coder goes through the fields of a value in the order of their encoding: an
// encoder appends them, a decoder sets them.
type Coder struct {
	Reader          // of a decoder
	out      []byte // of an encoder
	text     string // of a decoder: what CodeSharedString copied, which ends where the input ends
	decoding bool
}

// Encoder returns a coder that appends to b.
func Encoder(b []byte) Coder { return Coder{out: b} }

// Decoder returns a coder that reads b, as a Reader does.
func Decoder(b []byte) Coder { return Coder{Reader: Reader{rest: b}, decoding: true} }

// Encoded returns the slice that an encoder has appended to.
func (c *Coder) Encoded() []byte { return c.out }

// Decoding reports whether the coder sets fields.
func (c *Coder) Decoding() bool { return c.decoding }

// Check records a fault of what a decoder has read, unless it is nil.
func (c *Coder) Check(fault error) {
	if c.decoding && fault != nil && c.err == nil {
		c.Fail("%v", fault)
	}
}

// Tag codes a byte that is always the same.
func (c *Coder) Tag(tag byte) {
	if got := tag; c.decoding {
		if c.CodeByte(&got); got != tag {
			c.Fail("it begins with %d instead of %d", got, tag)
		}
		return
	}
	c.out = append(c.out, tag)
}

// CodeByte codes one byte.
func (c *Coder) CodeByte(v *byte) {
	if c.decoding {
		*v = c.Byte()
		return
	}
	c.out = append(c.out, *v)
}

// CodeBool codes one byte, 0 or 1.
func (c *Coder) CodeBool(v *bool) {
	b := byte(0)
	if *v {
		b = 1
	}
	if c.CodeByte(&b); b > 1 {
		c.Fail("a flag is %d", b)
	}
	if c.decoding {
		*v = b == 1
	}
}

// CodeUint64 codes 8 bytes, little-endian; for words without leading zeros, such
// as random ids and digests.
func (c *Coder) CodeUint64(v *uint64) {
	if !c.decoding {
		c.out = binary.LittleEndian.AppendUint64(c.out, *v)
		return
	}
	*v = 0
	if b := c.Fixed(8); b != nil {
		*v = binary.LittleEndian.Uint64(b)
	}
}

// CodeFixed codes the bytes of an array.
func (c *Coder) CodeFixed(v []byte) {
	if c.decoding {
		copy(v, c.Fixed(len(v)))
		return
	}
	c.out = append(c.out, v...)
}

// CodeString codes a string of at most max bytes.
func (c *Coder) CodeString(v *string, max int) {
	if c.decoding {
		*v = string(c.Bytes(max))
		return
	}
	c.out = AppendString(c.out, *v)
}

// CodeSharedString is CodeString without an allocation for each string: those of one
// decoder are parts of one copy of its input, and each of them keeps all of that copy.
func (c *Coder) CodeSharedString(v *string, max int) {
	if !c.decoding {
		c.out = AppendString(c.out, *v)
		return
	}
	if c.text == "" {
		c.text = string(c.rest)
	}
	n := len(c.Bytes(max))
	end := len(c.text) - len(c.rest)
	*v = c.text[end-n : end]
}

// Optional codes which of up to 8 optional fields follow, as the bits of one
// byte, the first in the lowest one.
func (c *Coder) Optional(there ...bool) (follows [8]bool) {
	bits := byte(0)
	for i, v := range there {
		if v {
			bits |= 1 << i
		}
	}
	if c.CodeByte(&bits); bits>>len(there) != 0 {
		c.Fail("unknown parts %#x", bits)
	}
	for i := range there {
		follows[i] = bits&(1<<i) != 0
	}
	return follows
}

// CodeCount codes a number of elements, each of which takes at least size bytes.
func (c *Coder) CodeCount(n *int, size int) {
	if c.decoding {
		*n = c.Count(size)
		return
	}
	c.out = binary.AppendUvarint(c.out, uint64(*n))
}

// CodeUvarint codes an unsigned number.
func CodeUvarint[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Coder, v *T) {
	CodeUvarintMax(c, v, "a number", uint64(^T(0)))
}

// CodeUvarintMax codes an unsigned number of at most max; a fault says what it is.
func CodeUvarintMax[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Coder, v *T, what string, max uint64) {
	if c.decoding {
		*v = T(c.UvarintMax(what, max))
		return
	}
	c.out = binary.AppendUvarint(c.out, uint64(*v))
}

// CodeVarint codes a signed number.
func CodeVarint[T ~int64](c *Coder, v *T) {
	if c.decoding {
		*v = T(c.Varint())
		return
	}
	c.out = binary.AppendVarint(c.out, int64(*v))
}

// CodeSlice codes a number of elements, and each of them, which takes at least
// size bytes. A decoder makes the slice; none stays nil.
func CodeSlice[T any](c *Coder, list *[]T, size int, each func(*T)) {
	n := len(*list)
	if c.CodeCount(&n, size); c.decoding && n > 0 {
		*list = make([]T, n)
	}
	for i := range *list {
		each(&(*list)[i])
	}
}
