// Package replay plays an LLM request trace against a cluster as a fleet of LLM servers
// would. It judges the cluster from outside, by the bytes that it finds where the cluster
// says they are.
//
// The data plane is real memory of this process: several simulated hosts each lend a byte
// buffer to the store (package hostmem). A reader checks, while it holds the lease, which
// object a block belongs to. So a range that the cluster gives to two objects shows as
// wrong bytes.
package replay
