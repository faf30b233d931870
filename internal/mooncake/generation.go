package mooncake

import (
	"crypto/md5" //nolint:gosec // the protocol's own numbering of functions; it protects nothing
	"encoding/binary"
	"slices"

	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
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
type Call[A, R any] struct {
	Function
	Args   *structpack.Message[A] // nil if there are none: the body is empty
	Result *structpack.Message[R]
}

// Says is what the requests of a generation can say beyond what those of all can.
// What they cannot is left out when they are packed, whatever stands in the
// arguments.
type Says struct {
	Tenants    bool // whose keys most calls are about
	HostIDs    bool // the host_id of a segment
	SoftPinTTL bool // the soft_pin_ttl_ms of a put
	Groups     bool // the group_ids of a put
	Checksums  bool // the object_checksum of a PutEnd
}

// None are the arguments of a function that has none.
type None struct{}

// A Generation is a set of releases whose clients and masters understand each
// other. Functions that it lacks are zero.
type Generation struct {
	Name string
	Says Says

	ExistKey               Call[KeyArgs, Result[bool]]
	BatchExistKey          Call[KeysArgs, []Result[bool]]
	GetReplicaList         Call[KeyArgs, Result[listOf]]
	BatchGetReplicaList    Call[KeysArgs, []Result[listOf]]
	GetReplicaListByRegex  Call[KeyArgs, Result[[]KeyedReplicas]]
	PutStart               Call[PutStartArgs, Result[Placement]]
	BatchPutStart          Call[BatchPutStartArgs, []Result[Placement]]
	PutEnd                 Call[PutEndArgs, Done]
	BatchPutEnd            Call[BatchPutEndArgs, []Done]
	PutRevoke              Call[PutRevokeArgs, Done]
	BatchPutRevoke         Call[BatchPutRevokeArgs, []Done]
	Remove                 Call[RemoveArgs, Done]
	RemoveByRegex          Call[RemoveArgs, Result[int64]]
	RemoveAll              Call[RemoveAllArgs, int64]
	BatchRemove            Call[BatchRemoveArgs, []Done]
	BatchReplicaClear      Call[ClearArgs, Result[[]string]]
	BatchQueryIP           Call[ClientsArgs, Result[[]ClientAddresses]]
	MountSegment           Call[MountArgs, Done]
	ReMountSegment         Call[ReMountArgs, Done]
	UnmountSegment         Call[UnmountArgs, Done]
	Ping                   Call[ClientArgs, Result[PingResult]]
	ServiceReady           Call[None, Result[string]]
	GetFsdir               Call[None, Result[string]]
	GetStorageConfig       Call[None, Result[StorageConfig]]
	MountLocalDisk         Call[LocalDiskArgs, Done]
	UnmountLocalDisk       Call[ClientArgs, Done]
	OffloadObjectHeartbeat Call[LocalDiskArgs, Result[[]OffloadTask]]
	NotifyOffloadSuccess   Call[NotifyOffloadArgs, Done]

	// Others are the functions that have no Go types yet.
	Others []Function

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
	g := &Generation{Name: s.name, Says: s.says}
	b := &builder{shapes: s, g: g}
	b.reads()
	b.puts()
	b.removals()
	b.clients()
	b.others()
	return g
}

// A builder collects the functions of a generation.
type builder struct {
	shapes
	g *Generation
}

func (b *builder) lacksFunction(name string) bool { return slices.Contains(b.lacks, name) }

// call makes one call of the generation. Arguments of a codec without a type are
// none.
func call[A, R any](b *builder, name string, args structpack.Codec[A], result structpack.Codec[R]) Call[A, R] {
	if b.lacksFunction(name) {
		return Call[A, R]{}
	}
	c := Call[A, R]{Function: Function{name, FunctionID(name), args.Type, result.Type}, Result: structpack.NewMessage(result)}
	if args.Type != "" {
		c.Args = structpack.NewMessage(args)
	}
	b.g.functions = append(b.g.functions, c.Function)
	return c
}

// args packs arguments: a tuple, but one alone as it is.
func args[A any](members ...structpack.Member[A]) structpack.Codec[A] {
	c := structpack.Struct(members...)
	if len(members) == 1 {
		c.Type = members[0].Type
	}
	return c
}

// withTenant is args with the tenant in the end, where the generation has it.
func withTenant[A any](b *builder, tenant func(*A) *string, members ...structpack.Member[A]) structpack.Codec[A] {
	if b.says.Tenants {
		members = append(members, at("tenant_id", tenant, text))
	}
	return args(members...)
}

var (
	expect = structpack.Expected(structpack.Void())
	none   structpack.Codec[None]
)

func (b *builder) reads() {
	g := b.g
	list := structpack.Expected(b.list(structpack.Whole("replicas", replicaList(b.replica, listID, listReplicas))))
	exists := structpack.Expected(flag)
	entries := structpack.Map(
		at("key", func(k *KeyedReplicas) *string { return &k.Key }, text),
		at("replicas", func(k *KeyedReplicas) *Placement { return &k.Placement }, b.placement()))

	key := withTenant(b, func(a *KeyArgs) *string { return &a.Tenant },
		at("key", func(a *KeyArgs) *string { return &a.Key }, text))
	keys := withTenant(b, func(a *KeysArgs) *string { return &a.Tenant },
		at("keys", func(a *KeysArgs) *[]string { return &a.Keys }, texts))

	g.ExistKey = call(b, "ExistKey", key, exists)
	g.BatchExistKey = call(b, "BatchExistKey", keys, structpack.Vector(exists))
	g.GetReplicaList = call(b, "GetReplicaList", key, list)
	g.BatchGetReplicaList = call(b, "BatchGetReplicaList", keys, structpack.Vector(list))
	g.GetReplicaListByRegex = call(b, "GetReplicaListByRegex", key, structpack.Expected(entries))
}

func (b *builder) placement() structpack.Codec[Placement] {
	return replicaList(b.replica, func(p *Placement) *metadata.ObjectID { return &p.ID }, func(p *Placement) *[]metadata.Descriptor { return &p.Replicas })
}

func (b *builder) puts() {
	g := b.g
	placement := structpack.Expected(b.placement())
	g.PutStart = call(b, "PutStart", withTenant(b, func(a *PutStartArgs) *string { return &a.Tenant },
		at("client_id", func(a *PutStartArgs) *segment.ClientID { return &a.Client }, clientID),
		at("key", func(a *PutStartArgs) *string { return &a.Key }, text),
		at("slice_length", func(a *PutStartArgs) *uint64 { return &a.Size }, u64),
		at("config", func(a *PutStartArgs) *config { return &a.Config }, b.config)), placement)
	g.BatchPutStart = call(b, "BatchPutStart", withTenant(b, func(a *BatchPutStartArgs) *string { return &a.Tenant },
		at("client_id", func(a *BatchPutStartArgs) *segment.ClientID { return &a.Client }, clientID),
		at("keys", func(a *BatchPutStartArgs) *[]string { return &a.Keys }, texts),
		at("slice_lengths", func(a *BatchPutStartArgs) *[]uint64 { return &a.Sizes }, numbers),
		at("config", func(a *BatchPutStartArgs) *config { return &a.Config }, b.config)), structpack.Vector(placement))
	g.PutEnd = call(b, "PutEnd", withTenant(b, func(a *PutEndArgs) *string { return &a.Tenant },
		at("client_id", func(a *PutEndArgs) *segment.ClientID { return &a.Client }, clientID),
		at("object_meta", func(a *PutEndArgs) *PutItem { return &a.Item }, b.putEnd),
		at("replica_type", func(a *PutEndArgs) *int32 { return &a.Kind }, i32)), expect)
	g.BatchPutEnd = call(b, "BatchPutEnd", withTenant(b, func(a *BatchPutEndArgs) *string { return &a.Tenant },
		at("client_id", func(a *BatchPutEndArgs) *segment.ClientID { return &a.Client }, clientID),
		at("object_metas", func(a *BatchPutEndArgs) *[]PutItem { return &a.Items }, structpack.Vector(b.putEnd)),
		at("replica_type", func(a *BatchPutEndArgs) *int32 { return &a.Kind }, i32)), structpack.Vector(expect))
	g.PutRevoke = call(b, "PutRevoke", withTenant(b, func(a *PutRevokeArgs) *string { return &a.Tenant },
		at("client_id", func(a *PutRevokeArgs) *segment.ClientID { return &a.Client }, clientID),
		at("key", func(a *PutRevokeArgs) *string { return &a.Key }, text),
		at("replica_type", func(a *PutRevokeArgs) *int32 { return &a.Kind }, i32)), expect)
	g.BatchPutRevoke = call(b, "BatchPutRevoke", withTenant(b, func(a *BatchPutRevokeArgs) *string { return &a.Tenant },
		at("client_id", func(a *BatchPutRevokeArgs) *segment.ClientID { return &a.Client }, clientID),
		at("keys", func(a *BatchPutRevokeArgs) *[]string { return &a.Keys }, texts),
		at("replica_type", func(a *BatchPutRevokeArgs) *int32 { return &a.Kind }, i32)), structpack.Vector(expect))
}

func (b *builder) removals() {
	g := b.g
	remove := withTenant(b, func(a *RemoveArgs) *string { return &a.Tenant },
		at("key", func(a *RemoveArgs) *string { return &a.Key }, text),
		at("force", func(a *RemoveArgs) *bool { return &a.Force }, flag))
	g.Remove = call(b, "Remove", remove, expect)
	g.RemoveByRegex = call(b, "RemoveByRegex", remove, structpack.Expected(i64))
	g.RemoveAll = call(b, "RemoveAll", withTenant(b, func(a *RemoveAllArgs) *string { return &a.Tenant },
		at("force", func(a *RemoveAllArgs) *bool { return &a.Force }, flag)), i64)
	g.BatchRemove = call(b, "BatchRemove", withTenant(b, func(a *BatchRemoveArgs) *string { return &a.Tenant },
		at("keys", func(a *BatchRemoveArgs) *[]string { return &a.Keys }, texts),
		at("force", func(a *BatchRemoveArgs) *bool { return &a.Force }, flag)), structpack.Vector(expect))
	g.BatchReplicaClear = call(b, "BatchReplicaClear", args(
		at("object_keys", func(a *ClearArgs) *[]string { return &a.Keys }, texts),
		at("client_id", func(a *ClearArgs) *segment.ClientID { return &a.Client }, clientID),
		at("segment_name", func(a *ClearArgs) *string { return &a.Segment }, text)), structpack.Expected(texts))
}

func (b *builder) clients() {
	g := b.g
	g.BatchQueryIP = call(b, "BatchQueryIp", args(
		at("client_ids", func(a *ClientsArgs) *[]segment.ClientID { return &a.Clients }, structpack.Vector(clientID))),
		structpack.Expected(structpack.Map(
			at("client_id", func(c *ClientAddresses) *segment.ClientID { return &c.Client }, clientID),
			at("addresses", func(c *ClientAddresses) *[]string { return &c.Addresses }, texts))))
	g.MountSegment = call(b, "MountSegment", args(
		at("segment", func(a *MountArgs) *spec { return &a.Segment }, b.segment),
		at("client_id", func(a *MountArgs) *segment.ClientID { return &a.Client }, clientID)), expect)
	g.ReMountSegment = call(b, "ReMountSegment", args(
		at("segments", func(a *ReMountArgs) *[]spec { return &a.Segments }, structpack.Vector(b.segment)),
		at("client_id", func(a *ReMountArgs) *segment.ClientID { return &a.Client }, clientID)), expect)
	g.UnmountSegment = call(b, "UnmountSegment", args(
		at("segment_id", func(a *UnmountArgs) *segment.ID { return &a.Segment }, segmentID),
		at("client_id", func(a *UnmountArgs) *segment.ClientID { return &a.Client }, clientID)), expect)

	one := args(at("client_id", func(a *ClientArgs) *segment.ClientID { return &a.Client }, clientID))
	g.Ping = call(b, "Ping", one, structpack.Expected(structpack.Struct(
		at("view_version_id", func(p *PingResult) *int64 { return &p.View }, i64),
		at("client_status", func(p *PingResult) *int32 { return &p.Status }, i32))))
	g.ServiceReady = call(b, "ServiceReady", none, structpack.Expected(text))
	g.GetFsdir = call(b, "GetFsdir", none, structpack.Expected(text))
	g.GetStorageConfig = call(b, "GetStorageConfig", none, structpack.Expected(structpack.Struct(
		at("fsdir", func(c *StorageConfig) *string { return &c.Fsdir }, text),
		at("enable_disk_eviction", func(c *StorageConfig) *bool { return &c.DiskEviction }, flag),
		at("quota_bytes", func(c *StorageConfig) *uint64 { return &c.QuotaBytes }, u64))))

	disk := args(
		at("client_id", func(a *LocalDiskArgs) *segment.ClientID { return &a.Client }, clientID),
		at("enable_offloading", func(a *LocalDiskArgs) *bool { return &a.Offloading }, flag))
	g.MountLocalDisk = call(b, "MountLocalDiskSegment", disk, expect)
	g.UnmountLocalDisk = call(b, "UnmountLocalDiskSegment", one, expect)
	g.OffloadObjectHeartbeat = call(b, "OffloadObjectHeartbeat", disk, structpack.Expected(b.tasks))
	g.NotifyOffloadSuccess = call(b, "NotifyOffloadSuccess", args(
		at("client_id", func(a *NotifyOffloadArgs) *segment.ClientID { return &a.Client }, clientID),
		at("tasks", func(a *NotifyOffloadArgs) *[]OffloadTask { return &a.Tasks }, b.notified()),
		at("metadatas", func(a *NotifyOffloadArgs) *[]OffloadedObject { return &a.Objects }, structpack.Vector(offloaded))), expect)
}

// notified packs the tasks of NotifyOffloadSuccess: before there were tenants,
// their keys.
func (b *builder) notified() structpack.Codec[[]OffloadTask] {
	if b.says.Tenants {
		return b.tasks
	}
	return structpack.Vector(bare(func(t *OffloadTask) *string { return &t.Key }))
}
