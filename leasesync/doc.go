// Package leasesync is the story of a lease, from the read that renews it to the standbys
// that learn of it.
//
// A read extends the lease in memory and marks the object; a scan collects the marked
// leases once per interval, packs them (batch.go) and commits them (leases.go). A
// follower applies the batches, and now and then compares its state with the batches that
// etcd still holds (fullsync.go). A lost renewal costs warmth, never safety: quarantine
// covers what a reader was promised beyond the journal.
//
// The package must never decide what is evicted: that is for package eviction.
package leasesync
