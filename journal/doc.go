// Package journal makes changes durable and carries them to the followers, in
// one order.
//
// On the primary there is one queue and one writer. A commit is a prefix of
// the queue, written to etcd in one transaction that compares the leader and
// the head and moves the head by one: a deposed primary cannot commit, and a
// commit is there whole or not at all. A result that is not known is resolved
// by reading, never guessed. After the commit the writer applies it to the
// store and answers the callers.
//
// A follower watches the journal's root and gets the commits in order, each
// proven to follow the one before.
//
// The journal never waits for a follower, and never drops a change that it has
// acknowledged.
package journal
