// Package judge proves from outside whether a cluster keeps its promises.
//
// A Load is a crowd of recorded clients. They put, read, look for and remove
// objects under a few shared keys, and every call is kept: when it was sent,
// when it came back, what it said. Beside them probes ask each node by itself,
// whether it is primary or not. The bytes are real:
// hosts lend memory of this process, writers fill in whose bytes they are, and
// readers look while they hold the lease. Every fifth client is of a second tenant, with
// the same keys and a quota. Owners of memory behave as Mooncake's own client does: they
// copy and move objects, and keep some on SSDs.
//
// Judge then decides, from what clients saw and from what the nodes and etcd
// show to anybody, which promises of the design were broken:
//
//	D  an acknowledged put or reservation is gone without a reason; the journal
//	   in etcd has a hole
//	X  an object is returned whose removal had been acknowledged, or a node still
//	   holds it
//	A  bytes under a lease are another object's; ranges of a node overlap
//	L  bytes changed while a lease on them held
//	F  an answer of a lower term to a call that was sent after somebody had an
//	   answer of a higher one
//	V  the history of a key is not linearizable; an event is in the journal twice
//	S  nodes differ at one sequence, 5 s after the load has ended
//
// The judge does not know how the cluster works inside, and must never believe a
// node's own counters. What it cannot decide it reports as undecided, which is not a pass.
package judge
