package mooncakeclient

import (
	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/rpcerr"
	"github.com/understudy-store/understudy/metadata"
)

// A method makes one call of the contract.
type method func(a *attempt, req, resp any) error

// methods has the calls of the contract that Mooncake has too, by gRPC's names.
var methods = map[string]method{
	pb.ObjectService_ExistKey_FullMethodName:              as(existKey),
	pb.ObjectService_BatchExistKey_FullMethodName:         as(batchExistKey),
	pb.ObjectService_GetReplicaList_FullMethodName:        as(getReplicaList),
	pb.ObjectService_BatchGetReplicaList_FullMethodName:   as(batchGetReplicaList),
	pb.ObjectService_GetReplicaListByRegex_FullMethodName: as(getReplicaListByRegex),
	pb.ObjectService_PutStart_FullMethodName:              as(putStart),
	pb.ObjectService_BatchPutStart_FullMethodName:         as(batchPutStart),
	pb.ObjectService_PutEnd_FullMethodName:                as(putEnd),
	pb.ObjectService_BatchPutEnd_FullMethodName:           as(batchPutEnd),
	pb.ObjectService_PutRevoke_FullMethodName:             as(putRevoke),
	pb.ObjectService_BatchPutRevoke_FullMethodName:        as(batchPutRevoke),
	pb.ObjectService_Remove_FullMethodName:                as(remove),
	pb.ObjectService_BatchRemove_FullMethodName:           as(batchRemove),
	pb.ObjectService_RemoveByRegex_FullMethodName:         as(removeByRegex),
	pb.ObjectService_RemoveAll_FullMethodName:             as(removeAll),
	pb.ObjectService_BatchReplicaClear_FullMethodName:     as(batchReplicaClear),

	pb.ClientService_ServiceReady_FullMethodName:           as(serviceReady),
	pb.ClientService_Ping_FullMethodName:                   as(ping),
	pb.ClientService_MountSegment_FullMethodName:           as(mountSegment),
	pb.ClientService_ReMountSegment_FullMethodName:         as(reMountSegment),
	pb.ClientService_UnmountSegment_FullMethodName:         as(unmountSegment),
	pb.ClientService_BatchQueryIp_FullMethodName:           as(batchQueryIP),
	pb.ClientService_GetFsdir_FullMethodName:               as(getFsdir),
	pb.ClientService_GetStorageConfig_FullMethodName:       as(getStorageConfig),
	pb.ClientService_MountLocalDiskSegment_FullMethodName:  as(mountLocalDisk),
	pb.ClientService_OffloadObjectHeartbeat_FullMethodName: as(offloadObjectHeartbeat),
	pb.ClientService_NotifyOffloadSuccess_FullMethodName:   as(notifyOffloadSuccess),
}

func as[Q, P any](f func(a *attempt, q *Q, p *P) error) method {
	return func(a *attempt, req, resp any) error { return f(a, req.(*Q), resp.(*P)) }
}

// tenantOf is a tenant as Mooncake writes it.
func tenantOf(q interface{ GetTenant() string }) string {
	if t := q.GetTenant(); t != "" {
		return t
	}
	return metadata.DefaultTenant
}

// ownTenant refuses a request about another tenant than the default one where it
// cannot name it: it would be about the keys of the default one.
func (c *caller) ownTenant(req any, says bool) error {
	if q, ok := req.(interface{ GetTenant() string }); ok && !says && tenantOf(q) != metadata.DefaultTenant {
		return c.cannotSay("whose keys a call is about, which is the tenant")
	}
	return nil
}

// idOf reads a UUID.
func idOf[T ~[16]byte](what, text string) (T, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return T{}, errs.New(errs.InvalidParams, "", "the %s is %q, which is no UUID", what, text)
	}
	return T(id), nil
}

// itemErrors lists the failures of a batch, which must have an answer for each
// of n items.
func itemErrors[T any](results []mooncake.Result[T], n int) ([]*pb.ItemError, error) {
	if len(results) != n {
		return nil, errNotWhole(len(results), n)
	}
	var items []*pb.ItemError
	for i := range results {
		if number := results[i].Failure; number != 0 {
			items = append(items, &pb.ItemError{Index: uint32(i), Kind: rpcerr.ToWire(kindOf(number))})
		}
	}
	return items, nil
}
