// Package eviction decides when memory is given up, and how much.
//
// A policy plans a round (policy.go), the primary's loop runs it (loop.go), and a
// pass selects victims in the order of their leases (pass.go). A pass is journaled
// as one small cutoff; every node reads from its own state what falls under it
// (cutoff.go). So evictions cost etcd next to nothing, however many there are, and
// all nodes evict the same.
//
// tenant.go chooses what goes for a tenant's quota, and tenantloop.go decides when. Those
// evictions are journaled as removals of single objects, by a TenantJournal.
//
// The package must never evict what a reader holds a lease on: renewals that the
// journal lacks are journaled before the cutoff.
package eviction
