package caller

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// grpcCaller calls through the generated client, on one HTTP/2 connection. It reuses
// its requests. They have no request ids, since it repeats nothing.
type grpcCaller struct {
	ctx     context.Context // without an end, see dial
	conn    *grpc.ClientConn
	objects pb.ObjectServiceClient

	exists      pb.ExistKeyRequest
	batchExists pb.BatchExistKeyRequest
	lists       pb.GetReplicaListRequest
	batchLists  pb.BatchGetReplicaListRequest
	start       pb.PutStartRequest
	batchStart  pb.BatchPutStartRequest
	end         pb.PutEndRequest
	batchEnd    pb.BatchPutEndRequest
	removal     pb.RemoveRequest
	removals    pb.BatchRemoveRequest
	starts      []pb.PutStartItem // what batchStart points at
	ends        []pb.PutEndItem   // what batchEnd points at
}

func newGRPC(ctx context.Context, address string) (Caller, error) {
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, err
	}
	client := uuid.UUID(Owner).String()
	c := &grpcCaller{ctx: context.WithoutCancel(ctx), conn: conn, objects: pb.NewObjectServiceClient(conn)}
	c.start.ClientId, c.start.Size = client, ObjectBytes
	c.batchStart.ClientId = client
	c.end.ClientId, c.end.Selector = client, pb.ReplicaSelector_REPLICA_SELECTOR_MEMORY
	c.batchEnd.ClientId, c.batchEnd.Selector = client, pb.ReplicaSelector_REPLICA_SELECTOR_MEMORY
	return c, nil
}

func (c *grpcCaller) Prefer(segments []string) {
	c.start.Config = &pb.PutConfig{PreferredSegments: segments}
	c.batchStart.Config = c.start.Config
}

func (c *grpcCaller) Close() error { return c.conn.Close() }

func settled(r interface{ GetErrors() []*pb.ItemError }, err error) error {
	if failed := r.GetErrors(); err == nil && len(failed) > 0 {
		return fmt.Errorf("%d keys failed, the first with %v: %s", len(failed), failed[0].GetKind(), failed[0].GetMessage())
	}
	return err
}

func (c *grpcCaller) Exist(keys []string) error {
	if len(keys) == 1 {
		c.exists.Key = keys[0]
		r, err := c.objects.ExistKey(c.ctx, &c.exists)
		if err != nil {
			return err
		}
		return present(r.GetExists())
	}
	c.batchExists.Keys = keys
	r, err := c.objects.BatchExistKey(c.ctx, &c.batchExists)
	if err := settled(r, err); err != nil {
		return err
	}
	return present(len(r.GetExists()) == len(keys) && !slices.Contains(r.GetExists(), false))
}

func (c *grpcCaller) Get(keys []string) error {
	if len(keys) == 1 {
		c.lists.Key = keys[0]
		r, err := c.objects.GetReplicaList(c.ctx, &c.lists)
		if err != nil {
			return err
		}
		return answered(len(r.GetObject().GetReplicas()), 1)
	}
	c.batchLists.Keys = keys
	r, err := c.objects.BatchGetReplicaList(c.ctx, &c.batchLists)
	if err := settled(r, err); err != nil {
		return err
	}
	return answered(len(r.GetObjects()), len(keys))
}

func (c *grpcCaller) PutStart(keys []string) error {
	if len(keys) == 1 {
		c.start.Key = keys[0]
		_, err := c.objects.PutStart(c.ctx, &c.start)
		return err
	}
	if len(c.starts) < len(keys) {
		c.starts = make([]pb.PutStartItem, len(keys))
	}
	c.batchStart.Items = c.batchStart.Items[:0]
	for i, key := range keys {
		c.starts[i].Key, c.starts[i].Size = key, ObjectBytes
		c.batchStart.Items = append(c.batchStart.Items, &c.starts[i])
	}
	return settled(c.objects.BatchPutStart(c.ctx, &c.batchStart))
}

func (c *grpcCaller) PutEnd(keys []string) error {
	if len(keys) == 1 {
		c.end.Key = keys[0]
		_, err := c.objects.PutEnd(c.ctx, &c.end)
		return err
	}
	if len(c.ends) < len(keys) {
		c.ends = make([]pb.PutEndItem, len(keys))
	}
	c.batchEnd.Items = c.batchEnd.Items[:0]
	for i, key := range keys {
		c.ends[i].Key = key
		c.batchEnd.Items = append(c.batchEnd.Items, &c.ends[i])
	}
	return settled(c.objects.BatchPutEnd(c.ctx, &c.batchEnd))
}

func (c *grpcCaller) Remove(keys []string) error {
	if len(keys) == 1 {
		c.removal.Key = keys[0]
		_, err := c.objects.Remove(c.ctx, &c.removal)
		return err
	}
	c.removals.Keys = keys
	return settled(c.objects.BatchRemove(c.ctx, &c.removals))
}
