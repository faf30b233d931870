// Package statefile keeps a node's state on its own disk, so that everything may
// restart: the newest file and what the journal has behind it are the state again.
//
// A file holds a snapshot, as it goes out to followers, the commits that were
// applied while it was taken, and the position of the journal where that leads. So it
// stands on its own. It is written aside, synced and renamed: what is there under its
// name is whole, unless the disk damages it, which a checksum shows. The last two are
// kept.
//
// The package decides neither when to save nor whether a state may be trusted against
// the journal; package promote does. It deletes nothing but older files of its own.
package statefile
