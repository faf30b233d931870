// Package fakeetcd is an etcd of one member in memory, for tests in virtual
// time: a gRPC server of etcd's own services over connections that never leave
// the process, so that the real clientv3 is in the loop and every timer of both
// sides is virtual inside a testing/synctest bubble.
//
//	etcd := fakeetcd.New(fakeetcd.Options{})
//	defer etcd.Close()
//	client, err := etcd.Link("node-a").Client()
//
// Each Link is one client's way to the server. Links can be cut, stalled and
// delayed, calls can be refused or lose their answer, and the whole etcd can go
// down for a while.
//
// It offers what this module uses of etcd and refuses the rest with
// Unimplemented. What it offers it must do as etcd does: one contract suite,
// internal/etcdcontract, runs against both. It must never be imported by
// anything but tests.
package fakeetcd
