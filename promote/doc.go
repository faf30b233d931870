// Package promote decides which node is the primary, and takes a node from
// standby to primary and back: election, catching up, the first entry of a
// term, cleaning up, serving, handing over (design section 8).
//
// Only a node whose state is complete may run. A node past its serving deadline
// answers nothing, and nothing that a deposed primary writes can land in the
// journal: fencing is etcd's compare, the deadline is this node's own clock.
package promote
