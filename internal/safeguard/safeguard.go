// Package safeguard names the safeguards that the fault drills take away, one
// at a time, to show that a drill notices: a drill that cannot fail proves
// nothing.
//
// Only a program built with the tag "drills" can take one away (--break=NAME).
// In every other build Off is false at compile time, so that nothing of this is
// left in the program.
package safeguard

// A Name is one safeguard.
type Name string

// The safeguards, and what is missing without each.
const (
	FencingCompare        Name = "fencing-compare"        // a commit does not compare the leader and the head
	SendBasedDeadline     Name = "send-based-deadline"    // the serving deadline counts from the answer to a keepalive
	JournaledReservations Name = "journaled-reservations" // PutStarts are not written to the journal
	EvictionCutoffs       Name = "eviction-cutoffs"       // cutoffs are not written to the journal
	NearMisses            Name = "near-misses"            // a cutoff does not spare what was renewed
	Quarantine            Name = "quarantine"             // freed memory is given out at once
	CommitBeforeAck       Name = "commit-before-ack"      // callers are answered before the commit is written
	IDCheck               Name = "id-check"               // a deletion hits the newest object of the shard, not the one it names
	HeadContinuity        Name = "head-continuity"        // a follower does not check that no commit is missing
	ServingDeadline       Name = "serving-deadline"       // a primary answers until somebody tells it that its session has ended
	CommitDoubt           Name = "commit-doubt"           // a commit without an answer counts as refused, and is not looked for
	RequestIDs            Name = "request-ids"            // a repeated call is taken for a new one
	HandoverFlush         Name = "handover-flush"         // a handover does not journal the renewals that were only marked
	NoEmptyStart          Name = "no-empty-start"         // a master begins anew by itself when nobody has the state
	StallAllowance        Name = "stall-allowance"        // the time in which clients could not be heard counts as their silence
	GoneSegments          Name = "gone-segments"          // replicas of an unmounted segment stay until they are tidied up
	BootClock             Name = "boot-clock"             // deadlines and cluster time run by the wall clock
)

// All returns every safeguard.
func All() []Name {
	return []Name{
		FencingCompare, SendBasedDeadline, JournaledReservations, EvictionCutoffs, NearMisses, Quarantine, CommitBeforeAck,
		IDCheck, HeadContinuity, ServingDeadline, CommitDoubt, RequestIDs, HandoverFlush, NoEmptyStart, StallAllowance, GoneSegments,
		BootClock,
	}
}
