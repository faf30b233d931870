// Package httpapi is what a node serves over HTTP on its metrics port: metrics,
// health, and the queries that the C++ master answers there, with its paths
// and bodies (behaviours section 5).
//
// It translates, and it only reads: no path changes what the store holds, but
// that a query for a key grants a lease, as upstream. It must never log a key,
// hold a whole list of keys, or let one slow reader hold up another.
package httpapi
