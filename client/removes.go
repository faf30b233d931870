package client

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// A Removal says how objects are removed.
type Removal struct {
	// Force removes an object although a reader holds a lease on it, and overrides
	// nothing else. Nobody gets the memory before that lease has ended.
	Force bool
}

// Remove removes an object.
//
// Errors: ObjectNotFound; ObjectHasLease unless forced; ReplicaNotReady while a
// replica is being written; ObjectHasTask.
func (c *Client) Remove(ctx context.Context, key string, how Removal) error {
	_, _, err := ask[pb.RemoveResponse](ctx, c, opRemove, &pb.RemoveRequest{
		Tenant: c.config.Tenant, RequestId: newRequestID(), Key: key, Force: how.Force,
	}, nil)
	return err
}

// BatchRemove is Remove for 1 to 10,000 keys. It returns the outcome of each, nil for
// success; the error is for the call as a whole, as in BatchPutStart.
func (c *Client) BatchRemove(ctx context.Context, keys []string, how Removal) ([]error, error) {
	request := func(id uint64, r run) proto.Message {
		return &pb.BatchRemoveRequest{Tenant: c.config.Tenant, RequestId: id, Keys: keys[r.from:r.to], Force: how.Force}
	}
	return changeAll(ctx, c, opBatchRemove, len(keys), request, acknowledged[*pb.BatchRemoveResponse])
}

// A RemovalResult counts the objects that a removal of many chose.
type RemovalResult struct {
	Removed    uint64
	Leased     uint64 // kept, as a reader has a lease; none if forced, 0 over Mooncake's protocol
	InProgress uint64 // kept, as a replica is being written, copied or moved; 0 over Mooncake's protocol
}

// RemoveByRegex removes all objects in whose keys a regular expression (Go's syntax) is
// found, and returns how many. It keeps what Remove would refuse.
//
// Errors: InvalidParams for an expression that Go does not read; Unresolved if an answer
// was lost: then all objects, some or none may be removed, and the error says what is
// known. It is not repeated, because a repeat would remove what was put meanwhile.
func (c *Client) RemoveByRegex(ctx context.Context, regex string, how Removal) (RemovalResult, error) {
	resp, _, err := ask[pb.RemoveByRegexResponse](ctx, c, opRemoveByRegex, &pb.RemoveByRegexRequest{
		Tenant: c.config.Tenant, RequestId: newRequestID(), Regex: regex, Force: how.Force,
	}, nil)
	return resultOf(resp), err
}

func resultOf(r interface {
	GetRemoved() uint64
	GetKeptLeased() uint64
	GetKeptInProgress() uint64
}) RemovalResult {
	return RemovalResult{r.GetRemoved(), r.GetKeptLeased(), r.GetKeptInProgress()}
}

// RemoveAll removes all objects of the client's tenant, like RemoveByRegex.
func (c *Client) RemoveAll(ctx context.Context, how Removal) (RemovalResult, error) {
	return c.removeAll(ctx, &pb.RemoveAllRequest{Tenant: c.config.Tenant, Force: how.Force})
}

// RemoveAllTenants is RemoveAll for the objects of all tenants.
func (c *Client) RemoveAllTenants(ctx context.Context, how Removal) (RemovalResult, error) {
	return c.removeAll(ctx, &pb.RemoveAllRequest{AllTenants: true, Force: how.Force})
}

func (c *Client) removeAll(ctx context.Context, req *pb.RemoveAllRequest) (RemovalResult, error) {
	req.RequestId = newRequestID()
	resp, _, err := ask[pb.RemoveAllResponse](ctx, c, opRemoveAll, req, nil)
	return resultOf(resp), err
}

// BatchReplicaClear drops the replicas of this client's objects on the segments
// of a name, or all their replicas if it is empty. For each of 1 to 10,000 keys
// it returns whether it was cleared: keys that are missing, another client's,
// leased or being written are not, and that is no error.
//
// Errors: Unresolved if an answer was lost. It is not repeated.
func (c *Client) BatchReplicaClear(ctx context.Context, keys []string, segmentName string) ([]bool, error) {
	resp, _, err := ask(ctx, c, opBatchReplicaClear, &pb.BatchReplicaClearRequest{
		Tenant: c.config.Tenant, RequestId: newRequestID(), ClientId: c.config.ClientID.String(), Keys: keys, SegmentName: segmentName,
	}, func(r *pb.BatchReplicaClearResponse) bool {
		return !slices.ContainsFunc(r.GetCleared(), func(i uint32) bool { return int(i) >= len(keys) })
	})
	if err != nil {
		return nil, err
	}
	cleared := make([]bool, len(keys))
	for _, i := range resp.GetCleared() {
		cleared[i] = true
	}
	return cleared, nil
}
