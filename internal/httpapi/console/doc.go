// Package console is the web console of a node: pages for people, on the HTTP
// port. It shows what the node, its state and etcd say, and what its recorder
// noted over the last 24 hours.
//
// Its pages only read. Its buttons call AdminService, which checks the caller's role. The
// package itself must never change the state, grant a lease, take part in a call of a
// client, send a browser to another host for a file, or hold more than its bounds: one
// place for each request under way, and one recording.
package console
