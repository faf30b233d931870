package binenc

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, i := rapid.Uint64().Draw(t, "u"), rapid.Int64().Draw(t, "i")
		s, v := rapid.String().Draw(t, "s"), rapid.Bool().Draw(t, "v")
		b := AppendUvarint(nil, u)
		b = AppendVarint(b, i)
		b = AppendUint64(b, u)
		b = AppendString(b, s)
		b = AppendBool(b, v)
		r := NewReader(b)
		if r.Uvarint() != u || r.Varint() != i || r.Uint64() != u || r.String(len(s)) != s || r.Bool() != v || r.Close() != nil {
			t.Fatalf("lost something: %v", r.Err())
		}
		// Cut anywhere, it is a fault, never a panic.
		cut := NewReader(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")])
		cut.Uvarint()
		cut.Varint()
		cut.Uint64()
		_ = cut.String(len(s))
		cut.Bool()
		if !errors.Is(cut.Close(), ErrCorrupt) {
			t.Fatalf("cut input reads as whole: %v", cut.Err())
		}
	})
}

func TestFaults(t *testing.T) {
	for name, read := range map[string]func(*Reader){
		"long string":  func(r *Reader) { _ = r.String(2) },
		"many":         func(r *Reader) { r.Count(2) },
		"above max":    func(r *Reader) { r.UvarintMax("x", 2) },
		"bad flag":     func(r *Reader) { r.Bool() },
		"left over":    func(r *Reader) { r.Byte() },
		"after a fail": func(r *Reader) { r.Fail("mine"); r.Fail("second"); r.Uint64() },
	} {
		r := NewReader([]byte{3, 'a', 'b', 'c'})
		read(r)
		if !errors.Is(r.Close(), ErrCorrupt) {
			t.Errorf("%s: no fault", name)
		}
	}
}
