// Package fakeetcd is an etcd of one member in memory, for tests in virtual
// time. The real clientv3 is in the loop, with its retries and its watches that
// begin anew, but without a connection: what it would send is handed to the
// server by interceptors, message by message. Every wait is on a channel or a
// timer, which is virtual inside a testing/synctest bubble.
//
//	etcd := fakeetcd.New(fakeetcd.Options{})
//	defer etcd.Close()
//	client, err := etcd.Link("node-a").Client()
//
// Each Link is one client's way to the server. Links can be cut, stalled and
// delayed, calls can be refused or lose their answer, and the whole etcd can go
// down for a while. With a latency of its own for each message, what happens in
// which order does not depend on the scheduler.
//
// It offers what this module uses of etcd and refuses the rest with
// Unimplemented. What it offers it must do as etcd does: one contract suite,
// lab/etcdcontract, runs against both. It must never be imported by
// anything but tests.
package fakeetcd
