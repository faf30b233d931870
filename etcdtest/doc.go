// Package etcdtest runs a real etcd for tests: one member or three, in the
// test's process, with links to them that can be stalled and cut.
//
//	etcd := etcdtest.Start(t)
//	client := etcd.Client(t)
//
// Its ticks are short, so that the TTL of a lease of 1 s really is 1 s (its
// keys go at most about 0.5 s later). It does not fsync: data survives Stop
// and Start, not a crash of the machine.
//
// It must never be imported by anything but tests.
package etcdtest
