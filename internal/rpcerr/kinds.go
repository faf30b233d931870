package rpcerr

import (
	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// wire is the table of kinds. The names are the same on both sides; the
// numbers are each side's own.
var wire = [...]pb.Kind{
	errs.Internal:            pb.Kind_KIND_INTERNAL_ERROR,
	errs.SegmentNotFound:     pb.Kind_KIND_SEGMENT_NOT_FOUND,
	errs.SegmentExists:       pb.Kind_KIND_SEGMENT_ALREADY_EXISTS,
	errs.ClientNotFound:      pb.Kind_KIND_CLIENT_NOT_FOUND,
	errs.NoAvailableHandle:   pb.Kind_KIND_NO_AVAILABLE_HANDLE,
	errs.InvalidVersion:      pb.Kind_KIND_INVALID_VERSION,
	errs.InvalidKey:          pb.Kind_KIND_INVALID_KEY,
	errs.InvalidParams:       pb.Kind_KIND_INVALID_PARAMS,
	errs.IllegalClient:       pb.Kind_KIND_ILLEGAL_CLIENT,
	errs.InvalidWrite:        pb.Kind_KIND_INVALID_WRITE,
	errs.InvalidReplica:      pb.Kind_KIND_INVALID_REPLICA,
	errs.ReplicaNotReady:     pb.Kind_KIND_REPLICA_IS_NOT_READY,
	errs.ObjectNotFound:      pb.Kind_KIND_OBJECT_NOT_FOUND,
	errs.ObjectExists:        pb.Kind_KIND_OBJECT_ALREADY_EXISTS,
	errs.ObjectHasLease:      pb.Kind_KIND_OBJECT_HAS_LEASE,
	errs.ObjectHasTask:       pb.Kind_KIND_OBJECT_HAS_REPLICATION_TASK,
	errs.ObjectNoTask:        pb.Kind_KIND_OBJECT_NO_REPLICATION_TASK,
	errs.ReplicaNotFound:     pb.Kind_KIND_REPLICA_NOT_FOUND,
	errs.ReplicaExists:       pb.Kind_KIND_REPLICA_ALREADY_EXISTS,
	errs.ReplicaGone:         pb.Kind_KIND_REPLICA_IS_GONE,
	errs.ReplicaBusy:         pb.Kind_KIND_OBJECT_REPLICA_BUSY,
	errs.TaskNotFound:        pb.Kind_KIND_TASK_NOT_FOUND,
	errs.TaskLimit:           pb.Kind_KIND_TASK_PENDING_LIMIT_EXCEEDED,
	errs.Unavailable:         pb.Kind_KIND_UNAVAILABLE_IN_CURRENT_STATUS,
	errs.NotLeader:           pb.Kind_KIND_UNAVAILABLE_IN_CURRENT_MODE,
	errs.NotSupported:        pb.Kind_KIND_NOT_SUPPORTED,
	errs.TenantQuotaExceeded: pb.Kind_KIND_TENANT_QUOTA_EXCEEDED,
	errs.TenantNotRegistered: pb.Kind_KIND_TENANT_NOT_REGISTERED,
	errs.TenantNotEmpty:      pb.Kind_KIND_TENANT_NOT_EMPTY,
	errs.Unresolved:          pb.Kind_KIND_RPC_TIMEOUT,
}

// ToWire returns a kind as the contract has it: KIND_INTERNAL_ERROR for one
// that is not an error, or not known.
func ToWire(kind errs.Kind) pb.Kind {
	if int(kind) >= len(wire) || wire[kind] == pb.Kind_KIND_UNSPECIFIED {
		return pb.Kind_KIND_INTERNAL_ERROR
	}
	return wire[kind]
}

// FromWire returns the kind that the contract's stands for: Internal for one
// that is not known.
func FromWire(kind pb.Kind) errs.Kind {
	for k, w := range wire {
		if w == kind && kind != pb.Kind_KIND_UNSPECIFIED {
			return errs.Kind(k)
		}
	}
	return errs.Internal
}
