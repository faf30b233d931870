// Package mooncakeclient speaks to a master as Mooncake's own clients do, for
// masterctl, tests and measurements.
//
// A Conn is one connection. A Transport has a client.Client, and all that is
// built on it, make its calls over Mooncake's protocol. The protocol does not
// have all of the contract; what it lacks must not get lost unnoticed:
//
//   - Requests have no ids, and a node that cannot serve a call only closes the
//     connection. So PutStart, PutRevoke, Remove and their batches are not
//     repeated once an attempt may have been applied: they end with
//     errs.Unresolved, also when the primary hands over. Reads, mounts and PutEnd
//     are idempotent, and are repeated.
//   - PutEnd and PutRevoke name a key, not a put: they mean whatever this client
//     has reserved there, so it must not put one key twice at the same time. An
//     object's id is in the answers, but only because Understudy's master gives it
//     to each replica as its number.
//   - Answers have no header. A Transport fills in the client's cluster and the
//     address of the node, which stands for the node's id. Only the answer to
//     ServiceReady has a term: the version of the master's view, which grows with
//     each primary (0 without HA). Other answers of a replaced primary are not
//     recognized, and not dropped.
//   - A connection begins with ServiceReady, as the original's do: what fails
//     there has carried no call.
//   - There are no pages, so a client's MaxMessageBytes bounds requests only.
//   - Neither the segments' names of replicas, nor the lease of objects that
//     were found by a pattern, nor the TTL of clients travel.
//
// Calls of the contract that Mooncake does not have fail with NotSupported. So do
// calls with a setting that the generation's messages have no place for: a tenant
// and the host of a segment before v0.3.12, groups likewise, the time of a soft
// pin and checksums before head.
package mooncakeclient
