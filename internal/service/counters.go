package service

import (
	"errors"
	"sync/atomic"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/journal/nowait"
	"github.com/understudy-store/understudy/metadata"
)

// An Op names a call; its text is the C++ master's metric name of the call.
type Op string

// The calls that are counted.
const (
	OpExistKey              Op = "exist_key"
	OpBatchExistKey         Op = "batch_exist_key"
	OpGetReplicaList        Op = "get_replica_list"
	OpBatchGetReplicaList   Op = "batch_get_replica_list"
	OpGetReplicaListByRegex Op = "get_replica_list_by_regex"
	OpPutStart              Op = "put_start"
	OpPutEnd                Op = "put_end"
	OpPutRevoke             Op = "put_revoke"
	OpBatchPutStart         Op = "batch_put_start"
	OpBatchPutEnd           Op = "batch_put_end"
	OpBatchPutRevoke        Op = "batch_put_revoke"
	OpRemove                Op = "remove"
	OpBatchRemove           Op = "batch_remove"
	OpRemoveByRegex         Op = "remove_by_regex"
	OpRemoveAll             Op = "remove_all"
	OpBatchReplicaClear     Op = "batch_replica_clear"
	OpBatchQueryIP          Op = "batch_query_ip"
	OpEvictDiskReplica      Op = "evict_disk_replica"
	OpBatchEvictDiskReplica Op = "batch_evict_disk_replica"
	OpCopyStart             Op = "copy_start"
	OpCopyEnd               Op = "copy_end"
	OpCopyRevoke            Op = "copy_revoke"
	OpMoveStart             Op = "move_start"
	OpMoveEnd               Op = "move_end"
	OpMoveRevoke            Op = "move_revoke"
	OpCreateCopyTask        Op = "create_copy_task"
	OpCreateMoveTask        Op = "create_move_task"
	OpQueryTask             Op = "query_task"
	OpFetchTasks            Op = "fetch_tasks"
	OpUpdateTask            Op = "update_task"
	OpMountSegment          Op = "mount_segment"
	OpReMountSegment        Op = "remount_segment"
	OpUnmountSegment        Op = "unmount_segment"
	OpPing                  Op = "ping"
)

// Ops lists all calls that are counted.
func Ops() []Op {
	return []Op{
		OpExistKey, OpBatchExistKey, OpGetReplicaList, OpBatchGetReplicaList, OpGetReplicaListByRegex,
		OpPutStart, OpPutEnd, OpPutRevoke, OpBatchPutStart, OpBatchPutEnd, OpBatchPutRevoke,
		OpRemove, OpBatchRemove, OpRemoveByRegex, OpRemoveAll, OpBatchReplicaClear, OpBatchQueryIP,
		OpEvictDiskReplica, OpBatchEvictDiskReplica,
		OpCopyStart, OpCopyEnd, OpCopyRevoke, OpMoveStart, OpMoveEnd, OpMoveRevoke,
		OpCreateCopyTask, OpCreateMoveTask, OpQueryTask, OpFetchTasks, OpUpdateTask,
		OpMountSegment, OpReMountSegment, OpUnmountSegment, OpPing,
	}
}

// OpCounters count one call.
type OpCounters struct {
	Requests    atomic.Int64
	Failures    atomic.Int64
	Items       atomic.Int64 // of batches
	FailedItems atomic.Int64
	Partial     atomic.Int64 // batches of which some items failed
}

// Counters count what calls did, on this node, since the process started.
type Counters struct {
	ops map[Op]*OpCounters // fixed after NewCounters

	Gets               atomic.Int64 // keys asked for
	ValidGets          atomic.Int64 // of them, found
	ExistMisses        atomic.Int64 // keys that ExistKey did not find
	MemoryHits         atomic.Int64 // of ValidGets, with a memory replica
	MemoryHitBytes     atomic.Int64 // of the objects of MemoryHits
	DiskHits           atomic.Int64 // of ValidGets, on disk only
	DiskHitBytes       atomic.Int64 // of the objects of DiskHits
	AllocationFailures atomic.Int64 // puts that found no room
	PartialAllocations atomic.Int64 // puts with fewer replicas than wanted

	Promotions PromotionCounters

	// Deletes are the delete events that were committed, by type.
	Deletes [deleteevents.EvictTenant + 1]atomic.Int64
	Tenants TenantCounters
	// Reserved is called with the size in bytes of each object that memory was
	// taken for. It is set before the first call; nil for none.
	Reserved func(size uint64)
}

// PromotionCounters count promotions of objects from SSDs to memory.
type PromotionCounters struct {
	InFlight          atomic.Int64 // that wait or are under way, of this term
	Admitted          atomic.Int64
	RejectedFrequency atomic.Int64 // reads of an object that was not read often enough
	RejectedWatermark atomic.Int64 // reads while memory was too full
	RejectedCap       atomic.Int64 // reads while too many were in flight
	Completed         atomic.Int64
	CompletedBytes    atomic.Int64
	Failed            atomic.Int64 // that clients gave up
	Cancelled         atomic.Int64 // whose object, SSD or memory has gone
	Expired           atomic.Int64 // that their client never ended
}

// NewCounters returns counters at zero.
func NewCounters() *Counters {
	c := &Counters{ops: make(map[Op]*OpCounters)}
	for _, op := range Ops() {
		c.ops[op] = new(OpCounters)
	}
	return c
}

// Of returns the counters of one call.
func (c *Counters) Of(op Op) *OpCounters { return c.ops[op] }

func (c *Counters) calls() (n int64) {
	for _, o := range c.ops {
		n += o.Requests.Load()
	}
	return n
}

// done counts a call and returns its error.
func (c *Counters) done(op Op, err error) error {
	if errors.Is(err, nowait.Err) {
		return err // it is made again
	}
	o := c.ops[op]
	o.Requests.Add(1)
	if err != nil {
		o.Failures.Add(1)
	}
	return err
}

// doneBatch counts a batch and returns its error.
func (c *Counters) doneBatch(op Op, items []error, err error) error {
	if errors.Is(err, nowait.Err) {
		return err
	}
	bad := 0
	for _, e := range items {
		if errors.Is(e, nowait.Err) {
			return e
		}
		if e != nil {
			bad++
		}
	}
	return c.doneSome(op, len(items), bad, err)
}

// doneSome is doneBatch for a batch whose answer leaves out what it could not
// do: those items count as failed (C++ master).
func (c *Counters) doneSome(op Op, items, bad int, err error) error {
	o := c.ops[op]
	o.Items.Add(int64(items))
	o.FailedItems.Add(int64(bad))
	if bad > 0 && bad < items {
		o.Partial.Add(1)
	}
	if err == nil && bad == items && bad > 0 {
		o.Failures.Add(1) // though the call as such did not fail
	}
	return c.done(op, err)
}

// got counts a lookup by what it found.
func (c *Counters) got(replicas []metadata.Descriptor) {
	c.Gets.Add(1)
	if len(replicas) == 0 {
		return
	}
	c.ValidGets.Add(1)
	for _, r := range replicas {
		if r.Kind == metadata.Memory {
			c.MemoryHits.Add(1)
			c.MemoryHitBytes.Add(int64(r.Size))
			return
		}
	}
	c.DiskHits.Add(1)
	c.DiskHitBytes.Add(int64(replicas[0].Size))
}

// existed counts a key that does not exist: a caller that learns this does not ask for the
// key's replicas, so got will not count it.
func (c *Counters) existed(exists bool) bool {
	if !exists {
		c.ExistMisses.Add(1)
	}
	return exists
}

func (c *Counters) reserved(size uint64) {
	if c.Reserved != nil {
		c.Reserved(size)
	}
}

// committed counts a change that was made, if it deletes.
func (c *Counters) committed(change metadata.Change) {
	if e, ok := change.(*deleteevents.Event); ok {
		c.Deletes[e.Type].Add(1)
	}
}
