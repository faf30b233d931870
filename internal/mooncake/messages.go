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

// Args are the arguments of a call. Each call has some of them; what it has in no
// generation, or not in this one, is left out.
type Args struct {
	Client      segment.ClientID
	Clients     []segment.ClientID
	Key         string // or a pattern
	Keys        []string
	Size        uint64
	Sizes       []uint64
	Config      ReplicateConfig
	Item        PutItem
	Items       []PutItem
	Kind        int32 // Replica...
	Force       bool
	Segment     segment.Spec // the client stands in it too
	Segments    []segment.Spec
	SegmentID   segment.ID
	SegmentName string // empty for all
	Offloading  bool
	Tasks       []OffloadTask
	Objects     []OffloadedObject // one for each task
	Capacity    int64             // bytes of an SSD
	Most        uint64            // tasks to fetch
	GraceMillis uint64
	Target      string   // name of the segment to move to; it comes from SegmentName
	Targets     []string // names of the segments to copy to, or preferred ones
	TaskID      TaskID
	TaskEnd     TaskEnd
	// What a dynamic copy was planned as.
	DynamicLease segment.ID
	DynamicEpoch uint64
	Tenant       string
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

// A PutItem names an object that was put.
type PutItem struct {
	Key      string
	Checksum *uint64
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

// ObjectReplicas are an object with its replicas: the answer to a PutStart.
type ObjectReplicas struct {
	ID       metadata.ObjectID
	Replicas []metadata.Descriptor
}

// A KeyedReplicas is an entry of the answer to GetReplicaListByRegex.
type KeyedReplicas struct {
	Key string
	ObjectReplicas
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
