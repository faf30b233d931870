package understudyv1

// ContractRevision is the revision of the contract in this package, for
// ServiceReady. It grows by one with every addition.
const ContractRevision = 1

// Limits of a request; beyond them it is refused with INVALID_KEY or
// INVALID_PARAMS.
const (
	MaxKeyBytes    = 65_536  // bytes of a key, at least 1
	MaxTenantBytes = 256     // bytes of a tenant's name
	MaxNameBytes   = 1024    // bytes of any other name
	MaxRegexBytes  = 4096    // bytes of a regular expression
	MaxReplicas    = 64      // memory replicas of one object
	MaxBatchItems  = 10_000  // items of a batch, at least 1
	MaxReMounts    = 131_072 // segments of a ReMountSegment
	MaxPageSize    = 10_000  // entries of a page
)

// DefaultPageSize is how many entries a page has at most if the request does
// not say.
const DefaultPageSize = 1000

// DefaultTenant owns the keys of requests without a tenant.
const DefaultTenant = "default"

// Defaults of nodes, and of those who call them: where a node listens for gRPC,
// and whose keys in etcd are its cluster's.
const (
	DefaultPort       = 50051
	DefaultClusterID  = "mooncake_cluster"
	DefaultEtcdPrefix = "/understudy"
)

// ReasonHeader is the header of an HTTP answer that says, for people, why a request was refused,
// where the body has the words of Mooncake's master.
const ReasonHeader = "Understudy-Reason"

// DefaultMaxMessageBytes is the largest message in either direction unless a
// server is set otherwise. Clients should accept as much.
const DefaultMaxMessageBytes = 16 << 20

// MaxSnapshotChunkBytes is how much of a part one message of a snapshot holds
// at most.
const MaxSnapshotChunkBytes = 1 << 20

// MaxDumpRanges is how many ranges one message of a dump holds at most.
const MaxDumpRanges = 4096
