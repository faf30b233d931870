package structpack_test

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

type pair struct{ a, b string }

var pairs = structpack.Struct(
	structpack.Field("a", func(p *pair) *string { return &p.a }, structpack.Text),
	structpack.Field("b", func(p *pair) *string { return &p.b }, structpack.Text),
)

type entry struct {
	key   int32
	value string
}

var entries = structpack.Map(
	structpack.Field("key", func(e *entry) *int32 { return &e.key }, structpack.Int32),
	structpack.Field("value", func(e *entry) *string { return &e.value }, structpack.Text),
)

// A choice is what a variant holds.
type choice struct {
	number int32
	text   *string
}

var choices = structpack.Variant(
	structpack.Alternative[choice]{
		Is: func(c *choice) bool { return c.text == nil },
		Codec: structpack.Codec[choice]{
			Type: structpack.I32, Least: 4,
			Put: func(w *structpack.Writer, c *choice) { w.U32(uint32(c.number)) },
			Get: func(r *structpack.Reader, c *choice) { *c = choice{number: int32(r.U32())} },
		},
	},
	structpack.Alternative[choice]{
		Is: func(c *choice) bool { return c.text != nil },
		Codec: structpack.Codec[choice]{
			Type: structpack.String, Least: 1,
			Put: func(w *structpack.Writer, c *choice) { w.String(*c.text) },
			Get: func(r *structpack.Reader, c *choice) {
				s := r.String()
				*c = choice{text: &s}
			},
		},
	},
)

func unhex(t testing.TB, s string) string {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// golden packs a value, compares it with what the original makes of it, and
// unpacks that.
func golden[T any](t *testing.T, c structpack.Codec[T], v T, same func(a, b T) bool, want string) {
	t.Helper()
	m := structpack.NewMessage(c)
	var w structpack.Writer
	if got := structpack.Pack(&w, nil, m, &v); string(got) != unhex(t, want) {
		t.Errorf("packed %x, want %s", got, want)
	}
	var r structpack.Reader
	var back T
	if err := structpack.Unpack(&r, unhex(t, want), m, &back); err != nil || !same(v, back) {
		t.Errorf("unpacked %v, %v; want %v", back, err, v)
	}
}

func equal[T comparable](a, b T) bool { return a == b }

func equalLists[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func equalOptions[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// The bytes are the original's own (three releases of yalantinglibs).
func TestSamplesOfTheOriginal(t *testing.T) {
	golden(t, pairs, pair{"ab", "cd"}, equal, "d81ef97c 02 6162 02 6364")
	golden(t, structpack.Vector(structpack.Uint64), []uint64{1, 2}, equalLists, "9270f650 02 0100000000000000 0200000000000000")
	golden(t, entries, []entry{{1, "z"}}, equalLists, "08795e5a 01 01000000 01 7a")
	five := uint64(5)
	golden(t, structpack.Optional(structpack.Uint64), nil, equalOptions, "1a698158 00")
	golden(t, structpack.Optional(structpack.Uint64), &five, equalOptions, "1a698158 01 0500000000000000")
	q := "q"
	golden(t, choices, choice{text: &q}, func(a, b choice) bool { return equalOptions(a.text, b.text) }, "e61e2048 01 01 71")
	done := structpack.Expected(structpack.Void)
	golden(t, done, structpack.Result[struct{}]{}, equal, "cc6828af 01")
	golden(t, done, structpack.Result[struct{}]{Failure: -704}, equal, "cc6828af 00 40fdffff")
	golden(t, structpack.Text, "the rpc function not registered", equal, "76facf9d 1f "+hex.EncodeToString([]byte("the rpc function not registered")))
	golden(t, structpack.Text, strings.Repeat("x", 256), equal, "77facf9d 08 0001 "+strings.Repeat("78", 256))
}

// What debug builds and members for compatibility put in front is read over.
func TestMetainfo(t *testing.T) {
	for name, message := range map[string]string{
		"the literal":            "d91ef97c 04 fd800c800cff00 02 6162 02 6364",
		"a total length":         "d91ef97c 01 0f00 02 6162 02 6364",
		"more behind the values": "d91ef97c 01 1100 02 6162 02 6364 01 05",
		"lengths of 2 bytes":     "d91ef97c 08 0200 6162 0200 6364",
		"lengths of 4 bytes":     "d91ef97c 10 02000000 6162 02000000 6364",
		"lengths of 8 bytes":     "d91ef97c 18 0200000000000000 6162 0200000000000000 6364",
		"all of it":              "d91ef97c 1f ffffffffffffffff fd800c800cff00 0200000000000000 6162 0200000000000000 6364",
	} {
		var r structpack.Reader
		var p pair
		if err := structpack.Unpack(&r, unhex(t, message), structpack.NewMessage(pairs), &p); err != nil || p != (pair{"ab", "cd"}) {
			t.Errorf("%s: %v, %v; want ab, cd", name, p, err)
		}
	}
}

func TestWidths(t *testing.T) {
	m := structpack.NewMessage(pairs)
	for _, n := range []int{0, 1, 255, 256, 65535, 65536} {
		p := pair{strings.Repeat("k", n), "v"}
		var w structpack.Writer
		packed := structpack.Pack(&w, []byte("front"), m, &p)
		var r structpack.Reader
		var back pair
		if err := structpack.Unpack(&r, string(packed[5:]), m, &back); err != nil || back != p || string(packed[:5]) != "front" {
			t.Errorf("%d bytes: %v; want the message behind what was there", n, err)
		}
	}
}

// A message whose size is expected takes memory once; the next one has to be expected anew.
func TestExpect(t *testing.T) {
	m := structpack.NewMessage(structpack.Vector(structpack.Text))
	v := slices.Repeat([]string{strings.Repeat("k", 1000)}, 1000)
	var w structpack.Writer
	pack := func() { structpack.Pack(&w, nil, m, &v) }
	if got := testing.AllocsPerRun(10, func() { w.Expect(1_100_000); pack() }); got > 1 {
		t.Errorf("an expected message took memory %v times, want once", got)
	}
	if got := testing.AllocsPerRun(10, pack); got <= 1 {
		t.Errorf("one that is not expected took memory %v times, want more", got)
	}
}

// Whatever is cut off, wrong or too much is an error, and costs no memory.
func TestRefusals(t *testing.T) {
	for name, message := range map[string]string{
		"nothing":                     "",
		"half a hash":                 "d81e",
		"another type":                "cc6828af 01",
		"no payload":                  "d81ef97c",
		"cut in a string":             "d81ef97c 02 61",
		"bytes behind":                "d81ef97c 02 6162 02 6364 00",
		"no metainfo":                 "d91ef97c",
		"unknown bits of metainfo":    "d91ef97c 20 02 6162 02 6364",
		"a literal without an end":    "d91ef97c 04 fd800c800cff",
		"a length beyond the message": "d91ef97c 18 ffffffffffffffff",
	} {
		var r structpack.Reader
		var p pair
		if err := structpack.Unpack(&r, unhex(t, message), structpack.NewMessage(pairs), &p); err == nil {
			t.Errorf("%s: got %v, want an error", name, p)
		} else if (name == "another type") != errors.Is(err, structpack.ErrType) {
			t.Errorf("%s: %v; want ErrType just for another type", name, err)
		}
	}
	refused(t, structpack.Vector(structpack.Uint64), "9370f650 10 ffffffff 00")
	refused(t, structpack.Optional(structpack.Uint64), "1a698158 02 0500000000000000")
	refused(t, structpack.Expected(structpack.Void), "cc6828af 00 00000000")
	refused(t, choices, "e61e2048 02 01 71")
}

func refused[T any](t *testing.T, c structpack.Codec[T], message string) {
	t.Helper()
	var r structpack.Reader
	var v T
	if err := structpack.Unpack(&r, unhex(t, message), structpack.NewMessage(c), &v); err == nil {
		t.Errorf("%s: got %v, want an error", message, v)
	}
}

// A message of many empty elements must not become a multiple of its size, unless
// it was asked for.
func TestElementsAreBounded(t *testing.T) {
	m := structpack.NewMessage(structpack.Vector(structpack.Text))
	var w structpack.Writer
	var r structpack.Reader
	for n, ok := range map[int]bool{structpack.MaxElements: true, structpack.MaxElements + 1: false} {
		v := make([]string, n)
		packed := structpack.Pack(&w, nil, m, &v)
		var back []string
		if err := structpack.Unpack(&r, string(packed), m, &back); (err == nil) != ok {
			t.Errorf("%d elements: %v; want success: %v", n, err, ok)
		}
		answers := structpack.Reader{AnyLength: true}
		if err := structpack.Unpack(&answers, string(packed), m, &back); err != nil || len(back) != n {
			t.Errorf("%d of any number of elements: %d, %v; want all", n, len(back), err)
		}
	}
	answers := structpack.Reader{AnyLength: true}
	v := make([]string, 300)
	packed := structpack.Pack(&w, nil, m, &v)
	if err := structpack.Unpack(&answers, string(packed[:len(packed)-1]), m, new([]string)); err == nil {
		t.Error("a list of more elements than its bytes hold: got no error, want one")
	}
}

func TestSurvey(t *testing.T) {
	list := structpack.VectorOf(structpack.String)
	uuid := structpack.PlainStructOf(structpack.U64, structpack.U64)
	typ := structpack.StructOf(uuid, structpack.OptionalOf(list), list, structpack.StructOf(structpack.Bool, structpack.U8), structpack.I32)
	type args struct{ keys []string }
	message := func(keys []string) string {
		m := structpack.NewMessage(structpack.Codec[args]{Type: typ, Put: func(w *structpack.Writer, a *args) {
			w.U64(1)
			w.U64(2)
			w.Bool(false)
			w.Length(len(a.keys))
			for _, k := range a.keys {
				w.String(k)
			}
			w.Bool(true)
			w.U8(7)
			w.U32(4)
		}})
		var w structpack.Writer
		return string(structpack.Pack(&w, nil, m, &args{keys}))
	}
	var r structpack.Reader
	for _, n := range []int{0, 3, 300} {
		if err := structpack.Survey(&r, message(make([]string, n)), typ); err != nil {
			t.Errorf("%d items: %v; want no error", n, err)
		}
	}
	whole := message([]string{"a", "bc"})
	for n := range len(whole) {
		if err := structpack.Survey(&r, whole[:n], typ); err == nil {
			t.Errorf("cut at %d: no error, want an error", n)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	all := structpack.NewMessage(structpack.Vector(structpack.Expected(structpack.Vector(pairs))))
	v := []structpack.Result[[]pair]{{Value: []pair{{"a", "b"}, {"", strings.Repeat("c", 300)}}}, {Failure: -1}}
	f.Add(string(structpack.Pack(new(structpack.Writer), nil, all, &v)))
	f.Add("")
	f.Fuzz(func(t *testing.T, message string) {
		var r structpack.Reader
		var w structpack.Writer
		var first, second []structpack.Result[[]pair]
		answers := structpack.Reader{AnyLength: true}
		failed := structpack.Unpack(&r, message, all, &second)
		if err := structpack.Unpack(&answers, message, all, &first); err != nil {
			if failed == nil {
				t.Fatalf("a message that is read with bounds: got error %v without them, want none", err)
			}
			return
		}
		packed := structpack.Pack(&w, nil, all, &first)
		if err := structpack.Unpack(&answers, string(packed), all, &second); err != nil {
			t.Fatalf("what was unpacked cannot be unpacked again: got %v, want no error", err)
		}
		if again := structpack.Pack(&w, nil, all, &second); string(again) != string(packed) {
			t.Fatalf("%x, then %x; want the same", packed, again)
		}
	})
}

func BenchmarkBatch(b *testing.B) {
	keys := make([]string, 128)
	for i := range keys {
		keys[i] = strings.Repeat("k", 40)
	}
	m := structpack.NewMessage(structpack.Vector(structpack.Text))
	var w structpack.Writer
	var r structpack.Reader
	var packed []byte
	var back []string
	b.ReportAllocs()
	for b.Loop() {
		packed = structpack.Pack(&w, packed[:0], m, &keys)
		if err := structpack.Unpack(&r, string(packed), m, &back); err != nil {
			b.Fatal(err)
		}
	}
}
