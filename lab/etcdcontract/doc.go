// Package etcdcontract holds, in its tests, what this module relies on in an
// etcd: one suite that runs against a real etcd and against lab/fakeetcd,
// so that what is found in virtual time holds for the real one.
//
// It must never test what only one of the two can do.
package etcdcontract
