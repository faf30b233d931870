package mooncakeclient

import (
	"fmt"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
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
	pb.ObjectService_PutRevoke_FullMethodName:             plain(func(g *mooncake.Generation) mooncake.Call[mooncake.Done] { return g.PutRevoke }),
	pb.ObjectService_BatchPutRevoke_FullMethodName:        as(batchPutRevoke),
	pb.ObjectService_Remove_FullMethodName:                plain(func(g *mooncake.Generation) mooncake.Call[mooncake.Done] { return g.Remove }),
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
	pb.ClientService_MountLocalDiskSegment_FullMethodName:  plain(func(g *mooncake.Generation) mooncake.Call[mooncake.Done] { return g.MountLocalDisk }),
	pb.ClientService_OffloadObjectHeartbeat_FullMethodName: as(offloadObjectHeartbeat),
	pb.ClientService_NotifyOffloadSuccess_FullMethodName:   as(notifyOffloadSuccess),
}

func as[Q, P any](f func(a *attempt, q *Q, p *P) error) method {
	return func(a *attempt, req, resp any) error { return f(a, req.(*Q), resp.(*P)) }
}

// plain is the method of a call whose arguments readArgs reads, and which returns
// nothing.
func plain(call func(*mooncake.Generation) mooncake.Call[mooncake.Done]) method {
	return func(a *attempt, _, _ any) error {
		_, err := ask(a, call(a.generation))
		return err
	}
}

// readArgs reads the arguments that many calls have in common. It refuses a request
// for another tenant than the default one if the generation's messages cannot name
// it: the call would be about the keys of the default one.
func (a *attempt) readArgs(req any) (err error) {
	a.args.Tenant = tenantOf(req)
	if q, ok := req.(interface{ GetClientId() string }); ok {
		if a.args.Client, err = idOf[segment.ClientID]("client_id", q.GetClientId()); err != nil {
			return err
		}
	}
	if q, ok := req.(interface{ GetKey() string }); ok {
		a.args.Key = q.GetKey()
	}
	if q, ok := req.(interface{ GetKeys() []string }); ok {
		a.args.Keys = q.GetKeys()
	}
	if q, ok := req.(interface{ GetForce() bool }); ok {
		a.args.Force = q.GetForce()
	}
	if q, ok := req.(interface{ GetEnableOffloading() bool }); ok {
		a.args.Offloading = q.GetEnableOffloading()
	}
	if q, ok := req.(interface{ GetSelector() pb.ReplicaSelector }); ok {
		if a.args.Kind, ok = kinds[q.GetSelector()]; !ok {
			return errs.New(errs.InvalidParams, "", "the selector %d is not known", q.GetSelector())
		}
	}
	return a.ownTenant(req, a.generation.Fields.Tenants)
}

var kinds = map[pb.ReplicaSelector]int32{
	pb.ReplicaSelector_REPLICA_SELECTOR_UNSPECIFIED: mooncake.ReplicaAll,
	pb.ReplicaSelector_REPLICA_SELECTOR_ALL:         mooncake.ReplicaAll,
	pb.ReplicaSelector_REPLICA_SELECTOR_MEMORY:      mooncake.ReplicaMemory,
	pb.ReplicaSelector_REPLICA_SELECTOR_DISK:        mooncake.ReplicaDisk,
	pb.ReplicaSelector_REPLICA_SELECTOR_LOCAL_DISK:  mooncake.ReplicaLocalDisk,
}

// tenantOf is the tenant that a message names, as Mooncake writes it.
func tenantOf(message any) string {
	if m, ok := message.(interface{ GetTenant() string }); ok && m.GetTenant() != "" {
		return m.GetTenant()
	}
	return metadata.DefaultTenant
}

func (a *attempt) ownTenant(message any, hasField bool) error {
	if !hasField && tenantOf(message) != metadata.DefaultTenant {
		return a.lacksField("the tenant")
	}
	return nil
}

func idOf[T ~[16]byte](what, text string) (T, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return T{}, errs.New(errs.InvalidParams, "", "the %s is %q, which is no UUID", what, text)
	}
	return T(id), nil
}

func ask[V any](a *attempt, call mooncake.Call[mooncake.Result[V]]) (V, error) {
	var r mooncake.Result[V]
	if err := do(a, call, &r); err != nil {
		return r.Value, err
	}
	if r.Failure != 0 {
		return r.Value, refusal(r.Failure)
	}
	return r.Value, nil
}

// askAll makes a batch call, which must have a result for each of n items. take
// gets the values of those that did not fail, whose errors are listed.
func askAll[V any](a *attempt, call mooncake.Call[[]mooncake.Result[V]], n int, take func(i int, v *V)) ([]*pb.ItemError, error) {
	var r []mooncake.Result[V]
	if err := do(a, call, &r); err != nil {
		return nil, err
	}
	if len(r) != n { // what came of the call is open then
		return nil, fmt.Errorf("the answer is about %d items, and the request was about %d", len(r), n)
	}
	var items []*pb.ItemError
	for i := range r {
		if number := r[i].Failure; number != 0 {
			items = append(items, &pb.ItemError{Index: uint32(i), Kind: rpcerr.ToWire(kindOf(number))})
		} else if take != nil {
			take(i, &r[i].Value)
		}
	}
	return items, nil
}

// doAll makes a batch call that returns nothing.
func doAll(a *attempt, call mooncake.Call[[]mooncake.Done], n int) (succeeded uint32, items []*pb.ItemError, err error) {
	if items, err = askAll(a, call, n, nil); err != nil {
		return 0, nil, err
	}
	return uint32(n - len(items)), items, nil
}
