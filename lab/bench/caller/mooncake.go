package caller

import (
	"context"
	"slices"

	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/metadata"
)

// mooncakeCaller calls as the newest of Mooncake's clients do. It reuses its arguments
// and results.
type mooncakeCaller struct {
	ctx context.Context // without an end, see dial
	*mooncakeclient.Conn
	args mooncake.Args

	exists     mooncake.Result[bool]
	allExist   []mooncake.Result[bool]
	list       mooncake.Result[metadata.ReplicaList]
	lists      []mooncake.Result[metadata.ReplicaList]
	placement  mooncake.Result[mooncake.ObjectReplicas]
	placements []mooncake.Result[mooncake.ObjectReplicas]
	done       mooncake.Done
	allDone    []mooncake.Done
}

func newMooncake(ctx context.Context, address string) (Caller, error) {
	g, _ := mooncake.NewGeneration(mooncake.Names()[0]) // the newest, which a master speaks by default
	conn, err := mooncakeclient.Dial(ctx, address, g)
	if err != nil {
		return nil, err
	}
	c := &mooncakeCaller{ctx: context.WithoutCancel(ctx), Conn: conn}
	c.args = mooncake.Args{Client: Owner, Size: ObjectBytes, Config: mooncake.ReplicateConfig{Replicas: 1}, Kind: mooncake.ReplicaMemory}
	return c, nil
}

func (c *mooncakeCaller) Prefer(segments []string) { c.args.Config.Preferred = segments }

func do[T any](c *mooncakeCaller, call mooncake.Call[mooncake.Result[T]], key string, r *mooncake.Result[T]) error {
	c.args.Key, c.args.Item.Key = key, key
	if _, err := mooncakeclient.Do(c.ctx, c.Conn, call, &c.args, r); err != nil {
		return err
	}
	return numbered(r.Failure)
}

func doAll[T any](c *mooncakeCaller, call mooncake.Call[[]mooncake.Result[T]], keys []string, r *[]mooncake.Result[T]) error {
	c.args.Keys = keys
	if _, err := mooncakeclient.Do(c.ctx, c.Conn, call, &c.args, r); err != nil {
		return err
	}
	for i := range *r {
		if err := numbered((*r)[i].Failure); err != nil {
			return err
		}
	}
	return answered(len(*r), len(keys))
}

func (c *mooncakeCaller) Exist(keys []string) error {
	if len(keys) == 1 {
		if err := do(c, c.Generation.ExistKey, keys[0], &c.exists); err != nil {
			return err
		}
		return present(c.exists.Value)
	}
	if err := doAll(c, c.Generation.BatchExistKey, keys, &c.allExist); err != nil {
		return err
	}
	return present(!slices.ContainsFunc(c.allExist, func(r mooncake.Result[bool]) bool { return !r.Value }))
}

func (c *mooncakeCaller) Get(keys []string) error {
	if len(keys) == 1 {
		if err := do(c, c.Generation.GetReplicaList, keys[0], &c.list); err != nil {
			return err
		}
		return answered(len(c.list.Value.Replicas), 1)
	}
	return doAll(c, c.Generation.BatchGetReplicaList, keys, &c.lists)
}

func (c *mooncakeCaller) PutStart(keys []string) error {
	if len(keys) == 1 {
		return do(c, c.Generation.PutStart, keys[0], &c.placement)
	}
	for len(c.args.Sizes) < len(keys) {
		c.args.Sizes = append(c.args.Sizes, ObjectBytes)
	}
	c.args.Sizes = c.args.Sizes[:len(keys)]
	return doAll(c, c.Generation.BatchPutStart, keys, &c.placements)
}

func (c *mooncakeCaller) PutEnd(keys []string) error {
	if len(keys) == 1 {
		return do(c, c.Generation.PutEnd, keys[0], &c.done)
	}
	c.args.Items = c.args.Items[:0]
	for _, key := range keys {
		c.args.Items = append(c.args.Items, mooncake.PutItem{Key: key})
	}
	return doAll(c, c.Generation.BatchPutEnd, keys, &c.allDone)
}

func (c *mooncakeCaller) Remove(keys []string) error {
	if len(keys) == 1 {
		return do(c, c.Generation.Remove, keys[0], &c.done)
	}
	return doAll(c, c.Generation.BatchRemove, keys, &c.allDone)
}
