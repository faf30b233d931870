package structpack

import (
	"encoding/binary"
	"math"
)

// A Writer packs messages. Its zero value is ready; one Writer serves any number
// of messages, one after the other.
type Writer struct {
	buf     []byte
	width   int // bytes of every length in this message: 1, 2, 4 or 8
	longest int // length so far
	room    int // see Expect
}

// Expect makes room for n bytes at once with the next message, which should have about as
// many: if it grew step by step it would take several times its memory.
func (w *Writer) Expect(n int) { w.room = n }

// Bits of the metainfo byte.
const (
	metaTotalLength = 0b00011 // width of a total length that follows
	metaLiteral     = 0b00100 // the literal of the type follows, with a NUL
	metaWidthShift  = 3       // of the width of lengths
	metaKnown       = 0b11111
)

// Pack appends a message to dst. All lengths in a message have the same width,
// that of the longest: a message with one of 256 or more is packed twice.
func Pack[T any](w *Writer, dst []byte, m *Message[T], v *T) []byte {
	if len(dst)+w.room > cap(dst) { // one step: slices.Grow takes two under the race detector
		dst = append(make([]byte, 0, len(dst)+w.room), dst...)
	}
	w.room = 0
	for width := 1; ; {
		w.buf, w.width, w.longest = dst, width, 0
		if width == 1 {
			w.U32(m.hash)
		} else {
			w.U32(m.hash | 1)
			w.U8(widthCode(width) << metaWidthShift)
		}
		m.codec.Put(w, v)
		if need := widthOf(w.longest); need > width {
			width, dst = need, w.buf[:len(dst)] // with the room that there is by now
			continue
		}
		packed := w.buf
		w.buf = nil
		return packed
	}
}

func widthOf(length int) int {
	switch {
	case length <= math.MaxUint8:
		return 1
	case length <= math.MaxUint16:
		return 2
	case length <= math.MaxUint32:
		return 4
	}
	return 8
}

// widthCode returns 0 to 3 for 1, 2, 4 and 8 bytes.
func widthCode(width int) byte {
	code := byte(0)
	for ; width > 1; width /= 2 {
		code++
	}
	return code
}

// U8 appends a byte.
func (w *Writer) U8(v byte) { w.buf = append(w.buf, v) }

// U16 appends 2 bytes. Signed numbers go as their two's complement, here and
// below.
func (w *Writer) U16(v uint16) { w.buf = binary.LittleEndian.AppendUint16(w.buf, v) }

// U32 appends 4 bytes.
func (w *Writer) U32(v uint32) { w.buf = binary.LittleEndian.AppendUint32(w.buf, v) }

// U64 appends 8 bytes.
func (w *Writer) U64(v uint64) { w.buf = binary.LittleEndian.AppendUint64(w.buf, v) }

// Bool appends a truth value, also the mark before an optional or expected value.
func (w *Writer) Bool(v bool) {
	if v {
		w.U8(1)
	} else {
		w.U8(0)
	}
}

// Length appends the length of a container.
func (w *Writer) Length(n int) {
	w.longest = max(w.longest, n)
	switch w.width {
	case 1:
		w.U8(byte(n))
	case 2:
		w.U16(uint16(n))
	case 4:
		w.U32(uint32(n))
	default:
		w.U64(uint64(n))
	}
}

// String appends bytes with their length.
func (w *Writer) String(s string) {
	w.Length(len(s))
	w.buf = append(w.buf, s...)
}
