package binenc

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, i := rapid.Uint64().Draw(t, "u"), rapid.Int64().Draw(t, "i")
		s, v := rapid.String().Draw(t, "s"), rapid.Bool().Draw(t, "v")
		type value struct {
			u, word uint64
			i       int64
			s       string
			v       bool
		}
		code := func(c *Coder, v *value) {
			CodeUvarint(c, &v.u)
			CodeVarint(c, &v.i)
			c.CodeUint64(&v.word)
			c.CodeString(&v.s, len(s))
			c.CodeBool(&v.v)
		}
		want := value{u, u, i, s, v}
		enc := Encoder(nil)
		code(&enc, &want)
		var got value
		dec := Decoder(enc.Encoded())
		if code(&dec, &got); dec.Close() != nil || got != want {
			t.Fatalf("decoded %+v, want %+v: %v", got, want, dec.Err())
		}
		cut := Decoder(enc.Encoded()[:rapid.IntRange(0, len(enc.Encoded())-1).Draw(t, "cut")])
		if code(&cut, &got); !errors.Is(cut.Close(), ErrCorrupt) {
			t.Fatalf("decoding cut input: got %v, want ErrCorrupt", cut.Err())
		}
	})
}

func TestFaults(t *testing.T) {
	for name, read := range map[string]func(*Coder){
		"long string":  func(c *Coder) { c.CodeString(new(string), 2) },
		"many":         func(c *Coder) { c.Count(2) },
		"above max":    func(c *Coder) { c.UvarintMax("x", 2) },
		"bad flag":     func(c *Coder) { c.CodeBool(new(bool)) },
		"left over":    func(c *Coder) { c.Byte() },
		"after a fail": func(c *Coder) { c.Fail("mine"); c.Fail("second"); c.CodeUint64(new(uint64)) },
	} {
		c := Decoder([]byte{3, 'a', 'b', 'c'})
		if read(&c); !errors.Is(c.Close(), ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, c.Err())
		}
	}
}

// Strings that share a copy of the input are the ones that were encoded, whatever stands
// between them, and stay so when the input is overwritten.
func TestSharedStrings(t *testing.T) {
	words := []string{"", "first", "second", strings.Repeat("x", 300), ""}
	e := Encoder(nil)
	for i, word := range words {
		e.CodeSharedString(&word, 300)
		number := uint64(i) << 40
		CodeUvarint(&e, &number)
	}
	input := e.Encoded()
	d, got := Decoder(input), make([]string, len(words))
	for i := range words {
		d.CodeSharedString(&got[i], 300)
		var number uint64
		if CodeUvarint(&d, &number); number != uint64(i)<<40 {
			t.Errorf("the number behind string %d: got %d, want %d", i, number, uint64(i)<<40)
		}
	}
	clear(input)
	if err := d.Close(); err != nil || !slices.Equal(got, words) {
		t.Errorf("the input was overwritten: got %q, %v, want the strings as they were encoded: %q", got, err, words)
	}
	for _, broken := range [][]byte{nil, {5, 'a'}, {2, 'a', 'b'}} {
		d, word := Decoder(broken), "before"
		if d.CodeSharedString(&word, 1); word != "" || d.Err() == nil {
			t.Errorf("decoding %v: got %q, %v, want no string, and an error", broken, word, d.Err())
		}
	}
}
