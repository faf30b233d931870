package rpcbench

import (
	"context"
	"slices"

	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
)

// mooncakeCaller calls as the newest of Mooncake's clients do. Its arguments
// and results are used again.
type mooncakeCaller struct {
	ctx context.Context // without an end, see dial
	*mooncakeclient.Conn

	key         mooncake.KeyArgs
	keys        mooncake.KeysArgs
	start       mooncake.PutStartArgs
	batchStart  mooncake.BatchPutStartArgs
	end         mooncake.PutEndArgs
	batchEnd    mooncake.BatchPutEndArgs
	removal     mooncake.RemoveArgs
	batchRemove mooncake.BatchRemoveArgs

	exists     mooncake.Result[bool]
	allExist   []mooncake.Result[bool]
	list       mooncake.Result[metadata.ReplicaList]
	lists      []mooncake.Result[metadata.ReplicaList]
	placement  mooncake.Result[mooncake.Placement]
	placements []mooncake.Result[mooncake.Placement]
	done       mooncake.Done
	allDone    []mooncake.Done
}

func newMooncake(ctx context.Context, address string) (*mooncakeCaller, error) {
	g, _ := mooncake.NewGeneration(mooncake.Names()[0]) // the newest, which a master speaks by default
	conn, err := mooncakeclient.Dial(ctx, address, g)
	if err != nil {
		return nil, err
	}
	c := &mooncakeCaller{ctx: context.WithoutCancel(ctx), Conn: conn}
	config := mooncake.ReplicateConfig{Replicas: 1}
	c.start = mooncake.PutStartArgs{Client: owner, Size: objectBytes, Config: config}
	c.batchStart = mooncake.BatchPutStartArgs{Client: owner, Config: config}
	c.end = mooncake.PutEndArgs{Client: owner, Kind: mooncake.ReplicaMemory}
	c.batchEnd = mooncake.BatchPutEndArgs{Client: owner, Kind: mooncake.ReplicaMemory}
	return c, nil
}

// do makes a call whose answer is one result.
func do[A, T any](c *mooncakeCaller, call mooncake.Call[A, mooncake.Result[T]], args *A, r *mooncake.Result[T]) error {
	if _, err := mooncakeclient.Do(c.ctx, c.Conn, call, args, r); err != nil {
		return err
	}
	return numbered(r.Failure)
}

// doAll makes a call whose answer is a result for each key.
func doAll[A, T any](c *mooncakeCaller, call mooncake.Call[A, []mooncake.Result[T]], args *A, r *[]mooncake.Result[T], keys []string) error {
	if _, err := mooncakeclient.Do(c.ctx, c.Conn, call, args, r); err != nil {
		return err
	}
	for i := range *r {
		if err := numbered((*r)[i].Failure); err != nil {
			return err
		}
	}
	return answered(len(*r), len(keys))
}

func (c *mooncakeCaller) exist(keys []string) error {
	if len(keys) == 1 {
		c.key.Key = keys[0]
		if err := do(c, c.Generation.ExistKey, &c.key, &c.exists); err != nil {
			return err
		}
		return present(c.exists.Value)
	}
	c.keys.Keys = keys
	if err := doAll(c, c.Generation.BatchExistKey, &c.keys, &c.allExist, keys); err != nil {
		return err
	}
	return present(!slices.ContainsFunc(c.allExist, func(r mooncake.Result[bool]) bool { return !r.Value }))
}

func (c *mooncakeCaller) get(keys []string) error {
	if len(keys) == 1 {
		c.key.Key = keys[0]
		if err := do(c, c.Generation.GetReplicaList, &c.key, &c.list); err != nil {
			return err
		}
		return answered(len(c.list.Value.Replicas), 1)
	}
	c.keys.Keys = keys
	return doAll(c, c.Generation.BatchGetReplicaList, &c.keys, &c.lists, keys)
}

func (c *mooncakeCaller) putStart(keys []string) error {
	if len(keys) == 1 {
		c.start.Key = keys[0]
		return do(c, c.Generation.PutStart, &c.start, &c.placement)
	}
	c.batchStart.Keys = keys
	for len(c.batchStart.Sizes) < len(keys) {
		c.batchStart.Sizes = append(c.batchStart.Sizes, objectBytes)
	}
	c.batchStart.Sizes = c.batchStart.Sizes[:len(keys)]
	return doAll(c, c.Generation.BatchPutStart, &c.batchStart, &c.placements, keys)
}

func (c *mooncakeCaller) putEnd(keys []string) error {
	if len(keys) == 1 {
		c.end.Item.Key = keys[0]
		return do(c, c.Generation.PutEnd, &c.end, &c.done)
	}
	c.batchEnd.Items = c.batchEnd.Items[:0]
	for _, key := range keys {
		c.batchEnd.Items = append(c.batchEnd.Items, mooncake.PutItem{Key: key})
	}
	return doAll(c, c.Generation.BatchPutEnd, &c.batchEnd, &c.allDone, keys)
}

func (c *mooncakeCaller) remove(keys []string) error {
	if len(keys) == 1 {
		c.removal.Key = keys[0]
		return do(c, c.Generation.Remove, &c.removal, &c.done)
	}
	c.batchRemove.Keys = keys
	return doAll(c, c.Generation.BatchRemove, &c.batchRemove, &c.allDone, keys)
}
