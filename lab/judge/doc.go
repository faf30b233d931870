// Package judge proves from outside whether a cluster keeps its promises.
//
// A Load is a number of recorded clients. They put, read, look for and remove objects
// under a few shared keys, and each call is recorded: when it was sent, when it
// returned, and its result. In addition, probes ask each node directly, whether it is
// primary or not. The bytes are real: hosts lend memory of this process, writers mark
// the bytes as their object's, and readers check them while they hold the lease. Every
// fifth client belongs to a second tenant, with the same keys and a quota. Owners of
// memory behave like Mooncake's own client: they copy and move objects, and keep some on
// SSDs.
//
// Judge then decides, from what clients saw and from what nodes and etcd show to any
// caller, which promises of the design were broken:
//
//	D  an acknowledged put or reservation is gone without a reason; the journal
//	   in etcd has a hole
//	X  an object is returned whose removal had been acknowledged, or a node still
//	   holds it
//	A  bytes under a lease belong to another object; ranges of a node overlap
//	L  bytes changed while a lease on them held
//	F  an answer of a lower term to a call that was sent after some client had
//	   got an answer of a higher one
//	V  the history of a key is not linearizable; an event is in the journal twice
//	S  nodes differ at one sequence, 5 s after the load has ended
//
// The judge does not know how the cluster works inside, and must never trust a node's
// own counters. What it cannot decide it reports as undecided, which is not a pass.
package judge
