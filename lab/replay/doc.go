// Package replay plays an LLM request trace against a cluster as a fleet of LLM
// servers would, and judges the cluster from outside: by the bytes it finds
// where the cluster said that they are.
//
// The data plane is real memory of this process: several simulated hosts each
// lend a byte buffer to the store (package hostmem). Whoever reads a block
// checks whose it is while it holds the lease. So a range that the cluster gives
// to two objects shows as wrong bytes.
package replay
