package client

import (
	"context"
	"iter"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// ExistKey reports whether a key has a readable replica, and if so extends the
// object's lease. A missing key is no error.
func (c *Client) ExistKey(ctx context.Context, key string) (bool, error) {
	resp, _, err := ask[pb.ExistKeyResponse](ctx, c, opExistKey, &pb.ExistKeyRequest{Tenant: c.config.Tenant, Key: key}, nil)
	return resp.GetExists(), err
}

// An Existence says whether a key of a batch exists.
type Existence struct {
	Exists bool
	Err    error // why the key could not be looked up
}

// BatchExistKey is ExistKey for 1 to 10,000 keys, in their order.
func (c *Client) BatchExistKey(ctx context.Context, keys []string) ([]Existence, error) {
	req := &pb.BatchExistKeyRequest{Tenant: c.config.Tenant, Keys: keys}
	resp, _, err := ask(ctx, c, opBatchExistKey, req, func(r *pb.BatchExistKeyResponse) bool {
		return len(r.GetExists()) == len(keys) && inOrder(r.GetErrors(), len(keys))
	})
	if err != nil {
		return nil, err
	}
	results := make([]Existence, len(keys))
	for i, exists := range resp.GetExists() {
		results[i].Exists = exists
	}
	for _, item := range resp.GetErrors() {
		results[item.GetIndex()] = Existence{Err: rpcerr.Item(item, opBatchExistKey.name)}
	}
	return results, nil
}

// GetReplicaList returns where an object can be read, and extends its lease.
// While a change of the object is being written, it waits for the outcome.
//
// Errors: ObjectNotFound; ReplicaNotReady if nothing is readable yet.
func (c *Client) GetReplicaList(ctx context.Context, key string) (Object, error) {
	req := &pb.GetReplicaListRequest{Tenant: c.config.Tenant, Key: key}
	resp, sent, err := ask(ctx, c, opGetReplicaList, req, func(r *pb.GetReplicaListResponse) bool {
		return r.GetObject().GetObjectId() != 0
	})
	if err != nil {
		return Object{}, err
	}
	return objectOf(resp.GetObject(), c.lease(sent, resp.GetLeaseTtlMs()), new([]Replica)), nil
}

// A Found is an object of a batch, or why there is none.
type Found struct {
	Object
	Err error
}

// BatchGetReplicaList is GetReplicaList for 1 to 10,000 keys, in their order.
func (c *Client) BatchGetReplicaList(ctx context.Context, keys []string) ([]Found, error) {
	req := &pb.BatchGetReplicaListRequest{Tenant: c.config.Tenant, Keys: keys}
	resp, sent, err := ask(ctx, c, opBatchGetReplicaList, req, func(r *pb.BatchGetReplicaListResponse) bool {
		return allThere(r.GetObjects(), r.GetErrors(), len(keys))
	})
	if err != nil {
		return nil, err
	}
	results := make([]Found, len(keys))
	lease, room := c.lease(sent, resp.GetLeaseTtlMs()), roomFor(resp.GetObjects())
	for i, list := range resp.GetObjects() {
		if list.GetObjectId() != 0 {
			results[i].Object = objectOf(list, lease, room)
		}
	}
	for _, item := range resp.GetErrors() {
		results[item.GetIndex()].Err = rpcerr.Item(item, opBatchGetReplicaList.name)
	}
	return results, nil
}

// A KeyedObject is an object that was not asked for by its key.
type KeyedObject struct {
	Key string
	Object
}

// GetReplicaListByRegex returns all readable objects in whose keys a regular
// expression (Go's syntax) is found, and extends the lease of each. They come
// in no order, in pages of pageSize, 0 for 1,000 and at most 10,000; a page's
// leases run while the caller looks at it. An error is the last that it yields.
//
// Errors: InvalidParams for an expression that Go does not read.
func (c *Client) GetReplicaListByRegex(ctx context.Context, regex string, pageSize int) iter.Seq2[KeyedObject, error] {
	return func(yield func(KeyedObject, error) bool) {
		if pageSize < 0 || pageSize > pb.MaxPageSize {
			yield(KeyedObject{}, errs.New(errs.InvalidParams, opGetReplicaListByRegex.name, "the page size is %d; give 0 to %d", pageSize, pb.MaxPageSize))
			return
		}
		req := &pb.GetReplicaListByRegexRequest{Tenant: c.config.Tenant, Regex: regex, PageSize: uint32(pageSize)}
		for {
			resp, sent, err := ask[pb.GetReplicaListByRegexResponse](ctx, c, opGetReplicaListByRegex, req, nil)
			if err != nil {
				yield(KeyedObject{}, err)
				return
			}
			lease := c.lease(sent, resp.GetLeaseTtlMs())
			for _, found := range resp.GetObjects() {
				if !yield(KeyedObject{found.GetKey(), objectOf(found.GetObject(), lease, new([]Replica))}, nil) {
					return
				}
			}
			if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}
