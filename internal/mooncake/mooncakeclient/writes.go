package mooncakeclient

import (
	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

var softPins = map[pb.SoftPinAction]uint8{
	pb.SoftPinAction_SOFT_PIN_ACTION_UNSPECIFIED: mooncake.SoftPinPreserve,
	pb.SoftPinAction_SOFT_PIN_ACTION_PRESERVE:    mooncake.SoftPinPreserve,
	pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE:      mooncake.SoftPinEnable,
	pb.SoftPinAction_SOFT_PIN_ACTION_DISABLE:     mooncake.SoftPinDisable,
}

// configOf translates how objects are to be put, each into its group. Two
// settings are not told in generations that do not have them, as nobody notices:
// that an object is not to be pinned softly, which is how new ones are, and the
// writer's host, which the master does not use.
func (c *caller) configOf(how *pb.PutConfig, groups []string) (mooncake.ReplicateConfig, error) {
	config := mooncake.ReplicateConfig{
		Replicas: 1, SoftPin: softPins[how.GetSoftPinAction()], HardPin: how.GetHardPin(), Preferred: how.GetPreferredSegments(),
		PreferSameNode: how.GetPreferAllocInSameNode(), DataType: uint8(how.GetDataType()), HostID: how.GetHostId(),
	}
	if how != nil && how.ReplicaNum != nil {
		config.Replicas = uint64(*how.ReplicaNum)
	}
	if how != nil {
		config.SoftPinMillis = how.SoftPinTtlMs
	}
	for _, g := range groups {
		if g != "" {
			config.Groups = &groups
		}
	}
	switch says := c.generation.Says; {
	case config.SoftPinMillis != nil && !says.SoftPinTTL:
		return config, c.cannotSay("how long an object is pinned softly, which is soft_pin_ttl_ms")
	case config.Groups != nil && !says.Groups:
		return config, c.cannotSay("the group of an object, which is in group_ids")
	}
	return config, nil
}

func putStart(a *attempt, q *pb.PutStartRequest, p *pb.PutStartResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	config, err := a.configOf(q.GetConfig(), []string{q.GetGroupId()})
	if err != nil {
		return err
	}
	var r mooncake.Result[mooncake.Placement]
	args := mooncake.PutStartArgs{Client: client, Key: q.GetKey(), Size: q.GetSize(), Config: config, Tenant: tenantOf(q)}
	if err := do(a, a.generation.PutStart, &args, &r); err != nil {
		return err
	}
	p.Object = placementOf(&r.Value)
	return failed(r.Failure)
}

func batchPutStart(a *attempt, q *pb.BatchPutStartRequest, p *pb.BatchPutStartResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	args := mooncake.BatchPutStartArgs{Client: client, Tenant: tenantOf(q)}
	var groups []string
	for _, it := range q.GetItems() {
		args.Keys, args.Sizes, groups = append(args.Keys, it.GetKey()), append(args.Sizes, it.GetSize()), append(groups, it.GetGroupId())
	}
	if args.Config, err = a.configOf(q.GetConfig(), groups); err != nil {
		return err
	}
	var r []mooncake.Result[mooncake.Placement]
	if err := do(a, a.generation.BatchPutStart, &args, &r); err != nil {
		return err
	}
	p.Objects = make([]*pb.ReplicaList, len(r))
	for i := range r {
		if p.Objects[i] = new(pb.ReplicaList); r[i].Failure == 0 {
			p.Objects[i] = placementOf(&r[i].Value)
		}
	}
	p.Errors, err = itemErrors(r, len(args.Keys))
	return err
}

// placementOf translates a reservation.
func placementOf(p *mooncake.Placement) *pb.ReplicaList {
	return listOf(&metadata.ReplicaList{ID: p.ID, Replicas: p.Replicas})
}

// kindOfReplicas translates a selector.
func kindOfReplicas(s pb.ReplicaSelector) (int32, error) {
	switch s {
	case pb.ReplicaSelector_REPLICA_SELECTOR_UNSPECIFIED, pb.ReplicaSelector_REPLICA_SELECTOR_ALL:
		return mooncake.ReplicaAll, nil
	case pb.ReplicaSelector_REPLICA_SELECTOR_MEMORY:
		return mooncake.ReplicaMemory, nil
	case pb.ReplicaSelector_REPLICA_SELECTOR_DISK:
		return mooncake.ReplicaDisk, nil
	case pb.ReplicaSelector_REPLICA_SELECTOR_LOCAL_DISK:
		return mooncake.ReplicaLocalDisk, nil
	default:
		return 0, errs.New(errs.InvalidParams, "", "the selector %d is not known", s)
	}
}

// writerOf reads whose puts a request is about, and which of their replicas.
func writerOf(q interface {
	GetClientId() string
	GetSelector() pb.ReplicaSelector
}) (client segment.ClientID, kind int32, err error) {
	if client, err = idOf[segment.ClientID]("client_id", q.GetClientId()); err == nil {
		kind, err = kindOfReplicas(q.GetSelector())
	}
	return client, kind, err
}

// itemOf names an object that was put.
func (c *caller) itemOf(key string, checksum *uint64) (mooncake.PutItem, error) {
	if checksum != nil && !c.generation.Says.Checksums {
		return mooncake.PutItem{}, c.cannotSay("the checksum of an object, which is object_checksum")
	}
	return mooncake.PutItem{Key: key, Checksum: checksum}, nil
}

func putEnd(a *attempt, q *pb.PutEndRequest, _ *pb.PutEndResponse) error {
	client, kind, err := writerOf(q)
	if err != nil {
		return err
	}
	item, err := a.itemOf(q.GetKey(), q.ObjectChecksum)
	if err != nil {
		return err
	}
	args := mooncake.PutEndArgs{Client: client, Item: item, Kind: kind, Tenant: tenantOf(q)}
	return done(a, a.generation.PutEnd, &args)
}

func batchPutEnd(a *attempt, q *pb.BatchPutEndRequest, p *pb.BatchPutEndResponse) error {
	client, kind, err := writerOf(q)
	if err != nil {
		return err
	}
	args := mooncake.BatchPutEndArgs{Client: client, Kind: kind, Tenant: tenantOf(q)}
	for _, it := range q.GetItems() {
		item, err := a.itemOf(it.GetKey(), it.ObjectChecksum)
		if err != nil {
			return err
		}
		args.Items = append(args.Items, item)
	}
	p.Succeeded, p.Errors, err = doneAll(a, a.generation.BatchPutEnd, &args, len(args.Items))
	return err
}

func putRevoke(a *attempt, q *pb.PutRevokeRequest, _ *pb.PutRevokeResponse) error {
	client, kind, err := writerOf(q)
	if err != nil {
		return err
	}
	args := mooncake.PutRevokeArgs{Client: client, Key: q.GetKey(), Kind: kind, Tenant: tenantOf(q)}
	return done(a, a.generation.PutRevoke, &args)
}

func batchPutRevoke(a *attempt, q *pb.BatchPutRevokeRequest, p *pb.BatchPutRevokeResponse) error {
	client, kind, err := writerOf(q)
	if err != nil {
		return err
	}
	args := mooncake.BatchPutRevokeArgs{Client: client, Kind: kind, Tenant: tenantOf(q)}
	for _, it := range q.GetItems() {
		args.Keys = append(args.Keys, it.GetKey())
	}
	p.Succeeded, p.Errors, err = doneAll(a, a.generation.BatchPutRevoke, &args, len(args.Keys))
	return err
}

func remove(a *attempt, q *pb.RemoveRequest, _ *pb.RemoveResponse) error {
	return done(a, a.generation.Remove, &mooncake.RemoveArgs{Key: q.GetKey(), Force: q.GetForce(), Tenant: tenantOf(q)})
}

// batchRemove fails in generations that do not have it.
func batchRemove(a *attempt, q *pb.BatchRemoveRequest, p *pb.BatchRemoveResponse) (err error) {
	args := mooncake.BatchRemoveArgs{Keys: q.GetKeys(), Force: q.GetForce(), Tenant: tenantOf(q)}
	p.Succeeded, p.Errors, err = doneAll(a, a.generation.BatchRemove, &args, len(args.Keys))
	return err
}

func removeByRegex(a *attempt, q *pb.RemoveByRegexRequest, p *pb.RemoveByRegexResponse) error {
	var r mooncake.Result[int64]
	args := mooncake.RemoveArgs{Key: q.GetRegex(), Force: q.GetForce(), Tenant: tenantOf(q)}
	if err := do(a, a.generation.RemoveByRegex, &args, &r); err != nil {
		return err
	}
	p.Removed = uint64(r.Value)
	return failed(r.Failure)
}

func removeAll(a *attempt, q *pb.RemoveAllRequest, p *pb.RemoveAllResponse) error {
	if q.GetAllTenants() {
		return needsGRPC("RemoveAll of all tenants")
	}
	var removed int64 // there is no other answer
	if err := do(a, a.generation.RemoveAll, &mooncake.RemoveAllArgs{Force: q.GetForce(), Tenant: tenantOf(q)}, &removed); err != nil {
		return err
	}
	p.Removed = uint64(removed)
	return nil
}

// batchReplicaClear finds out by their keys which items were cleared; of equal
// ones the first.
func batchReplicaClear(a *attempt, q *pb.BatchReplicaClearRequest, p *pb.BatchReplicaClearResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	if err := a.ownTenant(q, false); err != nil { // in no generation
		return err
	}
	var r mooncake.Result[[]string]
	args := mooncake.ClearArgs{Keys: q.GetKeys(), Client: client, Segment: q.GetSegmentName()}
	if err := do(a, a.generation.BatchReplicaClear, &args, &r); err != nil {
		return err
	}
	cleared := make(map[string]int, len(r.Value))
	for _, key := range r.Value {
		cleared[key]++
	}
	for i, key := range q.GetKeys() {
		if cleared[key] > 0 {
			cleared[key]--
			p.Cleared = append(p.Cleared, uint32(i))
		}
	}
	return failed(r.Failure)
}

// done makes a call that returns nothing.
func done[A any](a *attempt, call mooncake.Call[A, mooncake.Done], args *A) error {
	var r mooncake.Done
	if err := do(a, call, args, &r); err != nil {
		return err
	}
	return failed(r.Failure)
}

// doneAll makes a call that returns nothing for each of n items.
func doneAll[A any](a *attempt, call mooncake.Call[A, []mooncake.Done], args *A, n int) (succeeded uint32, items []*pb.ItemError, err error) {
	var r []mooncake.Done
	if err := do(a, call, args, &r); err != nil {
		return 0, nil, err
	}
	if items, err = itemErrors(r, n); err != nil {
		return 0, nil, err
	}
	return uint32(n - len(items)), items, nil
}
