package drill

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// The drill of copies on SSDs.

const (
	offloadSize = 64 << 10 // bytes of an object
	offloadRoom = 64       // objects that fit the memory of one owner
)

// An owner lends memory and an SSD.
type owner struct {
	*bulk
	segment client.Segment
}

func (e *Env) newOwner(ctx context.Context, name string) *owner {
	o := &owner{bulk: e.newBulk(), segment: client.Segment{
		Name: name, Base: 1 << 40, Size: offloadRoom * offloadSize, Endpoint: name + ":1", Protocol: "tcp",
	}}
	o.mountAnew(ctx)
	do(o.MountLocalDiskSegment(ctx, true))
	return o
}

// mountAnew lends the same memory under another id: what was there is gone.
func (o *owner) mountAnew(ctx context.Context) {
	o.segment.ID = uuid.New()
	do(o.MountSegment(ctx, o.segment))
}

func (o *owner) tasks(ctx context.Context, b *bulk, keys []string) (tasks []client.OffloadTask) {
	do(b.putAll(ctx, keys, offloadSize, client.PutConfig{}))
	until(ctx, time.Minute, "the owner has the tasks to copy what was put", func(ctx context.Context) (bool, error) {
		more, err := o.OffloadObjectHeartbeat(ctx, true)
		tasks = append(tasks, more...)
		return len(tasks) >= len(keys), err
	})
	return tasks
}

func (o *owner) report(ctx context.Context, tasks []client.OffloadTask) {
	var done []client.OffloadedObject
	for _, t := range tasks {
		done = append(done, client.OffloadedObject{Task: t, DataSize: t.Size, Endpoint: o.segment.Endpoint})
	}
	do(o.NotifyOffloadSuccess(ctx, done))
}

// copies counts the keys for which readers get a copy on an SSD.
func (b *bulk) copies(ctx context.Context, keys []string) (n int) {
	for _, f := range must(b.BatchGetReplicaList(ctx, keys)) {
		for _, at := range f.Object.Replicas {
			if at.Kind == client.LocalDisk {
				n++
			}
		}
	}
	return n
}

// lateCopies reports copies of objects that are gone by then, and whose memory others have got:
// after removals, after unmounts, and after a takeover.
func lateCopies(ctx context.Context, e *Env) {
	ep := episode{}
	ep.Args = []string{"--enable_offload", "--client_ttl=1h"}
	e.episode(ctx, ep, func(ctx context.Context) {
		p := e.ready(ctx)
		b := e.newBulk()
		defer b.Close()
		o := e.newOwner(ctx, "owner")
		defer o.Close()
		e.result.violate("A", 0)
		none := func(keys []string, why string) {
			if n := b.copies(ctx, keys); n > 0 {
				e.result.violate("A", n, fmt.Sprintf("%d of %d copies are listed that were reported after %s", n, len(keys), why))
			}
		}
		const some = offloadRoom / 8

		keys := bulkKeys(0, 0, some)
		tasks := o.tasks(ctx, b, keys)
		kept := e.sourcesThere(ctx, b, keys, "others were evicted")
		o.report(ctx, tasks)
		n := b.copies(ctx, keys)
		e.result.check("copies are taken", n == kept, "%d of %d copies are listed", n, kept)
		do(b.removeAll(ctx))

		keys = bulkKeys(1, 0, some)
		tasks = o.tasks(ctx, b, keys)
		do(b.removeAll(ctx))
		do(b.putAll(ctx, keys, offloadSize, client.PutConfig{}))
		o.report(ctx, tasks)
		none(keys, "others were put under their keys")
		do(b.removeAll(ctx))

		other := e.newOwner(ctx, "other")
		defer other.Close()
		keys = bulkKeys(2, 0, some)
		do(b.putAll(ctx, keys, offloadSize, client.PutConfig{Replicas: 2}))
		tasks = o.tasks(ctx, b, keys)
		o.mountAnew(ctx)
		o.report(ctx, tasks)
		none(keys, "the memory that they were copied from was lent anew")
		do(b.removeAll(ctx))

		keys = bulkKeys(3, 0, some)
		do(other.UnmountSegment(ctx, other.segment.ID))
		tasks = o.tasks(ctx, b, keys)
		do(b.removeAll(ctx))
		do(b.putAll(ctx, keys, offloadSize, client.PutConfig{}))
		e.kill(ctx, p.primary, p.term)
		o.report(ctx, tasks)
		none(keys, "a takeover")
		e.did("copies of %d objects were reported in time, and %d late", some, 3*some)
		e.restart(ctx, p.primary)
		e.result.Rounds++
		e.compare(ctx)
	})
}

// fillUp puts objects until the memory has been filled twice, so that everything that may be
// evicted is.
func (e *Env) fillUp(ctx context.Context, b *bulk) {
	put := 0
	until(ctx, time.Minute, "the memory was filled twice", func(ctx context.Context) (bool, error) {
		failed, err := b.tryPut(ctx, []string{fmt.Sprintf("fill/%d", put)}, offloadSize, client.PutConfig{})
		switch {
		case err != nil:
			return false, err
		case failed[0] == nil:
			put++
		case errs.KindOf(failed[0]) != errs.NoAvailableHandle:
			return false, failed[0]
		}
		return put >= 2*offloadRoom, nil
	})
}

func (b *bulk) removeAll(ctx context.Context) error {
	_, err := b.RemoveAll(ctx, client.Removal{Force: true})
	return err
}
