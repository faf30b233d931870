// Package mooncake has the messages between Mooncake's clients and their master:
// the functions of its RPC, their arguments and results, in every release that is
// supported here.
//
// A release that changes a message is a Generation. All of them share the Go
// types of this package; a generation is a table of how each is packed (see
// generations.go). Function numbers, literals and hashes follow from names and
// tables, and a test compares them with dumps of the original's.
//
// It sends nothing and decides nothing: packages coro, mooncakeserver and
// mooncakeclient do.
package mooncake
