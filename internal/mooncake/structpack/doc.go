// Package structpack is the serialization that Mooncake's RPC uses: struct_pack
// of yalantinglibs, as far as that protocol goes.
//
// A message is the hash of its type, a byte about the widths of lengths if one
// is needed, and the values, packed without names or padding:
//
//	[hash u32, little-endian] [metainfo u8, if the hash is odd] [payload]
//
// The type is written as a literal, one byte a node; its MD5 gives the hash. So
// two programs understand each other exactly if their types are the same.
//
// A Codec packs and unpacks one type, with the literal as part of it: so literal
// and bytes cannot disagree. Codecs are put together from smaller
// ones and cost one indirect call a field, no reflection and no allocation.
// What is unpacked is bounded by the bytes that are there and by a budget of
// elements; nothing in it makes the reader recurse.
//
// It knows no message and no connection. Numbers are little-endian throughout.
package structpack
