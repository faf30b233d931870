// Package mooncakeclient speaks to a master as Mooncake's own clients do, for
// tests, drills, benchmarks and masterctl.
//
// A Conn is one connection, a Transport many of them: it makes the calls of the
// gRPC contract in Mooncake's protocol, so that package client, and all that is
// built on it, works over either. What the protocol cannot say, nobody must
// believe to have been said:
//
//   - Answers have no header. A Transport fills in the cluster that it was told
//     of and the address that it asked; a term stands only in the answer to
//     ServiceReady, and is the version of the master's view, which grows with
//     each primary (0 without HA). Answers of a replaced primary cannot be told
//     from others, and are not dropped.
//   - Requests have no ids. A call that changes something must not be repeated
//     when its answer was lost, unless it does the same twice: reads, mounts,
//     PutEnd. A repeated PutRevoke would say that there is no such put, or revoke
//     a later one, a repeated Remove likewise.
//   - PutEnd and PutRevoke name a key, not a put: they mean whatever this client
//     has reserved there. An object's id is in the answers, but only because
//     Understudy's master gives it to each replica as its number.
//   - A node that cannot serve a call closes the connection, and does not say
//     whether it had done something. So a connection begins with ServiceReady, as
//     the original's do: what fails there has carried no call.
//   - Neither the segments' names of replicas, nor the lease of objects that
//     were found by a pattern, nor the TTL of clients travel.
//
// Calls of the contract that Mooncake does not have fail with NotSupported. So do
// calls with a setting that the generation's messages have no place for: a tenant
// and the host of a segment before v0.3.12, groups likewise, the time of a soft
// pin and checksums before head.
//
// Who leads is package client's affair. The original reads it from etcd, or
// knows one address.
package mooncakeclient
