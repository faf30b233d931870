package client

import (
	"path"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// A repeatability says when a call may be made again although an attempt may
// have been applied.
type repeatability uint8

const (
	// always: the call changes nothing.
	always repeatability = iota
	// sameTwice: a repeat does nothing that the first attempt has not done, if it has the
	// same request id, or over a transport without them.
	sameTwice
	// byRequestID: nodes know a repeat by its request id alone, and answer as they
	// did the first time.
	byRequestID
	// never: a repeat might change something else.
	never
)

// An operation is a call of the contract.
type operation struct {
	name   string // for people, for example "PutStart"
	method string // gRPC's full name
	repeat repeatability
}

func op(method string, repeat repeatability) operation {
	return operation{name: path.Base(method), method: method, repeat: repeat}
}

func (o operation) mutates() bool { return o.repeat != always }

func (o operation) over(t Transport) operation {
	return o.unless(o.repeat != byRequestID || t.RequestIDs())
}

// unless returns the operation, but not to be repeated unless a condition holds.
func (o operation) unless(condition bool) operation {
	if !condition {
		o.repeat = never
	}
	return o
}

// The operations. common.proto says what can be repeated, under "Repeating calls"; it
// does not list the last two local disk calls.
//
// BatchReplicaClear is never repeated: nodes do not remember it by its request id, and
// would answer a repeat with the keys that the first attempt left.
var (
	opExistKey              = op(pb.ObjectService_ExistKey_FullMethodName, always)
	opBatchExistKey         = op(pb.ObjectService_BatchExistKey_FullMethodName, always)
	opGetReplicaList        = op(pb.ObjectService_GetReplicaList_FullMethodName, always)
	opBatchGetReplicaList   = op(pb.ObjectService_BatchGetReplicaList_FullMethodName, always)
	opGetReplicaListByRegex = op(pb.ObjectService_GetReplicaListByRegex_FullMethodName, always)

	opKvEvents = op(pb.ObjectService_KvEvents_FullMethodName, always)

	opPutStart       = op(pb.ObjectService_PutStart_FullMethodName, byRequestID)
	opPutEnd         = op(pb.ObjectService_PutEnd_FullMethodName, sameTwice)
	opPutRevoke      = op(pb.ObjectService_PutRevoke_FullMethodName, byRequestID)
	opBatchPutStart  = op(pb.ObjectService_BatchPutStart_FullMethodName, byRequestID)
	opBatchPutEnd    = op(pb.ObjectService_BatchPutEnd_FullMethodName, sameTwice)
	opBatchPutRevoke = op(pb.ObjectService_BatchPutRevoke_FullMethodName, byRequestID)

	opRemove            = op(pb.ObjectService_Remove_FullMethodName, byRequestID)
	opBatchRemove       = op(pb.ObjectService_BatchRemove_FullMethodName, byRequestID)
	opRemoveByRegex     = op(pb.ObjectService_RemoveByRegex_FullMethodName, never)
	opRemoveAll         = op(pb.ObjectService_RemoveAll_FullMethodName, never)
	opBatchReplicaClear = op(pb.ObjectService_BatchReplicaClear_FullMethodName, never)

	opServiceReady     = op(pb.ClientService_ServiceReady_FullMethodName, always)
	opPing             = op(pb.ClientService_Ping_FullMethodName, always)
	opMountSegment     = op(pb.ClientService_MountSegment_FullMethodName, sameTwice)
	opReMountSegment   = op(pb.ClientService_ReMountSegment_FullMethodName, sameTwice)
	opUnmountSegment   = op(pb.ClientService_UnmountSegment_FullMethodName, sameTwice)
	opBatchQueryIP     = op(pb.ClientService_BatchQueryIp_FullMethodName, always)
	opGetFsdir         = op(pb.ClientService_GetFsdir_FullMethodName, always)
	opGetStorageConfig = op(pb.ClientService_GetStorageConfig_FullMethodName, always)

	opMountLocalDiskSegment  = op(pb.ClientService_MountLocalDiskSegment_FullMethodName, sameTwice)
	opOffloadObjectHeartbeat = op(pb.ClientService_OffloadObjectHeartbeat_FullMethodName, never)
	opNotifyOffloadSuccess   = op(pb.ClientService_NotifyOffloadSuccess_FullMethodName, never)
)
