package mooncake

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// The codecs that all generations share, and the parts of those that they do
// not.

var (
	u64  = structpack.Uint64
	i64  = structpack.Int64
	i32  = structpack.Int32
	u32  = structpack.Uint32
	u8   = structpack.Uint8
	flag = structpack.Boolean
	text = structpack.Text

	texts     = structpack.Vector(text)
	numbers   = structpack.Vector(u64)
	optNumber = structpack.Optional(u64)
	optTexts  = structpack.Optional(texts)

	clientID  = uuid[segment.ClientID]()
	segmentID = uuid[segment.ID]()
)

// uuid packs the original's pair of 64-bit numbers. Ours has the first in front,
// each with its high byte first, so that both print in the same order.
func uuid[T ~[16]byte]() structpack.Codec[T] {
	return structpack.Codec[T]{
		Type:  structpack.PlainStructOf(structpack.U64, structpack.U64),
		Least: 16,
		Put: func(w *structpack.Writer, v *T) {
			w.U64(binary.BigEndian.Uint64((*v)[:8]))
			w.U64(binary.BigEndian.Uint64((*v)[8:]))
		},
		Get: func(r *structpack.Reader, v *T) {
			binary.BigEndian.PutUint64((*v)[:8], r.U64())
			binary.BigEndian.PutUint64((*v)[8:], r.U64())
		},
	}
}

// A descriptor is an alternative of the replicas' variant: memory, or a file, or
// one of those that this master does not have.
type descriptor = structpack.Alternative[metadata.Descriptor]

func kind(k metadata.ReplicaKind, members ...structpack.Member[metadata.Descriptor]) descriptor {
	c := structpack.Struct(members...)
	get := c.Get
	c.Get = func(r *structpack.Reader, d *metadata.Descriptor) {
		*d = metadata.Descriptor{Kind: k}
		get(r, d)
	}
	return descriptor{Is: func(d *metadata.Descriptor) bool { return d.Kind == k }, Codec: c}
}

var errForeignKind = errors.New("a replica is of a kind that this program does not know")

// foreign is an alternative that is never packed here.
func foreign(t structpack.Type) descriptor {
	return descriptor{
		Is: func(*metadata.Descriptor) bool { return false },
		Codec: structpack.Codec[metadata.Descriptor]{
			Type: t,
			Get:  func(r *structpack.Reader, _ *metadata.Descriptor) { r.Fail(errForeignKind) },
		},
	}
}

func at[T, F any](name string, place func(*T) *F, c structpack.Codec[F]) structpack.Member[T] {
	return structpack.Field(name, place, c)
}

func size(d *metadata.Descriptor) *uint64 { return &d.Size }

var (
	buffer = structpack.Struct(
		at("size_", size, u64),
		at("buffer_address_", func(d *metadata.Descriptor) *uint64 { return &d.Address }, u64),
		at("protocol_", func(d *metadata.Descriptor) *string { return &d.Protocol }, text),
		at("transport_endpoint_", func(d *metadata.Descriptor) *string { return &d.Endpoint }, text),
	)
	inMemory    = kind(metadata.Memory, structpack.Whole("buffer_descriptor", buffer))
	onDisk      = kind(metadata.Disk, at("file_path", func(d *metadata.Descriptor) *string { return &d.Path }, text), at("object_size", size, u64))
	onLocalDisk = kind(metadata.LocalDisk,
		at("client_id", func(d *metadata.Descriptor) *segment.ClientID { return &d.Client }, clientID),
		at("object_size", size, u64),
		at("transport_endpoint", func(d *metadata.Descriptor) *string { return &d.Endpoint }, text),
	)
	onNoF = foreign(structpack.StructOf(buffer.Type))
	onDFS = foreign(structpack.StructOf(structpack.String, structpack.U64, structpack.U64, structpack.U64, structpack.I32))
)

// replicaList packs the replicas of one object. Each has a number in the
// original; here it is the object's id, by which a reader of dumps finds it.
func replicaList[T any](variant structpack.Codec[metadata.Descriptor], id func(*T) *metadata.ObjectID, list func(*T) *[]metadata.Descriptor) structpack.Codec[T] {
	element := structpack.StructOf(structpack.U64, variant.Type, structpack.I32)
	least := 8 + variant.Least + 4
	return structpack.Codec[T]{
		Type:  structpack.VectorOf(element),
		Least: 1,
		Put: func(w *structpack.Writer, v *T) {
			replicas := *list(v)
			w.Length(len(replicas))
			for i := range replicas {
				w.U64(uint64(*id(v)))
				variant.Put(w, &replicas[i])
				w.U32(uint32(statusOf(replicas[i].Status)))
			}
		},
		Get: func(r *structpack.Reader, v *T) {
			replicas := make([]metadata.Descriptor, r.Elements(least))
			for i := range replicas {
				*id(v) = metadata.ObjectID(r.U64())
				variant.Get(r, &replicas[i])
				replicas[i].Status = metadata.Processing
				if int32(r.U32()) == statusComplete {
					replicas[i].Status = metadata.Complete
				}
				if r.Failed() {
					return
				}
			}
			*list(v) = replicas
		},
	}
}

func statusOf(s metadata.ReplicaStatus) int32 {
	if s == metadata.Complete {
		return statusComplete
	}
	return statusProcessing
}

// millis packs a duration as a u64 of milliseconds.
var millis = structpack.Codec[time.Duration]{
	Type: structpack.U64, Least: 8,
	Put: func(w *structpack.Writer, v *time.Duration) { w.U64(uint64(v.Milliseconds())) },
	Get: func(r *structpack.Reader, v *time.Duration) { *v = time.Duration(r.U64()) * time.Millisecond },
}

// pinFlag packs a soft pin action as older releases have it: pinned, or not.
var pinFlag = structpack.Codec[uint8]{
	Type: structpack.Bool, Least: 1,
	Put: func(w *structpack.Writer, v *uint8) { w.Bool(*v == SoftPinEnable) },
	Get: func(r *structpack.Reader, v *uint8) {
		if *v = SoftPinPreserve; r.Bool() {
			*v = SoftPinEnable
		}
	},
}

// The arguments that all generations pack alike, by the original's names.
var (
	argClient      = at("client_id", func(a *Args) *segment.ClientID { return &a.Client }, clientID)
	argClients     = at("client_ids", func(a *Args) *[]segment.ClientID { return &a.Clients }, structpack.Vector(clientID))
	argKey         = at("key", func(a *Args) *string { return &a.Key }, text)
	argKeys        = at("keys", func(a *Args) *[]string { return &a.Keys }, texts)
	argSize        = at("slice_length", func(a *Args) *uint64 { return &a.Size }, u64)
	argSizes       = at("slice_lengths", func(a *Args) *[]uint64 { return &a.Sizes }, numbers)
	argKind        = at("replica_type", func(a *Args) *int32 { return &a.Kind }, i32)
	argForce       = at("force", func(a *Args) *bool { return &a.Force }, flag)
	argSegmentID   = at("segment_id", func(a *Args) *segment.ID { return &a.SegmentID }, segmentID)
	argSegmentName = at("segment_name", func(a *Args) *string { return &a.SegmentName }, text)
	argOffloading  = at("enable_offloading", func(a *Args) *bool { return &a.Offloading }, flag)
	argObjects     = at("metadatas", func(a *Args) *[]OffloadedObject { return &a.Objects }, structpack.Vector(offloaded))
	argCapacity    = at("ssd_total_capacity_bytes", func(a *Args) *int64 { return &a.Capacity }, i64)
	argMost        = at("batch_size", func(a *Args) *uint64 { return &a.Most }, u64)
	argGrace       = at("grace_period_ms", func(a *Args) *uint64 { return &a.GraceMillis }, u64)
	argTenant      = at("tenant_id", func(a *Args) *string { return &a.Tenant }, text)
)

type config = ReplicateConfig

// configField are the members of a ReplicateConfig, by the original's names.
var configField = struct {
	replicas, nof, dfs, softPin, softPinFlag, softPinMillis, hardPin, preferred, preferredOne, preferredNoF, sameNode, dataType, host, groups structpack.Member[config]
}{
	replicas:      at("replica_num", func(c *config) *uint64 { return &c.Replicas }, u64),
	nof:           at("nof_replica_num", func(c *config) *uint64 { return &c.NoF }, u64),
	dfs:           at("dfs_replica_num", func(c *config) *uint64 { return &c.DFS }, u64),
	softPin:       at("soft_pin_action", func(c *config) *uint8 { return &c.SoftPin }, u8),
	softPinFlag:   at("with_soft_pin", func(c *config) *uint8 { return &c.SoftPin }, pinFlag),
	softPinMillis: at("soft_pin_ttl_ms", func(c *config) **uint64 { return &c.SoftPinMillis }, optNumber),
	hardPin:       at("with_hard_pin", func(c *config) *bool { return &c.HardPin }, flag),
	preferred:     at("preferred_segments", func(c *config) *[]string { return &c.Preferred }, texts),
	preferredOne:  at("preferred_segment", func(c *config) *string { return &c.PreferredOne }, text),
	preferredNoF:  at("preferred_nof_segments", func(c *config) *[]string { return &c.PreferredNoF }, texts),
	sameNode:      at("prefer_alloc_in_same_node", func(c *config) *bool { return &c.PreferSameNode }, flag),
	dataType:      at("data_type", func(c *config) *uint8 { return &c.DataType }, u8),
	host:          at("host_id", func(c *config) *string { return &c.HostID }, text),
	groups:        at("group_ids", func(c *config) **[]string { return &c.Groups }, optTexts),
}

type spec = segment.Spec

var segmentField = struct {
	id, name, base, size, endpoint, protocol, host structpack.Member[spec]
}{
	id:       at("id", func(s *spec) *segment.ID { return &s.ID }, segmentID),
	name:     at("name", func(s *spec) *string { return &s.Name }, text),
	base:     at("base", func(s *spec) *uint64 { return &s.Base }, u64),
	size:     at("size", func(s *spec) *uint64 { return &s.Size }, u64),
	endpoint: at("te_endpoint", func(s *spec) *string { return &s.Endpoint }, text),
	protocol: at("protocol", func(s *spec) *string { return &s.Protocol }, text),
	host:     at("host_id", func(s *spec) *string { return &s.HostID }, text),
}

var (
	listReplicas = func(l *metadata.ReplicaList) *[]metadata.Descriptor { return &l.Replicas }
	listID       = func(l *metadata.ReplicaList) *metadata.ObjectID { return &l.ID }
	leaseTTL     = at("lease_ttl_ms", func(l *metadata.ReplicaList) *time.Duration { return &l.LeaseTTL }, millis)
	checksum     = at("object_checksum", func(l *metadata.ReplicaList) **uint64 { return &l.Checksum }, optNumber)

	putKey      = at("key", func(p *PutItem) *string { return &p.Key }, text)
	putChecksum = at("object_checksum", func(p *PutItem) **uint64 { return &p.Checksum }, optNumber)

	taskTenant = at("tenant_id", func(t *OffloadTask) *string { return &t.Tenant }, text)
	taskKey    = at("key", func(t *OffloadTask) *string { return &t.Key }, text)
	taskSize   = at("size", func(t *OffloadTask) *int64 { return &t.Size }, i64)

	offloaded = structpack.Struct(
		at("bucket_id", func(o *OffloadedObject) *int64 { return &o.Bucket }, i64),
		at("offset", func(o *OffloadedObject) *int64 { return &o.Offset }, i64),
		at("key_size", func(o *OffloadedObject) *int64 { return &o.KeySize }, i64),
		at("data_size", func(o *OffloadedObject) *int64 { return &o.DataSize }, i64),
		at("transport_endpoint", func(o *OffloadedObject) *string { return &o.Endpoint }, text),
	)

	clientAddresses = structpack.Map(
		at("client_id", func(c *ClientAddresses) *segment.ClientID { return &c.Client }, clientID),
		at("addresses", func(c *ClientAddresses) *[]string { return &c.Addresses }, texts),
	)
	pingResult = structpack.Struct(
		at("view_version_id", func(p *PingResult) *int64 { return &p.View }, i64),
		at("client_status", func(p *PingResult) *int32 { return &p.Status }, i32),
	)
	storageConfig = structpack.Struct(
		at("fsdir", func(c *StorageConfig) *string { return &c.Fsdir }, text),
		at("enable_disk_eviction", func(c *StorageConfig) *bool { return &c.DiskEviction }, flag),
		at("quota_bytes", func(c *StorageConfig) *uint64 { return &c.QuotaBytes }, u64),
	)
)
