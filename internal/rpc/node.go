package rpc

import (
	"context"
	"io"
	"iter"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/metadata"
)

// An Upload is a state file that an operator sends, with what the operator says of it in
// advance.
type Upload struct {
	io.Reader
	Bytes uint64 // 0 if not known
	Head  string // where it leads in the journal, in JSON; empty if not known
}

// A Node is what AdminService needs of the node it runs on, whatever its role.
// Its errors are those of package errs; each call names those that the public
// contract (admin.proto) gives it.
type Node interface {
	// Store returns the node's state, nil as long as it has none. The caller
	// only reads it.
	Store() *metadata.Store
	// Status returns how the node and its cluster are. This answer and those
	// below have no header yet.
	Status(ctx context.Context) (*pb.StatusResponse, error)
	// Digest returns the digest at a sequence, of the newest one for 0. It waits
	// for a sequence that is not applied yet. Errors: InvalidParams if it is no
	// longer known, Unresolved if the context ended first.
	Digest(ctx context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error)
	// Handover ends a term in favour of a node, any promotable one if target is
	// empty, and returns when that one serves. For a term that has ended it
	// changes nothing and returns the present primary. Errors: NotLeader,
	// Unavailable, InvalidParams, NotSupported.
	Handover(ctx context.Context, term metadata.Term, target string) (*pb.HandoverResponse, error)
	// StartEmpty makes this node the primary of a new term that begins empty, and
	// returns that term. term is the last one before it. noWriters says that no
	// earlier writer still writes. Errors: Unavailable, InvalidParams, NotSupported.
	StartEmpty(ctx context.Context, term metadata.Term, noWriters bool) (metadata.Term, error)
	// Refound founds the journal anew from the state that this node holds, or from
	// a state file, and returns the new term and where it began. It is refused
	// unless giveUp names exactly the nodes that lose something. Errors:
	// Unavailable, InvalidParams, Unresolved, NotSupported.
	Refound(ctx context.Context, giveUp []string, file *Upload) (metadata.Term, metadata.Seq, error)
	// Backup writes the node's state as a state file. Errors: Unavailable,
	// NotSupported.
	Backup(ctx context.Context, to io.Writer) error
	// History returns the last terms, oldest first. Errors: Unavailable,
	// NotSupported.
	History(ctx context.Context) (*pb.HistoryResponse, error)
	// Forget strikes a node off the list of those that hold the whole state. Errors:
	// Unavailable, InvalidParams, NotSupported.
	Forget(ctx context.Context, id string) error
	// AddMember makes a node that joins a member of the nodes' own etcd, and returns the
	// initial cluster that it starts with. Errors: IllegalClient, Unavailable,
	// InvalidParams, Unresolved, NotSupported.
	AddMember(ctx context.Context, token, name, peerURL string) (initialCluster string, err error)
	// RemoveMember takes a member away from the nodes' own etcd, at once or when its node
	// joins again. Errors: Unavailable, InvalidParams, Unresolved, NotSupported.
	RemoveMember(ctx context.Context, name string, replace bool) error
	// PauseTakeover pauses automatic takeover for a time; 0 ends the pause. Errors:
	// Unavailable, InvalidParams, NotSupported.
	PauseTakeover(ctx context.Context, d time.Duration) error
	// Events yields the events of the journal in the order in which they apply,
	// from the oldest that etcd has, but none before from. With follow it goes
	// on with new ones until the context ends. An error is the last that it
	// yields. Errors: Unavailable, NotSupported.
	Events(ctx context.Context, from metadata.Seq, follow bool) iter.Seq2[*pb.EventsResponse, error]
}
