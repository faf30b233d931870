// Package client is the Go client of Understudy. It finds the primary, goes on
// with the next one after a failover, and makes sure that each call has one
// outcome, whatever became of its answers.
//
//	c, err := client.New(client.Config{Addresses: []string{"10.0.0.1:50051", "10.0.0.2:50051"}})
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	put, err := c.PutStart(ctx, client.PutItem{Key: "block-1", Size: 4096}, client.PutConfig{Replicas: 2})
//	if err != nil {
//		return err
//	}
//	// ... write the bytes at each of put.Replicas ...
//	if err := c.PutEnd(ctx, put.Ref(), client.SelectAll); err != nil {
//		return err
//	}
//	object, err := c.GetReplicaList(ctx, "block-1")
//	// ... read the bytes, then check that they were still the object's ...
//	if err == nil && !object.Lease.Valid() { ... }
//
// # Waiting and repeating
//
// A call waits until its context ends, and at most Config.Timeout if that has
// no deadline. Meanwhile it is repeated, with exponential pauses and jitter,
// where that is safe. What is safe follows from the contract (common.proto):
//
//	reads, Ping, queries          at any time
//	PutStart, PutEnd, PutRevoke,  with the request id of the first attempt: then a
//	Remove, their batches,        repeat gets the answer of the first and changes
//	mounts and unmounts           nothing twice. What nodes know by its request id
//	                              alone (PutStart, PutRevoke, Remove, their batches)
//	                              only for 40 s from the first attempt that may have
//	                              been applied: nodes forget such ids after a minute
//	PutEnd, PutRevoke without     never once an attempt may have been applied
//	an object id; RemoveByRegex,
//	RemoveAll, BatchReplicaClear
//
// What came of an attempt decides what happens next:
//
//	NOT_LEADER                    nothing was changed: find the primary, repeat there
//	UNAVAILABLE_IN_CURRENT_STATUS nothing was changed: repeat after a pause
//	RPC_TIMEOUT, a lost answer,   it may have been applied: repeat where that is
//	a lower term than seen before safe, else return errs.Unresolved
//	a node of another cluster,    the end: errs.InvalidParams and the like, or
//	or another program            errs.Unresolved if an attempt before may have
//	                              been applied
//	anything else                 the answer, which the caller gets: among them
//	                              NO_AVAILABLE_HANDLE, OBJECT_HAS_LEASE and
//	                              REPLICA_IS_NOT_READY, where a later call may do
//	                              better; see errs.Kind.Retryable
//
// When the deadline ends all this, the error is errs.Unavailable if nothing was
// changed, errs.Unresolved if something may have been. In a batch each item is
// treated so on its own, and only items without an outcome are repeated.
//
// KeyEvents follows which keys are stored, removed and evicted, over failovers.
//
// Errors are those of package errs: test them with errors.Is(err,
// errs.ObjectNotFound); errs.KindOf(err).Number() is the C++ master's number.
//
// The package must never import the server's packages, and never hand on an
// answer of a primary that it knows to be replaced. A term that nobody serves
// for 10 s counts as come to nothing: then those of a lower one hold, as of a
// cluster that has begun anew.
package client
