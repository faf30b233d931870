// Package statefile keeps a node's state on its own disk, so that everything may
// restart: the newest file and the journal behind it give the state again.
//
// A file holds a snapshot, as it goes out to followers, the commits that were
// applied while it was taken, and the position of the journal where that leads. So it
// stands on its own. It is written under a temporary name, synced and renamed: so a file
// under its final name is whole, unless the disk damages it, which a checksum shows. The
// newest two are always kept.
//
// The package decides neither when to save nor whether a state may be trusted against
// the journal; package promote does. It deletes nothing but older files of its own.
package statefile
