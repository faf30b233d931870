package structpack

import (
	"crypto/md5" //nolint:gosec // the protocol's own fingerprint of a type; it protects nothing
	"encoding/binary"
	"strings"
)

// A Type is the literal of a type: one byte a node, depth first. It is a
// complete schema of the bytes, without names.
type Type string

// The fixed types. Enumerations are packed as the integer under them: i32,
// unless they say otherwise.
const (
	I32     Type = "\x01"
	U32     Type = "\x02"
	I64     Type = "\x03"
	U64     Type = "\x04"
	U8      Type = "\x06"
	U16     Type = "\x08"
	Bool    Type = "\x0b"
	String  Type = "\x80\x0c"
	Nothing Type = "\xfa" // monostate, void
)

// Nodes of the types that are made of others.
const (
	nodeMap      = "\x82"
	nodeVector   = "\x84"
	nodeOptional = "\x85"
	nodeVariant  = "\x86"
	nodeExpected = "\x87"
	nodeStruct   = "\xfd"
	nodeEnd      = "\xff"
)

// aligned is the size 8 in a literal: the last digit in base 127, plus 129.
const aligned = "\x89"

// VectorOf is a list of elements.
func VectorOf(element Type) Type { return nodeVector + element }

// MapOf is a list of keys with their values, in any order.
func MapOf(key, value Type) Type { return nodeMap + key + value }

// OptionalOf is a value that may be missing.
func OptionalOf(value Type) Type { return nodeOptional + value }

// ExpectedOf is a value or an error.
func ExpectedOf(value, failure Type) Type { return nodeExpected + value + failure }

// VariantOf is one of some alternatives; their order counts.
func VariantOf(alternatives ...Type) Type { return nodeVariant + join(alternatives) + nodeEnd }

// StructOf is a struct or a tuple; the order of its members counts.
func StructOf(members ...Type) Type { return nodeStruct + join(members) + nodeEnd }

// PlainStructOf is a struct that the original packs as it lies in memory: its
// members are of fixed size and aligned to 8 bytes, so nothing lies between.
func PlainStructOf(members ...Type) Type {
	return nodeStruct + join(members) + aligned + aligned + nodeEnd
}

func join(types []Type) Type {
	var all strings.Builder
	for _, t := range types {
		all.WriteString(string(t))
	}
	return Type(all.String())
}

// Hash returns the number by which both sides of a call compare the type. It is
// even; on the wire the low bit says that a metainfo byte follows.
func (t Type) Hash() uint32 {
	sum := md5.Sum([]byte(t)) //nolint:gosec // see above
	return binary.BigEndian.Uint32(sum[:]) &^ 1
}
