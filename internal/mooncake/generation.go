package mooncake

import (
	"crypto/md5" //nolint:gosec // the protocol's own numbering of functions; it protects nothing
	"encoding/binary"
	"slices"

	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/metadata"
)

// A Function is one that a master's RPC has, as a dump of the original names it.
type Function struct {
	Name   string          // without the class: "ExistKey"
	ID     uint32          // on the wire
	Args   structpack.Type // empty if there are none
	Result structpack.Type
}

// class is what all functions are methods of. It is part of their names, and so
// of their numbers.
const class = "mooncake::WrappedMasterService::"

// FunctionID returns the number of a function.
func FunctionID(name string) uint32 {
	sum := md5.Sum([]byte(class + name)) //nolint:gosec // see above
	return binary.BigEndian.Uint32(sum[:])
}

// A Call is a function with the types of its arguments and result.
type Call[R any] struct {
	Function
	Args   *structpack.Message[Args] // nil if there are none: the body is empty
	Result *structpack.Message[R]
}

// Fields are those that requests have in some generations only. A field that a
// generation lacks is left out when a request is packed, whatever the arguments
// have there.
type Fields struct {
	Tenants    bool // whose keys most calls are about
	HostIDs    bool // the host_id of a segment
	SoftPinTTL bool // the soft_pin_ttl_ms of a put
	Groups     bool // the group_ids of a put
	Checksums  bool // the object_checksum of a PutEnd
}

// A Generation is a set of releases whose clients and masters understand each
// other. Functions that it lacks are zero.
type Generation struct {
	Name   string
	Fields Fields

	ExistKey               Call[Result[bool]]
	BatchExistKey          Call[[]Result[bool]]
	GetReplicaList         Call[Result[listOf]]
	BatchGetReplicaList    Call[[]Result[listOf]]
	GetReplicaListByRegex  Call[Result[[]KeyedReplicas]]
	PutStart               Call[Result[ObjectReplicas]]
	BatchPutStart          Call[[]Result[ObjectReplicas]]
	PutEnd                 Call[Done]
	BatchPutEnd            Call[[]Done]
	PutRevoke              Call[Done]
	BatchPutRevoke         Call[[]Done]
	UpsertStart            Call[Result[ObjectReplicas]]
	BatchUpsertStart       Call[[]Result[ObjectReplicas]]
	UpsertEnd              Call[Done]
	BatchUpsertEnd         Call[[]Done]
	UpsertRevoke           Call[Done]
	BatchUpsertRevoke      Call[[]Done]
	Remove                 Call[Done]
	RemoveByRegex          Call[Result[int64]]
	RemoveAll              Call[int64]
	BatchRemove            Call[[]Done]
	BatchReplicaClear      Call[Result[[]string]]
	BatchQueryIP           Call[Result[[]ClientAddresses]]
	MountSegment           Call[Done]
	ReMountSegment         Call[Done]
	UnmountSegment         Call[Done]
	Ping                   Call[Result[PingResult]]
	ServiceReady           Call[Result[string]]
	GetFsdir               Call[Result[string]]
	GetStorageConfig       Call[Result[StorageConfig]]
	MountLocalDisk         Call[Done]
	UnmountLocalDisk       Call[Done]
	OffloadObjectHeartbeat Call[Result[[]OffloadTask]]
	NotifyOffloadSuccess   Call[Done]
	ReportSsdCapacity      Call[Done]
	PromotionHeartbeat     Call[Result[[]OffloadTask]]
	PromotionStart         Call[Result[Located]]
	PromotionSuccess       Call[Done]
	PromotionFailure       Call[Done]
	FetchTasks             Call[Result[[]Task]]
	PollRemoveAll          Call[Result[bool]]
	EvictDiskReplica       Call[Done]
	BatchEvictDiskReplica  Call[[]Done]
	GracefulUnmount        Call[Done]
	SegmentStatus          Call[Result[int32]]
	SegmentStatusByID      Call[Result[int32]]

	CopyStart          Call[Result[CopyPlan]]
	CopyEnd            Call[Done]
	CopyRevoke         Call[Done]
	DynamicCopyStart   Call[Result[CopyPlan]]
	DynamicCopyEnd     Call[Done]
	DynamicCopyRevoke  Call[Done]
	MoveStart          Call[Result[MovePlan]]
	MoveEnd            Call[Done]
	MoveRevoke         Call[Done]
	CreateCopyTask     Call[Result[TaskID]]
	CreateMoveTask     Call[Result[TaskID]]
	QueryTask          Call[Result[TaskState]]
	MarkTaskToComplete Call[Done]

	Others []Other

	functions []Function
}

// Functions returns all functions of the generation.
func (g *Generation) Functions() []Function { return slices.Clone(g.functions) }

// Names returns the generations' names, the newest first.
func Names() []string {
	var names []string
	for _, s := range generations() {
		names = append(names, s.name)
	}
	return names
}

// NewGeneration returns the generation of a name. It reports false for one that
// is not known.
func NewGeneration(name string) (*Generation, bool) {
	for _, s := range generations() {
		if s.name == name {
			return s.generation(), true
		}
	}
	return nil, false
}

// generation puts the calls together from the table.
func (s shapes) generation() *Generation {
	g := &Generation{Name: s.name, Fields: s.fields}
	b := &builder{shapes: s, g: g}
	b.reads()
	b.puts()
	b.removals()
	b.clients()
	b.transfers()
	b.others()
	return g
}

// A builder collects the functions of a generation.
type builder struct {
	shapes
	g *Generation
}

func (b *builder) lacksFunction(name string) bool { return slices.Contains(b.lacks, name) }

func call[R any](b *builder, name string, args structpack.Codec[Args], result structpack.Codec[R]) Call[R] {
	if b.lacksFunction(name) {
		return Call[R]{}
	}
	c := Call[R]{Function: Function{name, FunctionID(name), args.Type, result.Type}, Result: structpack.NewMessage(result)}
	if args.Type != "" {
		c.Args = structpack.NewMessage(args)
	}
	b.g.functions = append(b.g.functions, c.Function)
	return c
}

// args packs several arguments as a tuple, a single one as itself, and none as nothing.
func args(members ...structpack.Member[Args]) structpack.Codec[Args] {
	c := structpack.Struct(members...)
	switch len(members) {
	case 0:
		c.Type = ""
	case 1:
		c.Type = members[0].Type
	}
	return c
}

// withTenant is args with the tenant as the last argument, where the generation has it.
func (b *builder) withTenant(members ...structpack.Member[Args]) structpack.Codec[Args] {
	if b.fields.Tenants {
		members = append(members, argTenant)
	}
	return args(members...)
}

// tenantBefore returns members with the last one behind the tenant, where the
// generation has it.
func (b *builder) tenantBefore(last structpack.Member[Args], members ...structpack.Member[Args]) []structpack.Member[Args] {
	if b.fields.Tenants {
		members = append(members, argTenant)
	}
	return append(members, last)
}

var (
	done    = structpack.Expected(structpack.Void)
	eachOne = structpack.Vector(done)
)

func (b *builder) reads() {
	g := b.g
	list := structpack.Expected(b.list(structpack.Whole("replicas", replicaList(b.replica, listID, listReplicas))))
	exists := structpack.Expected(flag)
	entries := structpack.Map(
		at("key", func(k *KeyedReplicas) *string { return &k.Key }, text),
		at("replicas", func(k *KeyedReplicas) *ObjectReplicas { return &k.ObjectReplicas }, b.objectReplicas()))

	key, keys := b.withTenant(argKey), b.withTenant(argKeys)
	g.ExistKey = call(b, "ExistKey", key, exists)
	g.BatchExistKey = call(b, "BatchExistKey", keys, structpack.Vector(exists))
	g.GetReplicaList = call(b, "GetReplicaList", key, list)
	g.BatchGetReplicaList = call(b, "BatchGetReplicaList", keys, structpack.Vector(list))
	g.GetReplicaListByRegex = call(b, "GetReplicaListByRegex", key, structpack.Expected(entries))
}

func (b *builder) objectReplicas() structpack.Codec[ObjectReplicas] {
	return replicaList(b.replica, func(p *ObjectReplicas) *metadata.ObjectID { return &p.ID }, func(p *ObjectReplicas) *[]metadata.Descriptor { return &p.Replicas })
}

func (b *builder) puts() {
	g := b.g
	replicas := structpack.Expected(b.objectReplicas())
	config := at("config", func(a *Args) *ReplicateConfig { return &a.Config }, b.config)
	item := at("object_meta", func(a *Args) *PutItem { return &a.Item }, b.putEnd)
	items := at("object_metas", func(a *Args) *[]PutItem { return &a.Items }, structpack.Vector(b.putEnd))

	one, many := b.withTenant(argClient, argKey, argSize, config), b.withTenant(argClient, argKeys, argSizes, config)
	g.PutStart = call(b, "PutStart", one, replicas)
	g.BatchPutStart = call(b, "BatchPutStart", many, structpack.Vector(replicas))
	g.PutEnd = call(b, "PutEnd", b.withTenant(argClient, item, argKind), done)
	g.BatchPutEnd = call(b, "BatchPutEnd", b.withTenant(argClient, items, argKind), eachOne)
	g.PutRevoke = call(b, "PutRevoke", b.withTenant(argClient, argKey, argKind), done)
	g.BatchPutRevoke = call(b, "BatchPutRevoke", b.withTenant(argClient, argKeys, argKind), eachOne)

	g.UpsertStart = call(b, "UpsertStart", one, replicas)
	g.BatchUpsertStart = call(b, "BatchUpsertStart", many, structpack.Vector(replicas))
	g.UpsertEnd = call(b, "UpsertEnd", b.withTenant(argClient, item, argKind), done)
	g.BatchUpsertEnd = call(b, "BatchUpsertEnd", b.withTenant(argClient, items), eachOne)
	g.UpsertRevoke = call(b, "UpsertRevoke", b.withTenant(argClient, argKey, argKind), done)
	g.BatchUpsertRevoke = call(b, "BatchUpsertRevoke", b.withTenant(argClient, argKeys), eachOne)
}

func (b *builder) removals() {
	g := b.g
	g.Remove = call(b, "Remove", b.withTenant(argKey, argForce), done)
	g.RemoveByRegex = call(b, "RemoveByRegex", b.withTenant(argKey, argForce), structpack.Expected(i64))
	g.RemoveAll = call(b, "RemoveAll", b.withTenant(argForce), i64)
	g.BatchRemove = call(b, "BatchRemove", b.withTenant(argKeys, argForce), eachOne)
	g.BatchReplicaClear = call(b, "BatchReplicaClear", args(argKeys, argClient, argSegmentName), structpack.Expected(texts))
}

func (b *builder) clients() {
	g := b.g
	segment := at("segment", func(a *Args) *spec { return &a.Segment }, b.segment)
	segments := at("segments", func(a *Args) *[]spec { return &a.Segments }, structpack.Vector(b.segment))
	tasks := at("tasks", func(a *Args) *[]OffloadTask { return &a.Tasks }, b.notified())

	g.BatchQueryIP = call(b, "BatchQueryIp", args(argClients), structpack.Expected(clientAddresses))
	g.MountSegment = call(b, "MountSegment", args(segment, argClient), done)
	g.ReMountSegment = call(b, "ReMountSegment", args(segments, argClient), done)
	g.UnmountSegment = call(b, "UnmountSegment", args(argSegmentID, argClient), done)

	g.Ping = call(b, "Ping", args(argClient), structpack.Expected(pingResult))
	g.ServiceReady = call(b, "ServiceReady", args(), structpack.Expected(text))
	g.GetFsdir = call(b, "GetFsdir", args(), structpack.Expected(text))
	g.GetStorageConfig = call(b, "GetStorageConfig", args(), structpack.Expected(storageConfig))

	g.MountLocalDisk = call(b, "MountLocalDiskSegment", args(argClient, argOffloading), done)
	g.UnmountLocalDisk = call(b, "UnmountLocalDiskSegment", args(argClient), done)
	g.OffloadObjectHeartbeat = call(b, "OffloadObjectHeartbeat", args(argClient, argOffloading), structpack.Expected(b.tasks))
	g.NotifyOffloadSuccess = call(b, "NotifyOffloadSuccess", args(argClient, tasks, argObjects), done)
	g.ReportSsdCapacity = call(b, "ReportSsdCapacity", args(argClient, argCapacity), done)
	g.PromotionHeartbeat = call(b, "PromotionObjectHeartbeat", args(argClient), structpack.Expected(b.tasks))
	g.EvictDiskReplica = call(b, "EvictDiskReplica", args(b.tenantBefore(argKind, argClient, argKey)...), done)
	g.BatchEvictDiskReplica = call(b, "BatchEvictDiskReplica", args(b.tenantBefore(argKind, argClient, argKeys)...), eachOne)
	g.PollRemoveAll = call(b, "PollRemoveAll", args(argClient), structpack.Expected(flag))
	g.GracefulUnmount = call(b, "GracefulUnmountSegment", args(argSegmentID, argClient, argGrace), done)
	g.SegmentStatus = call(b, "QuerySegmentStatus", args(argSegmentName), structpack.Expected(i32))
	g.SegmentStatusByID = call(b, "QuerySegmentStatusById", args(argSegmentID), structpack.Expected(i32))
}

// notified packs the tasks of NotifyOffloadSuccess: before there were tenants,
// their keys.
func (b *builder) notified() structpack.Codec[[]OffloadTask] {
	if b.fields.Tenants {
		return b.tasks
	}
	return structpack.Vector(bare(func(t *OffloadTask) *string { return &t.Key }))
}
