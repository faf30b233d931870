// Package promote decides which node is the primary, and takes a node from
// standby to primary and back: election, catching up, the first entry of a
// term, cleaning up, serving, handing over (design section 8).
//
// Only a node whose state is complete may run. A primary whose commits stop answers
// no calls after its serve window (journal.Right), by its own clock, and is deposed
// after the failover time if etcd is well. No write of a deposed primary reaches the
// journal: every transaction compares the leader key.
package promote
