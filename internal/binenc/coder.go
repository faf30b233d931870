package binenc

// A Coder goes through the fields of a value in the order of their encoding, in
// either direction: an encoder appends them, a decoder sets them. So the order
// and the form of each field are written down once.
type Coder struct {
	Reader          // of a decoder
	out      []byte // of an encoder
	decoding bool
}

// Encoder returns a coder that appends to b.
func Encoder(b []byte) Coder { return Coder{out: b} }

// Decoder returns a coder that reads b, as a Reader does.
func Decoder(b []byte) Coder { return Coder{Reader: Reader{rest: b}, decoding: true} }

// Encoded returns what an encoder has appended to.
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
		*v = c.Reader.Byte()
		return
	}
	c.out = append(c.out, *v)
}

// CodeBool codes one byte, 0 or 1.
func (c *Coder) CodeBool(v *bool) {
	if c.decoding {
		*v = c.Reader.Bool()
		return
	}
	c.out = AppendBool(c.out, *v)
}

// CodeUint64 codes 8 bytes.
func (c *Coder) CodeUint64(v *uint64) {
	if c.decoding {
		*v = c.Reader.Uint64()
		return
	}
	c.out = AppendUint64(c.out, *v)
}

// CodeFixed codes the bytes of an array.
func (c *Coder) CodeFixed(v []byte) {
	if c.decoding {
		copy(v, c.Reader.Fixed(len(v)))
		return
	}
	c.out = append(c.out, v...)
}

// CodeString codes a string of at most max bytes.
func (c *Coder) CodeString(v *string, max int) {
	if c.decoding {
		*v = c.Reader.String(max)
		return
	}
	c.out = AppendString(c.out, *v)
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
	c.out = AppendUvarint(c.out, uint64(*n))
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
	c.out = AppendUvarint(c.out, uint64(*v))
}

// CodeVarint codes a signed number.
func CodeVarint[T ~int64](c *Coder, v *T) {
	if c.decoding {
		*v = T(c.Varint())
		return
	}
	c.out = AppendVarint(c.out, int64(*v))
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
