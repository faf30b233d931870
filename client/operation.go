package client

import (
	"path"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// A repeatability says when a call may be made again although an attempt may
// have been applied.
type repeatability uint8

const (
	// always: the contract marks the call NO_SIDE_EFFECTS or IDEMPOTENT.
	always repeatability = iota
	// withRequestID: a repeat with the same request id gets the first answer.
	withRequestID
	// never: a repeat might change something else.
	never
)

// An operation is a call of the contract.
type operation struct {
	name   string // for people, for example "PutStart"
	method string // gRPC's full name
	repeat repeatability
	// unsafeWithoutID says that a repeat is safe by nothing but its request id.
	unsafeWithoutID bool
}

func op(method string, repeat repeatability) operation {
	return operation{name: path.Base(method), method: method, repeat: repeat}
}

// onlyByID is an operation whose repeat is known by its request id alone.
func onlyByID(method string) operation {
	o := op(method, withRequestID)
	o.unsafeWithoutID = true
	return o
}

// mutates reports whether the call changes anything.
func (o operation) mutates() bool { return o.repeat != always }

// over returns the operation as it is over a transport.
func (o operation) over(t Transport) operation { return o.unless(!o.unsafeWithoutID || t.RequestIDs()) }

// unless returns the operation, but not to be repeated unless a condition holds.
func (o operation) unless(condition bool) operation {
	if !condition {
		o.repeat = never
	}
	return o
}

// The operations. What is withRequestID stands in common.proto, "Repeating
// calls"; the other two local disk calls are not listed there.
//
// BatchReplicaClear is, but a server that does not remember it by its request
// id would answer a repeat with the keys that the first attempt left.
var (
	opExistKey              = op(pb.ObjectService_ExistKey_FullMethodName, always)
	opBatchExistKey         = op(pb.ObjectService_BatchExistKey_FullMethodName, always)
	opGetReplicaList        = op(pb.ObjectService_GetReplicaList_FullMethodName, always)
	opBatchGetReplicaList   = op(pb.ObjectService_BatchGetReplicaList_FullMethodName, always)
	opGetReplicaListByRegex = op(pb.ObjectService_GetReplicaListByRegex_FullMethodName, always)

	opPutStart       = onlyByID(pb.ObjectService_PutStart_FullMethodName)
	opPutEnd         = op(pb.ObjectService_PutEnd_FullMethodName, withRequestID)
	opPutRevoke      = onlyByID(pb.ObjectService_PutRevoke_FullMethodName)
	opBatchPutStart  = onlyByID(pb.ObjectService_BatchPutStart_FullMethodName)
	opBatchPutEnd    = op(pb.ObjectService_BatchPutEnd_FullMethodName, withRequestID)
	opBatchPutRevoke = onlyByID(pb.ObjectService_BatchPutRevoke_FullMethodName)

	opRemove            = onlyByID(pb.ObjectService_Remove_FullMethodName)
	opBatchRemove       = onlyByID(pb.ObjectService_BatchRemove_FullMethodName)
	opRemoveByRegex     = op(pb.ObjectService_RemoveByRegex_FullMethodName, never)
	opRemoveAll         = op(pb.ObjectService_RemoveAll_FullMethodName, never)
	opBatchReplicaClear = op(pb.ObjectService_BatchReplicaClear_FullMethodName, never)

	opServiceReady     = op(pb.ClientService_ServiceReady_FullMethodName, always)
	opPing             = op(pb.ClientService_Ping_FullMethodName, always)
	opMountSegment     = op(pb.ClientService_MountSegment_FullMethodName, withRequestID)
	opReMountSegment   = op(pb.ClientService_ReMountSegment_FullMethodName, withRequestID)
	opUnmountSegment   = op(pb.ClientService_UnmountSegment_FullMethodName, withRequestID)
	opBatchQueryIP     = op(pb.ClientService_BatchQueryIp_FullMethodName, always)
	opGetFsdir         = op(pb.ClientService_GetFsdir_FullMethodName, always)
	opGetStorageConfig = op(pb.ClientService_GetStorageConfig_FullMethodName, always)

	opMountLocalDiskSegment  = op(pb.ClientService_MountLocalDiskSegment_FullMethodName, withRequestID)
	opOffloadObjectHeartbeat = op(pb.ClientService_OffloadObjectHeartbeat_FullMethodName, never)
	opNotifyOffloadSuccess   = op(pb.ClientService_NotifyOffloadSuccess_FullMethodName, never)
)
