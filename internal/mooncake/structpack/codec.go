package structpack

// A Codec packs and unpacks the values of one type.
type Codec[T any] struct {
	Type  Type
	Least int // bytes that any value takes
	Put   func(w *Writer, v *T)
	Get   func(r *Reader, v *T) // overwrites all of *v
}

// A Message is a type that travels by itself, behind its hash.
type Message[T any] struct {
	codec Codec[T]
	hash  uint32
}

// NewMessage returns the message of a codec's type. It and others that make codecs
// run once, at the start, and are called in many places: inlined they would add
// 100 KB to every program that speaks the protocol.
//
//go:noinline
func NewMessage[T any](c Codec[T]) *Message[T] { return &Message[T]{c, c.Type.Hash()} }

// Type returns the literal of its type.
func (m *Message[T]) Type() Type { return m.codec.Type }

// The codecs of values that are not made of others. A text that is unpacked is a
// part of the message.
var (
	Uint64  = Codec[uint64]{U64, 8, func(w *Writer, v *uint64) { w.U64(*v) }, func(r *Reader, v *uint64) { *v = r.U64() }}
	Int64   = Codec[int64]{I64, 8, func(w *Writer, v *int64) { w.U64(uint64(*v)) }, func(r *Reader, v *int64) { *v = int64(r.U64()) }}
	Int32   = Codec[int32]{I32, 4, func(w *Writer, v *int32) { w.U32(uint32(*v)) }, func(r *Reader, v *int32) { *v = int32(r.U32()) }}
	Uint32  = Codec[uint32]{U32, 4, func(w *Writer, v *uint32) { w.U32(*v) }, func(r *Reader, v *uint32) { *v = r.U32() }}
	Uint8   = Codec[uint8]{U8, 1, func(w *Writer, v *uint8) { w.U8(*v) }, func(r *Reader, v *uint8) { *v = r.U8() }}
	Boolean = Codec[bool]{Bool, 1, func(w *Writer, v *bool) { w.Bool(*v) }, func(r *Reader, v *bool) { *v = r.Bool() }}
	Text    = Codec[string]{String, 1, func(w *Writer, v *string) { w.String(*v) }, func(r *Reader, v *string) { *v = r.String() }}
	Void    = Codec[struct{}]{Nothing, 0, func(*Writer, *struct{}) {}, func(*Reader, *struct{}) {}}
)

// Vector packs a list. Unpacking reuses the room that the slice has.
//
//go:noinline
func Vector[T any](element Codec[T]) Codec[[]T] {
	return Codec[[]T]{
		VectorOf(element.Type), 1,
		func(w *Writer, v *[]T) {
			w.Length(len(*v))
			for i := range *v {
				element.Put(w, &(*v)[i])
			}
		},
		func(r *Reader, v *[]T) {
			n := r.Elements(element.Least)
			if cap(*v) < n {
				*v = make([]T, n)
			}
			*v = (*v)[:n]
			for i := range *v {
				if element.Get(r, &(*v)[i]); r.err != nil {
					*v = (*v)[:0]
					return
				}
			}
		},
	}
}

// Map packs a list of entries as a map: their keys must be distinct, their order
// does not count.
//
//go:noinline
func Map[T any](key, value Member[T]) Codec[[]T] {
	c := Vector(Struct(key, value))
	c.Type = MapOf(key.Type, value.Type)
	return c
}

// Optional packs a value that may be missing: nil.
func Optional[T any](value Codec[T]) Codec[*T] {
	return Codec[*T]{
		OptionalOf(value.Type), 1,
		func(w *Writer, v **T) {
			w.Bool(*v != nil)
			if *v != nil {
				value.Put(w, *v)
			}
		},
		func(r *Reader, v **T) {
			if *v = nil; r.Bool() {
				*v = new(T)
				value.Get(r, *v)
			}
		},
	}
}

// A Result is a value, or the number of an error: then Failure is not 0 and the
// value means nothing.
type Result[T any] struct {
	Value   T
	Failure int32
}

// Expected packs a value or the number of an error, never 0.
func Expected[T any](value Codec[T]) Codec[Result[T]] {
	return Codec[Result[T]]{
		ExpectedOf(value.Type, I32), 1 + min(value.Least, 4),
		func(w *Writer, v *Result[T]) {
			if w.Bool(v.Failure == 0); v.Failure == 0 {
				value.Put(w, &v.Value)
			} else {
				w.U32(uint32(v.Failure))
			}
		},
		func(r *Reader, v *Result[T]) {
			if r.Bool() {
				v.Failure = 0
				value.Get(r, &v.Value)
				return
			}
			if v.Failure = int32(r.U32()); v.Failure == 0 {
				r.fail("an error has the number 0, which means that there is none")
			}
		},
	}
}

// A Member is one member of a struct: its name, which does not travel, and how
// it is packed. It is one word, as very many are passed when a program starts.
type Member[T any] struct{ *part[T] }

type part[T any] struct {
	Name  string
	Type  Type
	least int
	put   func(w *Writer, v *T)
	get   func(r *Reader, v *T)
}

// Field is the member that stands at a place in T.
//
//go:noinline
func Field[T, F any](name string, at func(v *T) *F, c Codec[F]) Member[T] {
	return Member[T]{&part[T]{
		name, c.Type, c.Least,
		func(w *Writer, v *T) { c.Put(w, at(v)) },
		func(r *Reader, v *T) { c.Get(r, at(v)) },
	}}
}

// Whole is a member that takes its parts from all over T.
//
//go:noinline
func Whole[T any](name string, c Codec[T]) Member[T] {
	return Member[T]{&part[T]{name, c.Type, c.Least, c.Put, c.Get}}
}

// Struct packs the members of a struct or tuple, in this order.
func Struct[T any](members ...Member[T]) Codec[T] {
	types, parts, least := make([]Type, len(members)), make([]part[T], len(members)), 0
	for i, m := range members {
		types[i], parts[i] = m.Type, *m.part
		least += m.least
	}
	return Codec[T]{
		StructOf(types...), least,
		func(w *Writer, v *T) {
			for i := range parts {
				parts[i].put(w, v)
			}
		},
		func(r *Reader, v *T) {
			for i := range parts {
				parts[i].get(r, v)
			}
		},
	}
}

// An Alternative is one of the types that a variant may hold.
type Alternative[T any] struct {
	Is    func(v *T) bool // whether the value is packed as this one
	Codec Codec[T]        // Get makes the value one of this kind
}

// Variant packs a value as the first alternative that it is; it must be one.
func Variant[T any](alternatives ...Alternative[T]) Codec[T] {
	types, least := make([]Type, len(alternatives)), alternatives[0].Codec.Least
	for i, a := range alternatives {
		types[i] = a.Codec.Type
		least = min(least, a.Codec.Least)
	}
	return Codec[T]{
		VariantOf(types...), 1 + least,
		func(w *Writer, v *T) {
			for i := range alternatives {
				if a := &alternatives[i]; a.Is(v) {
					w.U8(byte(i))
					a.Codec.Put(w, v)
					return
				}
			}
			panic("structpack: a value that is none of its variant's alternatives")
		},
		func(r *Reader, v *T) {
			i := int(r.U8())
			if i >= len(alternatives) {
				r.fail("a variant has the index %d, of %d alternatives", i, len(alternatives))
				return
			}
			alternatives[i].Codec.Get(r, v)
		},
	}
}
