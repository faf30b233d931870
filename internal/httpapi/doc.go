// Package httpapi is what a node serves over HTTP on its metrics port: metrics,
// health, and the queries that the C++ master answers there, with its paths
// and bodies (behaviours section 5). The calls of AdminService come beside them, as JSON.
//
// It translates, checks the caller's role, and bounds what each peer may have. Some requests
// change the state: remove_all, drain jobs, quotas of tenants, the orders of AdminService,
// and a query for a key, which grants a lease. The package must never log a key, hold a whole
// list of the store's keys, or let one slow reader hold up another.
package httpapi
