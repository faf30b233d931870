// Package deleteevents is the story of an explicit deletion: from the call to an
// event with exact object ids that every node applies.
//
// The primary decides a removal (event.go), and expands a pattern or a "remove
// all" into lists of ids in chunks (expand.go). No follower ever evaluates a
// pattern, so a deletion cannot hit an object that was put later. A deletion is
// acknowledged only when it is committed.
//
// The package must never delete by key: a key may belong to a later object.
package deleteevents
