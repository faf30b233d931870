// Package coro is the RPC protocol of Mooncake's master, coro_rpc of
// yalantinglibs: frames over TCP, a server and a client.
//
// A request is a header of 20 bytes with a function's number, and a body; a
// response a header of 16 bytes, and a body. Both have an attachment that
// Mooncake's master never uses; it is read over. A connection is answered in the
// order of its requests: clients of the original break when it is not.
//
// What a body means is left to its handler. The peer is not trusted: lengths are
// bounded, memory grows only with the bytes that have come, and a connection that
// stays silent or stops in the middle of a frame is closed.
package coro
