// Package leasesync is the story of a lease, from the read that renews it to the
// standbys that know of it.
//
// A read extends the lease in memory and marks the object; a scan collects the
// marked leases once per interval and has them committed (leases.go), packed
// (batch.go). A follower applies the batches, and compares its state once in a
// while with those that etcd still holds (fullsync.go). A renewal that is lost
// costs warmth, never safety: quarantine covers what a reader was promised beyond
// the journal.
//
// The package must never decide what goes: that is eviction's.
package leasesync
