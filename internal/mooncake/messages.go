package mooncake

import (
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// Numbers that the original's enumerations have on the wire.
const (
	ReplicaMemory    int32 = 0
	ReplicaDisk      int32 = 1
	ReplicaLocalDisk int32 = 2
	ReplicaAll       int32 = 4

	statusProcessing int32 = 2
	statusComplete   int32 = 3

	ClientOK          int32 = 1
	ClientNeedRemount int32 = 2

	SoftPinPreserve uint8 = 0
	SoftPinEnable   uint8 = 1
	SoftPinDisable  uint8 = 2
)

// KeyArgs are those of ExistKey, GetReplicaList and GetReplicaListByRegex.
type KeyArgs struct {
	Key    string // or the pattern
	Tenant string // empty in generations without tenants, here and below
}

// KeysArgs are those of BatchExistKey and BatchGetReplicaList.
type KeysArgs struct {
	Keys   []string
	Tenant string
}

// A ReplicateConfig says how objects are placed and pinned.
type ReplicateConfig struct {
	Replicas       uint64 // in memory
	NoF            uint64 // in NVMe-oF pools
	DFS            uint64 // in a distributed file system
	SoftPin        uint8
	SoftPinMillis  *uint64
	HardPin        bool
	Preferred      []string
	PreferredOne   string // deprecated; wins if set
	PreferredNoF   []string
	PreferSameNode bool
	DataType       uint8
	HostID         string
	Groups         *[]string // of each key
}

// PutStartArgs are those of PutStart.
type PutStartArgs struct {
	Client segment.ClientID
	Key    string
	Size   uint64
	Config ReplicateConfig
	Tenant string
}

// BatchPutStartArgs are those of BatchPutStart.
type BatchPutStartArgs struct {
	Client segment.ClientID
	Keys   []string
	Sizes  []uint64
	Config ReplicateConfig
	Tenant string
}

// A PutItem names an object that was put.
type PutItem struct {
	Key      string
	Checksum *uint64
}

// PutEndArgs are those of PutEnd.
type PutEndArgs struct {
	Client segment.ClientID
	Item   PutItem
	Kind   int32 // Replica...
	Tenant string
}

// BatchPutEndArgs are those of BatchPutEnd.
type BatchPutEndArgs struct {
	Client segment.ClientID
	Items  []PutItem
	Kind   int32
	Tenant string
}

// PutRevokeArgs are those of PutRevoke.
type PutRevokeArgs struct {
	Client segment.ClientID
	Key    string
	Kind   int32
	Tenant string
}

// BatchPutRevokeArgs are those of BatchPutRevoke.
type BatchPutRevokeArgs struct {
	Client segment.ClientID
	Keys   []string
	Kind   int32
	Tenant string
}

// RemoveArgs are those of Remove and RemoveByRegex.
type RemoveArgs struct {
	Key    string // or the pattern
	Force  bool
	Tenant string
}

// RemoveAllArgs are those of RemoveAll.
type RemoveAllArgs struct {
	Force  bool
	Tenant string
}

// BatchRemoveArgs are those of BatchRemove.
type BatchRemoveArgs struct {
	Keys   []string
	Force  bool
	Tenant string
}

// ClearArgs are those of BatchReplicaClear.
type ClearArgs struct {
	Keys    []string
	Client  segment.ClientID
	Segment string // name; empty for all
}

// MountArgs are those of MountSegment. The client stands in the segment too.
type MountArgs struct {
	Segment segment.Spec
	Client  segment.ClientID
}

// ReMountArgs are those of ReMountSegment.
type ReMountArgs struct {
	Segments []segment.Spec
	Client   segment.ClientID
}

// UnmountArgs are those of UnmountSegment.
type UnmountArgs struct {
	Segment segment.ID
	Client  segment.ClientID
}

// ClientArgs are those of Ping and UnmountLocalDiskSegment.
type ClientArgs struct{ Client segment.ClientID }

// ClientsArgs are those of BatchQueryIp.
type ClientsArgs struct{ Clients []segment.ClientID }

// LocalDiskArgs are those of MountLocalDiskSegment and OffloadObjectHeartbeat.
type LocalDiskArgs struct {
	Client     segment.ClientID
	Offloading bool
}

// An OffloadTask is an object to copy to a client's SSD.
type OffloadTask struct {
	Tenant string
	Key    string
	Size   int64 // bytes; below 0 in NotifyOffloadSuccess: the client did not copy it
}

// An OffloadedObject says where an object lies on a client's SSD.
type OffloadedObject struct {
	Bucket, Offset, KeySize, DataSize int64
	Endpoint                          string
}

// NotifyOffloadArgs are those of NotifyOffloadSuccess: a task and an object at
// each index.
type NotifyOffloadArgs struct {
	Client  segment.ClientID
	Tasks   []OffloadTask
	Objects []OffloadedObject
}

// A Placement is the answer to a PutStart.
type Placement struct {
	ID       metadata.ObjectID
	Replicas []metadata.Descriptor
}

// A KeyedReplicas is an entry of the answer to GetReplicaListByRegex.
type KeyedReplicas struct {
	Key string
	Placement
}

// ClientAddresses are a client's, in the answer to BatchQueryIp.
type ClientAddresses struct {
	Client    segment.ClientID
	Addresses []string
}

// PingResult is the answer to Ping.
type PingResult struct {
	View   int64 // version of the master's view: grows with each leader
	Status int32 // ClientOK, ClientNeedRemount
}

// StorageConfig is the answer to GetStorageConfig.
type StorageConfig struct {
	Fsdir        string
	DiskEviction bool
	QuotaBytes   uint64
}

// A Result is a value or an error's number.
type Result[T any] = structpack.Result[T]

// Done is the result of calls that return nothing.
type Done = Result[struct{}]

// ViewKey is the key in etcd where clients look for the master of a cluster: its
// value is host:port, and its last change the version of the view.
func ViewKey(clusterID string) string { return "mooncake-store/" + clusterID + "/master_view" }
