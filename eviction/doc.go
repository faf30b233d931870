// Package eviction decides when memory is given up, and how much, on the
// primary. A pass is journaled as one small cutoff; which objects fall under it
// every node reads from its own state (metadata.Cutoff). So evictions cost etcd
// next to nothing, however many there are, and all nodes evict the same.
//
// Two policies choose the passes: Watermark, which is the C++ master's, and
// Expiry, which takes a lease for the object's life.
package eviction
