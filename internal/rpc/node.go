package rpc

import (
	"context"
	"iter"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// A Node is what AdminService needs of the node it runs on, whatever its role.
// Its errors are those of package errs; each call names those that the public
// contract (admin.proto) gives it.
type Node interface {
	// Store returns the node's state, nil as long as it has none. The caller
	// only reads it.
	Store() *metadata.Store
	// Status returns how the node and its cluster are.
	Status(ctx context.Context) (Status, error)
	// Digest returns the digest at a sequence, of the newest one for 0. It waits
	// for a sequence that is not applied yet. Errors: InvalidParams if it is no
	// longer known, Unresolved if the context ended first.
	Digest(ctx context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error)
	// Handover ends a term in favour of a node, any promotable one if target is
	// empty, and returns when that one serves. For a term that has ended it
	// changes nothing and returns the primary of now. Errors: NotLeader,
	// Unavailable, InvalidParams, NotSupported.
	Handover(ctx context.Context, term metadata.Term, target string) (Handover, error)
	// StartEmpty makes this node the primary of a new term without the state of
	// before, which ended with the given one, and returns the new term. Errors:
	// Unavailable, InvalidParams, NotSupported.
	StartEmpty(ctx context.Context, term metadata.Term) (metadata.Term, error)
	// Events yields the events of the journal in the order in which they apply,
	// from the oldest that etcd has, but none before from. With follow it goes
	// on with new ones until the context ends. An error is the last that it
	// yields. Errors: Unavailable, NotSupported.
	Events(ctx context.Context, from metadata.Seq, follow bool) iter.Seq2[Event, error]
}

// A Role is what a node does.
type Role uint8

// The roles.
const (
	RoleStandby     Role = iota + 1 // follows the journal, or gets ready to
	RoleElecting                    // tries to become the primary
	RolePromoting                   // has won and prepares to serve
	RolePrimary                     // serves
	RoleHandingOver                 // has stopped serving and waits for its successor
	RoleFenced                      // was the primary and its session may have ended
	RoleStopping                    // shuts down
)

// Status says how a node and its cluster are.
type Status struct {
	Node          NodeInfo
	Nodes         []NodeInfo // all that are registered, by id; none without HA, or while etcd is away
	LeaderNodeID  string     // of the serving primary; empty if none is known
	LeaderAddress string     // host:port of its gRPC service
	State         StateInfo
	Journal       *JournalInfo // nil without HA
	Warnings      []string     // what an operator should know or do
}

// NodeInfo is one node of a cluster.
type NodeInfo struct {
	ID            string
	Role          Role
	RPC           string // host:port of its gRPC service, as others reach it
	HTTP          string // host:port of its HTTP service; empty for none
	Version       string
	Applied       metadata.Seq
	LagEntries    uint64 // commits that it knows of and has not applied
	LagTime       time.Duration
	Promotable    bool
	NotPromotable string   // why; empty if it is
	Formats       []uint32 // of records and snapshots that it reads
}

// StateInfo is what a node holds; zero for nothing.
type StateInfo struct {
	metadata.Position
	metadata.Stats
	StartedEmpty bool // this term began with all that was before lost
}

// JournalInfo is what a node knows of the journal.
type JournalInfo struct {
	Committed          metadata.Seq  // of the newest commit that it has seen
	HeadTerm           metadata.Term // of that commit; 0 for none
	SnapshotLoads      uint64        // since the node's start
	LastSnapshotReason string        // empty for none
	EtcdBytes          uint64        // size of etcd's database; 0 if not known
	EtcdQuotaBytes     uint64        // 0 if not known
}

// A Handover says who is the primary after one.
type Handover struct {
	LeaderNodeID  string
	LeaderAddress string        // host:port of its gRPC service
	Took          time.Duration // 0 if the term had ended before
}

// An Event is one event of the journal, decoded for people and programs.
type Event struct {
	Term   metadata.Term
	Seq    metadata.Seq
	Time   metadata.Time
	Stream metadata.Stream
	Type   string // for example "PUT_START"
	Text   string // one line
	JSON   string // an object
}
