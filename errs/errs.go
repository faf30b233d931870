// Package errs is the vocabulary of failures: a small, append-only set of
// kinds that tells a program how to react, and one error type that carries a
// kind with the operation that failed.
//
// One table (see Kind.Code and Kind.Number) maps kinds to gRPC codes and to
// the error numbers of Mooncake's C++ master, which its clients know. The
// package knows nothing of metadata, transports or logs.
package errs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
)

// A Kind says what went wrong, in a way that a program can act on. A Kind is
// itself an error, so hot paths can return one without allocating:
//
//	return errs.ObjectNotFound
//
// and callers test for it with errors.Is(err, errs.ObjectNotFound).
type Kind uint8

// The kinds. Append only: the order is not part of any wire format, the
// numbers of the C++ master are.
const (
	OK                  Kind = iota // no error
	Internal                        // a defect of this program
	SegmentNotFound                 // no segment of that id is mounted
	SegmentExists                   // a segment of that id is mounted with other properties
	ClientNotFound                  // the client has nothing mounted here
	NoAvailableHandle               // no segment has room; retry after eviction
	InvalidVersion                  // a version that this program does not speak
	InvalidKey                      // an empty or oversized key
	InvalidParams                   // an argument out of its range
	IllegalClient                   // the put belongs to another client
	InvalidWrite                    // the object is not in a state for this write
	InvalidReplica                  // no replica of that type
	ReplicaNotReady                 // a replica is in progress, or none is readable yet
	ObjectNotFound                  // no object under that key
	ObjectExists                    // an object or a live reservation is under that key
	ObjectHasLease                  // a reader holds a lease
	ObjectHasTask                   // a copy, a move or a promotion of the object is under way
	ObjectNoTask                    // no such task on the object
	ReplicaNotFound                 // no replica on that segment
	ReplicaExists                   // a replica is on that segment already
	ReplicaGone                     // the replica was removed meanwhile
	ReplicaBusy                     // a put of the replicas is in progress
	TaskNotFound                    // no task of that id
	TaskLimit                       // too many tasks are pending
	Unavailable                     // cannot be done now, nothing has changed: queue full, etcd away
	NotLeader                       // this node does not serve; ask the leader
	NotSupported                    // a call that this master does not offer
	TenantQuotaExceeded             // the tenant's quota is used up
	TenantNotRegistered             // the tenant has no quota, so it may not write
	TenantNotEmpty                  // the tenant still owns objects
	Unresolved                      // the call may or may not have been applied
	JobNotFound                     // no drain job of that id
	OffloadDisabled                 // this master does not copy objects to SSDs
	kindCount
)

// row is one line of the table of kinds: its name and number in the C++
// master (error table of Mooncake, August 2026) and the gRPC code that fits.
type row struct {
	name   string
	number int32
	code   codes.Code
	retry  bool
}

var table = [kindCount]row{
	OK:                  {"OK", 0, codes.OK, false},
	Internal:            {"INTERNAL_ERROR", -1, codes.Internal, false},
	SegmentNotFound:     {"SEGMENT_NOT_FOUND", -101, codes.NotFound, false},
	SegmentExists:       {"SEGMENT_ALREADY_EXISTS", -102, codes.AlreadyExists, false},
	ClientNotFound:      {"CLIENT_NOT_FOUND", -103, codes.NotFound, false},
	NoAvailableHandle:   {"NO_AVAILABLE_HANDLE", -200, codes.ResourceExhausted, true},
	InvalidVersion:      {"INVALID_VERSION", -300, codes.FailedPrecondition, false},
	InvalidKey:          {"INVALID_KEY", -400, codes.InvalidArgument, false},
	InvalidParams:       {"INVALID_PARAMS", -600, codes.InvalidArgument, false},
	IllegalClient:       {"ILLEGAL_CLIENT", -601, codes.PermissionDenied, false},
	InvalidWrite:        {"INVALID_WRITE", -700, codes.FailedPrecondition, false},
	InvalidReplica:      {"INVALID_REPLICA", -702, codes.FailedPrecondition, false},
	ReplicaNotReady:     {"REPLICA_IS_NOT_READY", -703, codes.FailedPrecondition, true},
	ObjectNotFound:      {"OBJECT_NOT_FOUND", -704, codes.NotFound, false},
	ObjectExists:        {"OBJECT_ALREADY_EXISTS", -705, codes.AlreadyExists, false},
	ObjectHasLease:      {"OBJECT_HAS_LEASE", -706, codes.FailedPrecondition, true},
	ObjectHasTask:       {"OBJECT_HAS_REPLICATION_TASK", -708, codes.FailedPrecondition, true},
	ObjectNoTask:        {"OBJECT_NO_REPLICATION_TASK", -709, codes.FailedPrecondition, false},
	ReplicaNotFound:     {"REPLICA_NOT_FOUND", -710, codes.NotFound, false},
	ReplicaExists:       {"REPLICA_ALREADY_EXISTS", -711, codes.AlreadyExists, false},
	ReplicaGone:         {"REPLICA_IS_GONE", -712, codes.NotFound, false},
	ReplicaBusy:         {"OBJECT_REPLICA_BUSY", -714, codes.FailedPrecondition, true},
	TaskNotFound:        {"TASK_NOT_FOUND", -1400, codes.NotFound, false},
	TaskLimit:           {"TASK_PENDING_LIMIT_EXCEEDED", -1401, codes.ResourceExhausted, true},
	Unavailable:         {"UNAVAILABLE_IN_CURRENT_STATUS", -1010, codes.Unavailable, true},
	NotLeader:           {"UNAVAILABLE_IN_CURRENT_MODE", -1011, codes.Unavailable, true},
	NotSupported:        {"NOT_SUPPORTED", -1012, codes.Unimplemented, false},
	TenantQuotaExceeded: {"TENANT_QUOTA_EXCEEDED", -1700, codes.ResourceExhausted, false},
	TenantNotRegistered: {"TENANT_NOT_REGISTERED", -1701, codes.FailedPrecondition, false},
	TenantNotEmpty:      {"TENANT_NOT_EMPTY", -1702, codes.FailedPrecondition, false},
	// The C++ master has no number for a call whose fate is unknown; its own
	// clients see RPC_TIMEOUT there, and so does a Mooncake client of ours.
	Unresolved: {"RPC_TIMEOUT", -901, codes.DeadlineExceeded, false},

	JobNotFound:     {"JOB_NOT_FOUND", -1402, codes.NotFound, false},
	OffloadDisabled: {"UNABLE_OFFLOAD", -1300, codes.FailedPrecondition, false},
}

func (k Kind) row() row {
	if k >= kindCount {
		return table[Internal]
	}
	return table[k]
}

// String returns the C++ master's name of the kind, for example
// OBJECT_NOT_FOUND.
func (k Kind) String() string { return k.row().name }

// Error makes a Kind usable as an error.
func (k Kind) Error() string { return k.row().name }

// Number returns the C++ master's error number, for example -704.
func (k Kind) Number() int32 { return k.row().number }

// Code returns the gRPC status code that fits the kind.
func (k Kind) Code() codes.Code { return k.row().code }

// Retryable reports whether the same call may succeed later although nothing
// is wrong with it. It says nothing about whether the call was applied.
func (k Kind) Retryable() bool { return k.row().retry }

// FromNumber returns the kind that has the C++ master's error number n.
func FromNumber(n int32) (Kind, bool) { return find(func(r row) bool { return r.number == n }) }

// FromName returns the kind that has the C++ master's name, as String returns it.
func FromName(name string) (Kind, bool) { return find(func(r row) bool { return r.name == name }) }

func find(is func(row) bool) (Kind, bool) {
	if k := slices.IndexFunc(table[:], is); k >= 0 {
		return Kind(k), true
	}
	return Internal, false
}

// An Error is a failed operation: what kind of failure, in which operation,
// and what a person should know or do about it.
type Error struct {
	Kind   Kind
	Op     string // the operation, for example "PutStart" or "journal.commit"
	Detail string // for people: what is wrong and what to do; may be empty
	Err    error  // the cause; may be nil
}

// Error returns "op: KIND: detail: cause", leaving out what is empty.
func (e *Error) Error() string {
	s := e.Kind.String()
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives errors.Is and errors.As both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// New returns an error of a kind, in an operation, with a formatted detail.
func New(kind Kind, op, format string, args ...any) error {
	return &Error{Kind: kind, Op: op, Detail: fmt.Sprintf(format, args...)}
}

// Wrap returns err as an error of a kind in an operation; nil stays nil.
func Wrap(kind Kind, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: kind, Op: op, Err: err}
}

// KindOf returns the kind of an error: the outermost Kind or *Error in its
// chain, Unresolved for an ended context, Internal for anything else, and OK
// for nil.
func KindOf(err error) Kind {
	if err == nil {
		return OK
	}
	if k, ok := err.(Kind); ok { //nolint:errorlint // the fast path of hot calls
		return k
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if k, ok := errors.AsType[Kind](err); ok {
		return k
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Unresolved
	}
	return Internal
}
