package structpack

// Survey checks a message of a type for which there is no codec.
func Survey(r *Reader, message string, t Type) error {
	s := surveyor{r}
	m := Message[struct{}]{
		codec: Codec[struct{}]{Type: t, Get: func(*Reader, *struct{}) { s.value(t) }},
		hash:  t.Hash(),
	}
	return Unpack(r, message, &m, new(struct{}))
}

// A surveyor walks over a value by the literal of its type. It goes as deep as
// the literal does, whatever the bytes are. It knows what arguments are made of:
// no maps, variants and expected values.
type surveyor struct{ r *Reader }

// value reads over one value, and returns what stands behind its type.
func (s *surveyor) value(t Type) (rest Type) {
	node, rest := t[:1], t[1:]
	switch node {
	case I32, U32:
		s.r.take(4)
	case I64, U64:
		s.r.take(8)
	case U8:
		s.r.take(1)
	case Bool:
		s.r.Bool()
	case String[:1]:
		_ = s.r.String()
		rest = rest[1:] // its characters
	case nodeOptional:
		if !s.r.Bool() {
			return skipType(rest)
		}
		return s.value(rest)
	case nodeVector:
		return s.vector(rest)
	case nodeStruct:
		for rest[:1] != nodeEnd {
			if rest[:1] == aligned { // twice, and the end
				return rest[3:]
			}
			rest = s.value(rest)
		}
		return rest[1:]
	default:
		panic("structpack: arguments of a type that Survey does not know")
	}
	return rest
}

func (s *surveyor) vector(element Type) (rest Type) {
	for range s.r.Elements(1) {
		if s.r.Failed() {
			break
		}
		s.value(element)
	}
	return skipType(element)
}

// skipType returns what stands behind a type: it reads over nothing.
func skipType(t Type) Type {
	nothing := surveyor{r: &Reader{err: ErrType}}
	return nothing.value(t)
}
