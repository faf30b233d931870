package structpack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// ErrType means that a message is of another type than its reader expects.
var ErrType = errors.New("the message is of another type")

// ErrElements means that a message has more elements than MaxElements.
var ErrElements = fmt.Errorf("a message may have %d elements in all its lists; split the batch", MaxElements)

// MaxElements is how many elements all containers of one message may have
// together, unless its reader says otherwise. The bound keeps a message of empty
// elements, which costs its sender little, from becoming many times its size in
// memory.
const MaxElements = 1 << 17

// A Reader unpacks messages. Its zero value is ready; one Reader serves any
// number of messages, one after the other. The first error sticks: what is read
// after it is zero.
//
// Strings that it returns are parts of the message's own.
type Reader struct {
	// AnyLength takes messages of any number of elements: answers that this program
	// asked for may have more than MaxElements. Then only the size of the message
	// bounds its memory: no container gets room for more elements than the message
	// has bytes for.
	AnyLength bool

	rest     string
	width    int // bytes of every length in this message
	elements int // that may still come
	err      error
}

// Unpack reads a whole message into v. Every part of v that the type has is
// overwritten; what v holds after an error means nothing.
func Unpack[T any](r *Reader, message string, m *Message[T], v *T) error {
	r.rest, r.width, r.elements, r.err = message, 1, MaxElements, nil
	more := r.head(m.hash)
	if r.err == nil {
		m.codec.Get(r, v)
	}
	if r.err == nil && !more && r.rest != "" {
		r.fail("%d bytes follow the message", len(r.rest))
	}
	r.rest = ""
	return r.err
}

// head reads what stands before the payload. It reports whether values that
// this reader does not know may follow the payload.
func (r *Reader) head(hash uint32) (more bool) {
	got := r.U32()
	if r.err != nil {
		return false
	}
	if got&^1 != hash {
		r.err = fmt.Errorf("%w: its type has the hash %08x, expected is %08x", ErrType, got&^1, hash)
		return false
	}
	if got&1 == 0 {
		return false
	}
	meta := r.U8()
	if meta&^byte(metaKnown) != 0 {
		r.fail("the metainfo byte is %#x; only the lower five bits have a meaning", meta)
		return false
	}
	if code := meta & metaTotalLength; code != 0 {
		r.take(1 << code)
		more = true
	}
	if meta&metaLiteral != 0 {
		_, rest, found := strings.Cut(r.rest, "\x00")
		if !found {
			r.fail("the literal of the type has no end")
		}
		r.rest = rest
	}
	r.width = 1 << (meta >> metaWidthShift)
	return more
}

func (r *Reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// Fail makes the message one that cannot be read, unless it is already.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Failed reports whether the message cannot be read. Whoever reads elements in a
// loop ends it then.
func (r *Reader) Failed() bool { return r.err != nil }

// take returns the next n bytes, none after an error.
func (r *Reader) take(n int) string {
	if r.err != nil {
		return ""
	}
	if n > len(r.rest) {
		r.fail("the message ends where %d bytes more should be", n-len(r.rest))
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// fixed returns the next n bytes, at most 8; zeros after an error.
func (r *Reader) fixed(n int) []byte {
	s := r.take(n)
	if len(s) < n {
		s = "\x00\x00\x00\x00\x00\x00\x00\x00"
	}
	return []byte(s)
}

// U8 reads a byte.
func (r *Reader) U8() byte { return r.fixed(1)[0] }

// U16 reads 2 bytes.
func (r *Reader) U16() uint16 { return binary.LittleEndian.Uint16(r.fixed(2)) }

// U32 reads 4 bytes.
func (r *Reader) U32() uint32 { return binary.LittleEndian.Uint32(r.fixed(4)) }

// U64 reads 8 bytes.
func (r *Reader) U64() uint64 { return binary.LittleEndian.Uint64(r.fixed(8)) }

// Bool reads a truth value, also the mark before an optional or expected value.
func (r *Reader) Bool() bool {
	v := r.U8()
	if v > 1 {
		r.fail("%d stands where 0 or 1 should be", v)
	}
	return v == 1
}

// Length reads the length of a container whose elements take at least so many
// bytes each. What is longer than the message is refused here, before anyone
// makes room for it.
func (r *Reader) Length(least int) int {
	var n uint64
	switch r.width {
	case 1:
		n = uint64(r.U8())
	case 2:
		n = uint64(r.U16())
	case 4:
		n = uint64(r.U32())
	default:
		n = r.U64()
	}
	if n > uint64(len(r.rest)/max(1, least)) {
		r.fail("a container has %d elements of at least %d bytes, and %d bytes are left", n, least, len(r.rest))
		return 0
	}
	return int(n)
}

// Elements is Length for all containers but strings: what they hold counts
// against MaxElements, unless any number may come.
func (r *Reader) Elements(least int) int {
	n := r.Length(least)
	if r.elements -= n; r.elements < 0 && !r.AnyLength {
		r.Fail(ErrElements)
		return 0
	}
	return n
}

// String reads bytes with their length.
func (r *Reader) String() string { return r.take(r.Length(1)) }
