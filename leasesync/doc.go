// Package leasesync carries lease renewals from the primary to the standbys.
//
// A read only marks its object (metadata); the Scanner takes the marks once per
// interval, packs them and has them committed; a follower applies the batches,
// and once in a while checks its state against those that etcd still holds.
// A renewal that is lost costs warmth, never safety: what a reader was promised
// beyond the journal is covered by quarantine.
package leasesync
