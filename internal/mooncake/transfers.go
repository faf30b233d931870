package mooncake

import (
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Copies and moves of objects between segments, and tasks to make them.

// A Located is one replica of an object.
type Located struct {
	ID metadata.ObjectID
	metadata.Descriptor
}

// A CopyPlan is the answer to CopyStart.
type CopyPlan struct {
	Source  Located
	Targets []Located
}

// A MovePlan is the answer to MoveStart. There is no target if the object is there
// already.
type MovePlan struct {
	Source Located
	Target *Located
}

// A TaskID names a task.
type TaskID = metadata.TaskID

// A Task is work that the master gives to a client: to copy or to move an object, as
// its payload says in JSON.
type Task struct {
	ID         TaskID
	Kind       int32 // TaskCopy, TaskMove
	Payload    string
	CreatedAt  int64 // in milliseconds of wall time since 1970
	MaxRetries uint32
}

// The kinds of tasks. Their states have metadata's numbers.
const (
	TaskCopy int32 = 0
	TaskMove int32 = 1
)

// A TaskState is the answer to QueryTask.
type TaskState struct {
	ID        TaskID
	Kind      int32
	Status    int32
	CreatedAt int64 // as in a Task
	UpdatedAt int64
	Client    segment.ClientID
	Message   string
}

// A TaskEnd says how a task ended.
type TaskEnd struct {
	ID      TaskID
	Status  int32
	Message string
}

var (
	taskID  = uuid[TaskID]()
	argFrom = at("src_segment", func(a *Args) *string { return &a.SegmentName }, text)
	argTo   = at("tgt_segment", func(a *Args) *string { return &a.Target }, text)
	argsTo  = at("tgt_segments", func(a *Args) *[]string { return &a.Targets }, texts)

	argDynamicLease = at("dynamic_replication_lease_id", func(a *Args) *segment.ID { return &a.DynamicLease }, segmentID)
	argDynamicEpoch = at("dynamic_replication_version_epoch", func(a *Args) *uint64 { return &a.DynamicEpoch }, u64)

	task = structpack.Struct(
		at("id", func(t *Task) *TaskID { return &t.ID }, taskID),
		at("type", func(t *Task) *int32 { return &t.Kind }, i32),
		at("payload", func(t *Task) *string { return &t.Payload }, text),
		at("created_at_ms_epoch", func(t *Task) *int64 { return &t.CreatedAt }, i64),
		at("max_retry_attempts", func(t *Task) *uint32 { return &t.MaxRetries }, u32),
	)
	taskState = structpack.Struct(
		at("id", func(t *TaskState) *TaskID { return &t.ID }, taskID),
		at("type", func(t *TaskState) *int32 { return &t.Kind }, i32),
		at("status", func(t *TaskState) *int32 { return &t.Status }, i32),
		at("created_at_ms_epoch", func(t *TaskState) *int64 { return &t.CreatedAt }, i64),
		at("last_updated_at_ms_epoch", func(t *TaskState) *int64 { return &t.UpdatedAt }, i64),
		at("assigned_client", func(t *TaskState) *segment.ClientID { return &t.Client }, clientID),
		at("message", func(t *TaskState) *string { return &t.Message }, text),
	)
	taskEnd = structpack.Struct(
		at("id", func(t *TaskEnd) *TaskID { return &t.ID }, taskID),
		at("status", func(t *TaskEnd) *int32 { return &t.Status }, i32),
		at("message", func(t *TaskEnd) *string { return &t.Message }, text),
	)
)

// located packs one replica, as replicaList does many.
func located(variant structpack.Codec[metadata.Descriptor]) structpack.Codec[Located] {
	return structpack.Codec[Located]{
		Type:  structpack.StructOf(structpack.U64, variant.Type, structpack.I32),
		Least: 8 + variant.Least + 4,
		Put: func(w *structpack.Writer, l *Located) {
			w.U64(uint64(l.ID))
			variant.Put(w, &l.Descriptor)
			w.U32(uint32(statusOf(l.Status)))
		},
		Get: func(r *structpack.Reader, l *Located) {
			l.ID = metadata.ObjectID(r.U64())
			variant.Get(r, &l.Descriptor)
			l.Status = metadata.Processing
			if int32(r.U32()) == statusComplete {
				l.Status = metadata.Complete
			}
		},
	}
}

func (b *builder) transfers() {
	g, replica := b.g, located(b.replica)
	// keyed has the tenant behind the key, where the generation has it.
	keyed := func(before []structpack.Member[Args], after ...structpack.Member[Args]) structpack.Codec[Args] {
		before = append(before, argKey)
		if b.fields.Tenants {
			before = append(before, argTenant)
		}
		return args(append(before, after...)...)
	}
	of := func(after ...structpack.Member[Args]) structpack.Codec[Args] {
		return keyed([]structpack.Member[Args]{argClient}, after...)
	}
	copied := structpack.Expected(structpack.Struct(
		at("source", func(p *CopyPlan) *Located { return &p.Source }, replica),
		at("targets", func(p *CopyPlan) *[]Located { return &p.Targets }, structpack.Vector(replica))))
	moved := structpack.Expected(structpack.Struct(
		at("source", func(p *MovePlan) *Located { return &p.Source }, replica),
		at("target", func(p *MovePlan) **Located { return &p.Target }, structpack.Optional(replica))))
	end := at("request", func(a *Args) *TaskEnd { return &a.TaskEnd }, taskEnd)

	g.CopyStart = call(b, "CopyStart", of(argFrom, argsTo), copied)
	g.CopyEnd = call(b, "CopyEnd", of(), done)
	g.CopyRevoke = call(b, "CopyRevoke", of(), done)
	g.DynamicCopyStart = call(b, "DynamicReplicaCopyStart", of(argFrom, argsTo, argDynamicLease, argDynamicEpoch), copied)
	g.DynamicCopyEnd = call(b, "DynamicReplicaCopyEnd", of(argDynamicLease, argDynamicEpoch), done)
	g.DynamicCopyRevoke = call(b, "DynamicReplicaCopyRevoke", of(argDynamicLease, argDynamicEpoch), done)
	g.MoveStart = call(b, "MoveStart", of(argFrom, argTo), moved)
	g.MoveEnd = call(b, "MoveEnd", of(), done)
	g.MoveRevoke = call(b, "MoveRevoke", of(), done)

	g.PromotionStart = call(b, "PromotionAllocStart", of(at("size", func(a *Args) *uint64 { return &a.Size }, u64),
		at("preferred_segments", func(a *Args) *[]string { return &a.Targets }, texts)),
		structpack.Expected(structpack.Struct(structpack.Whole("memory_descriptor", replica))))
	g.PromotionSuccess = call(b, "NotifyPromotionSuccess", of(), done)
	g.PromotionFailure = call(b, "NotifyPromotionFailure", of(), done)

	id := structpack.Expected(taskID)
	g.CreateCopyTask = call(b, "CreateCopyTask", keyed(nil, argsTo), id)
	g.CreateMoveTask = call(b, "CreateMoveTask", keyed(nil, argFrom, argTo), id)
	g.QueryTask = call(b, "QueryTask", args(at("task_id", func(a *Args) *TaskID { return &a.TaskID }, taskID)), structpack.Expected(taskState))
	g.FetchTasks = call(b, "FetchTasks", args(argClient, argMost), structpack.Expected(structpack.Vector(task)))
	g.MarkTaskToComplete = call(b, "MarkTaskToComplete", args(argClient, end), done)
}
