// Package simetcd is an etcd of one member for tests in virtual time: the real
// server, with its storage, leases, watches and compaction, inside a
// testing/synctest bubble. The real clientv3 is in the loop as well, with its
// retries and its watches that begin anew. Between the two there is no network:
// interceptors hand each message over, after as much virtual time as the test
// likes.
//
//	etcd := simetcd.New(t, simetcd.Options{})
//	client, err := etcd.Link("node-a").Client()
//
// Each Link is one client's connection. Links can be cut, stalled and delayed;
// requests and answers can be lost; the etcd can go down, and come back with its
// data, without, or with a backup.
//
// With a latency of its own for each message the same test plays again to the
// nanosecond, whatever the scheduler does: the server is done with a message
// before the next one arrives. Three things of etcd would depend on the
// scheduler or on chance, and are taken from it. Lease ids are counted here, as
// etcd's own count its reads too. Leases that run out at one tick are revoked one
// after another, as etcd would do it with a goroutine for each. And the server is
// up as late as it can take to elect itself. One is left: when a watch is idle for
// ten virtual minutes, how much later it gets a progress notification.
//
// It must never be imported by anything but tests.
package simetcd
