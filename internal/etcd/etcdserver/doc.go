// Package etcdserver runs an etcd inside this program: the one that
// cmd/master keeps under --data-dir when it is given no etcd of its own, alone or as one of
// the nodes' members, and the one that lab demo runs as a child process.
//
// It adds to go.etcd.io/etcd/server/v3/embed what a program needs to rely on
// it: settings sized for the journal, ports that may be 0, a data directory
// that two processes cannot share by accident, errors that say what to do,
// logs that go where the program's logs go, connections that can be bounded, and a
// Close that does not wait for clients.
//
// After a restart every lease that was alive begins again with its full TTL:
// etcd does not store how much of it had passed.
//
// The package holds no global state, so several servers run side by side in one
// process. It knows nothing of the keys that are stored in it, and it never
// compacts, defragments or disarms alarms: that is the journal's work, done
// through the client like on any other etcd.
package etcdserver
