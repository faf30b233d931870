// Package deleteevents carries explicit deletions from the primary to the
// standbys: the five types of the seeds, with exact object ids. A pattern or a
// "remove all" is expanded on the primary; no follower ever evaluates one, so a
// deletion cannot hit an object that was put later.
//
// A deletion is acknowledged only when it is committed.
package deleteevents
