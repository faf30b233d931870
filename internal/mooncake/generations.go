package mooncake

import (
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/metadata"
)

// shapes is the table of one generation: how its messages differ from those of
// others. The order of members and alternatives is the order on the wire.
type shapes struct {
	name    string
	fields  Fields // must fit what follows; with Tenants, most calls name one last
	segment structpack.Codec[spec]
	config  structpack.Codec[config]
	replica structpack.Codec[metadata.Descriptor]          // the variant inside
	list    func(replicas member) structpack.Codec[listOf] // GetReplicaListResponse
	putEnd  structpack.Codec[PutItem]                      // what PutEnd names
	tasks   structpack.Codec[[]OffloadTask]                // of an offload heartbeat
	lacks   []string                                       // functions that came later
}

type (
	listOf = metadata.ReplicaList
	member = structpack.Member[listOf]
)

// generations are all that are spoken, the newest first.
func generations() []shapes {
	s, c := segmentField, configField

	head := shapes{
		name:    "head", // August 2026
		fields:  Fields{Tenants: true, HostIDs: true, SoftPinTTL: true, Groups: true, Checksums: true},
		segment: structpack.Struct(s.id, s.name, s.base, s.size, s.endpoint, s.protocol, s.host),
		config: structpack.Struct(c.replicas, c.nof, c.dfs, c.softPin, c.softPinMillis, c.hardPin, c.preferred, c.preferredOne,
			c.preferredNoF, c.sameNode, c.dataType, c.host, c.groups),
		replica: structpack.Variant(inMemory, onNoF, onDisk, onLocalDisk, onDFS),
		list:    func(replicas member) structpack.Codec[listOf] { return structpack.Struct(replicas, leaseTTL, checksum) },
		putEnd:  structpack.Struct(putKey, putChecksum),
		tasks:   structpack.Vector(structpack.Struct(taskTenant, taskKey, taskSize)),
	}

	v0312 := head
	v0312.name = "v0.3.12" // July 2026
	v0312.fields = Fields{Tenants: true, HostIDs: true, Groups: true}
	v0312.config = structpack.Struct(c.replicas, c.nof, c.softPinFlag, c.hardPin, c.preferred, c.preferredOne,
		c.preferredNoF, c.sameNode, c.dataType, c.host, c.groups)
	v0312.replica = structpack.Variant(inMemory, onNoF, onDisk, onLocalDisk)
	v0312.list = func(replicas member) structpack.Codec[listOf] { return structpack.Struct(replicas, leaseTTL) }
	v0312.putEnd = bare(func(p *PutItem) *string { return &p.Key })
	v0312.lacks = []string{"UnmountLocalDiskSegment", "DynamicReplicaCopyStart", "DynamicReplicaCopyEnd", "DynamicReplicaCopyRevoke"}

	v0311 := v0312
	v0311.name = "v0.3.11" // May 2026
	v0311.fields = Fields{}
	v0311.segment = structpack.Struct(s.id, s.name, s.base, s.size, s.endpoint, s.protocol)
	v0311.config = structpack.Struct(c.replicas, c.nof, c.softPinFlag, c.hardPin, c.preferred, c.preferredOne,
		c.preferredNoF, c.sameNode, c.dataType)
	v0311.tasks = structpack.Map(taskKey, taskSize)
	v0311.lacks = append([]string{"PollRemoveAll"}, v0312.lacks...)

	return []shapes{head, v0312, v0311}
}

// bare packs one string of a value, and nothing else of it.
func bare[T any](place func(*T) *string) structpack.Codec[T] {
	return structpack.Codec[T]{
		Type: structpack.String, Least: 1,
		Put: func(w *structpack.Writer, v *T) { w.String(*place(v)) },
		Get: func(r *structpack.Reader, v *T) {
			var zero T
			*v = zero
			*place(v) = r.String()
		},
	}
}
