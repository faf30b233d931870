// Package understudyv1 is the public contract of Understudy: the messages and
// services of the protobuf package understudy.v1, generated from the .proto
// files beside this one, with the limits they name as constants. The rules that
// hold for every call stand at the head of common.proto.
//
// It must never contain behaviour: no client, no server, no conversions. Within
// v1 the contract only grows; fields and values are never changed or reused.
//
// Why it is as it is:
//   - Ids of clients and segments are strings. As 16 raw bytes they would save
//     about 60 ns and 20 bytes of a call that takes about 20 µs, and nobody
//     could read or type them.
//   - Object ids are numbers: they order puts, and JSON shows them as strings.
//     Request ids and checksums are random, so they are fixed64: 8 bytes, where
//     a varint takes 9 or 10.
//   - What belongs to one item of a batch stands in one message, so lists of
//     different lengths cannot occur.
//   - Batch answers list failures by index and say nothing of the rest. Where an
//     item has no other payload, a count of successes makes the acknowledgement
//     explicit: an answer that was cut short does not pass for one.
//   - Long lists of keys are pages, not streams: each page has its own deadline,
//     fence and lease time, and the next one may come from the next primary.
package understudyv1
