package mooncakeclient

import (
	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
)

var softPins = map[pb.SoftPinAction]uint8{
	pb.SoftPinAction_SOFT_PIN_ACTION_UNSPECIFIED: mooncake.SoftPinPreserve,
	pb.SoftPinAction_SOFT_PIN_ACTION_PRESERVE:    mooncake.SoftPinPreserve,
	pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE:      mooncake.SoftPinEnable,
	pb.SoftPinAction_SOFT_PIN_ACTION_DISABLE:     mooncake.SoftPinDisable,
}

// configOf translates how objects are to be put, each into its group. Two settings
// are left out without an error in generations that do not have them: that an object
// is not to be pinned softly, as new ones are not; and the writer's host, for which
// the master then takes the one where the writer has mounted memory.
func (c *caller) configOf(how *pb.PutConfig, groups ...string) (mooncake.ReplicateConfig, error) {
	pin, known := softPins[how.GetSoftPinAction()]
	config := mooncake.ReplicateConfig{
		Replicas: 1, SoftPin: pin, HardPin: how.GetHardPin(), Preferred: how.GetPreferredSegments(),
		PreferSameNode: how.GetPreferAllocInSameNode(), DataType: uint8(how.GetDataType()), HostID: how.GetHostId(),
	}
	if how != nil {
		config.SoftPinMillis = how.SoftPinTtlMs
	}
	if how != nil && how.ReplicaNum != nil {
		config.Replicas = uint64(*how.ReplicaNum)
	}
	for _, g := range groups {
		if g != "" {
			config.Groups = &groups
		}
	}
	switch fields := c.generation.Fields; {
	case !known:
		return config, errs.New(errs.InvalidParams, "", "the soft pin action %d is not known", how.GetSoftPinAction())
	case config.SoftPinMillis != nil && !fields.SoftPinTTL:
		return config, c.lacksField("how long an object is pinned softly (soft_pin_ttl_ms)")
	case config.Groups != nil && !fields.Groups:
		return config, c.lacksField("the group of an object (group_ids)")
	}
	return config, nil
}

func putStart(a *attempt, q *pb.PutStartRequest, p *pb.PutStartResponse) (err error) {
	a.args.Size = q.GetSize()
	if a.args.Config, err = a.configOf(q.GetConfig(), q.GetGroupId()); err != nil {
		return err
	}
	start := a.generation.PutStart
	if q.GetConfig().GetUpsert() {
		start = a.generation.UpsertStart
	}
	put, err := ask(a, start)
	p.Object = listOf(put.ID, nil, put.Replicas)
	return err
}

func batchPutStart(a *attempt, q *pb.BatchPutStartRequest, p *pb.BatchPutStartResponse) (err error) {
	var groups []string
	for _, it := range q.GetItems() {
		a.args.Keys, a.args.Sizes, groups = append(a.args.Keys, it.GetKey()), append(a.args.Sizes, it.GetSize()), append(groups, it.GetGroupId())
	}
	if a.args.Config, err = a.configOf(q.GetConfig(), groups...); err != nil {
		return err
	}
	start := a.generation.BatchPutStart
	if q.GetConfig().GetUpsert() {
		start = a.generation.BatchUpsertStart
	}
	p.Objects = noLists(len(groups))
	p.Errors, err = askAll(a, start, len(groups), func(i int, put *mooncake.ObjectReplicas) {
		p.Objects[i] = listOf(put.ID, nil, put.Replicas)
	})
	return err
}

// itemOf names an object that was put.
func (c *caller) itemOf(key string, checksum *uint64) (mooncake.PutItem, error) {
	if checksum != nil && !c.generation.Fields.Checksums {
		return mooncake.PutItem{}, c.lacksField("the checksum of an object (object_checksum)")
	}
	return mooncake.PutItem{Key: key, Checksum: checksum}, nil
}

func putEnd(a *attempt, q *pb.PutEndRequest, _ *pb.PutEndResponse) (err error) {
	if a.args.Item, err = a.itemOf(q.GetKey(), q.ObjectChecksum); err != nil {
		return err
	}
	_, err = ask(a, a.generation.PutEnd)
	return err
}

func batchPutEnd(a *attempt, q *pb.BatchPutEndRequest, p *pb.BatchPutEndResponse) (err error) {
	for _, it := range q.GetItems() {
		item, err := a.itemOf(it.GetKey(), it.ObjectChecksum)
		if err != nil {
			return err
		}
		a.args.Items = append(a.args.Items, item)
	}
	p.Succeeded, p.Errors, err = doAll(a, a.generation.BatchPutEnd, len(a.args.Items))
	return err
}

func batchPutRevoke(a *attempt, q *pb.BatchPutRevokeRequest, p *pb.BatchPutRevokeResponse) (err error) {
	for _, it := range q.GetItems() {
		a.args.Keys = append(a.args.Keys, it.GetKey())
	}
	p.Succeeded, p.Errors, err = doAll(a, a.generation.BatchPutRevoke, len(a.args.Keys))
	return err
}

// batchRemove fails in generations that do not have it.
func batchRemove(a *attempt, q *pb.BatchRemoveRequest, p *pb.BatchRemoveResponse) (err error) {
	p.Succeeded, p.Errors, err = doAll(a, a.generation.BatchRemove, len(q.GetKeys()))
	return err
}

func removeByRegex(a *attempt, q *pb.RemoveByRegexRequest, p *pb.RemoveByRegexResponse) error {
	a.args.Key = q.GetRegex()
	removed, err := ask(a, a.generation.RemoveByRegex)
	p.Removed = uint64(removed)
	return err
}

func removeAll(a *attempt, q *pb.RemoveAllRequest, p *pb.RemoveAllResponse) error {
	if q.GetAllTenants() {
		return needsGRPC("RemoveAll of all tenants")
	}
	var removed int64 // there is no other answer
	err := do(a, a.generation.RemoveAll, &removed)
	p.Removed = uint64(removed)
	return err
}

// batchReplicaClear finds out by their keys which items were cleared. Of items with
// equal keys it takes the first.
func batchReplicaClear(a *attempt, q *pb.BatchReplicaClearRequest, p *pb.BatchReplicaClearResponse) error {
	if err := a.ownTenant(q, false); err != nil { // in no generation
		return err
	}
	a.args.SegmentName = q.GetSegmentName()
	keys, err := ask(a, a.generation.BatchReplicaClear)
	cleared := make(map[string]int, len(keys))
	for _, key := range keys {
		cleared[key]++
	}
	for i, key := range q.GetKeys() {
		if cleared[key] > 0 {
			cleared[key]--
			p.Cleared = append(p.Cleared, uint32(i))
		}
	}
	return err
}
