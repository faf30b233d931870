package mooncakeserver

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// Puts on this protocol have no request ids. See service.PutRequest.Unnumbered for
// what a repeated PutStart gets.

func putStart(upsert bool) func(c call, a *args) (mooncake.ObjectReplicas, error) {
	return func(c call, a *args) (mooncake.ObjectReplicas, error) {
		p, items, err := c.putsOf(a, []string{a.Key}, []uint64{a.Size})
		if err != nil {
			return mooncake.ObjectReplicas{}, err
		}
		p.Config.Upsert = upsert
		got, err := c.master.PutStart(c, p, items[0])
		return c.reserved(items[0].Key, got, err), err
	}
}

func batchPutStart(upsert bool) func(c call, a *args) ([]mooncake.ObjectReplicas, []error, error) {
	return func(c call, a *args) ([]mooncake.ObjectReplicas, []error, error) {
		p, items, err := c.putsOf(a, a.Keys, a.Sizes)
		if err != nil {
			return nil, nil, err
		}
		p.Config.Upsert = upsert
		least := len(items) * min(p.Config.Replicas, metadata.MaxReplicas) * service.EntryBytes
		if err := c.unroomed("BatchPutStart", c.conn.Room(least)); err != nil {
			return nil, nil, err // before anything is reserved
		}
		got, failed, err := c.master.BatchPutStart(c, p, items)
		placed, before, bytes := make([]mooncake.ObjectReplicas, len(got)), len(c.puts), 0
		for i := range got {
			placed[i] = c.reserved(items[i].Key, got[i], failed[i])
			bytes += service.EntryBytes + service.ReplicaBytes(got[i].Replicas)
		}
		if refused := c.unroomed("BatchPutStart", c.conn.Room(bytes)); refused != nil {
			c.abandon(before)
			if upsert { // the old bytes of an object that others read are gone
				refused = errs.Wrap(errs.Unresolved, "BatchUpsertStart", refused)
			}
			return nil, nil, refused
		}
		return placed, failed, err
	}
}

// reserved translates a reservation, and keeps it until its answer is delivered: a
// client that has gone meanwhile will ask for the same key again, and gets it at
// once then.
func (c call) reserved(key string, r service.Reservation, err error) mooncake.ObjectReplicas {
	if err == nil {
		c.puts = append(c.puts, put{c.master, c.tenant, key, r.ID, math.MaxInt})
	}
	return mooncake.ObjectReplicas{ID: r.ID, Replicas: r.Replicas}
}

// putsOf reads what is to be put, and how; the service checks the rest.
func (c call) putsOf(a *args, keys []string, sizes []uint64) (service.PutRequest, []service.PutItem, error) {
	p := service.PutRequest{Tenant: c.tenant, Client: a.Client, Unnumbered: true, Peer: c.peer}
	if len(sizes) != len(keys) || a.Config.Groups != nil && len(*a.Config.Groups) != len(keys) {
		return p, nil, errs.New(errs.InvalidParams, "PutStart", "there must be as many sizes, and groups if any, as the %d keys", len(keys))
	}
	var err error
	if p.Config, err = configOf(&a.Config); err != nil {
		return p, nil, err
	}
	items := make([]service.PutItem, len(keys))
	for i, key := range keys {
		items[i] = service.PutItem{Key: strings.Clone(key), Size: sizes[i]}
		if a.Config.Groups != nil {
			items[i].Group = strings.Clone((*a.Config.Groups)[i])
		}
		if err := checkText(errs.InvalidKey, "a key or its group", items[i].Key, items[i].Group); err != nil {
			return p, nil, err
		}
	}
	return p, items, nil
}

func configOf(c *mooncake.ReplicateConfig) (service.PutConfig, error) {
	config := service.PutConfig{
		Replicas: int(min(c.Replicas, math.MaxInt32)), Preferred: c.Preferred, HardPin: c.HardPin, SameNode: c.PreferSameNode, DataType: c.DataType, HostID: c.HostID,
		Grouped: c.Groups != nil,
	}
	if c.PreferredOne != "" {
		config.Preferred = []string{c.PreferredOne}
	}
	switch { // a client that asks for such a replica needs its descriptor
	case c.NoF > 0:
		return config, errs.New(errs.InvalidParams, "PutStart", "nof_replica_num is %d; there are no NVMe-oF pools here, leave it at 0", c.NoF)
	case c.DFS > 0:
		return config, errs.New(errs.NotSupported, "PutStart", "dfs_replica_num is %d; there is no distributed file system here, leave it at 0", c.DFS)
	}
	switch c.SoftPin {
	case mooncake.SoftPinPreserve:
		config.SoftPin = service.SoftPinPreserve
	case mooncake.SoftPinEnable:
		config.SoftPin = service.SoftPinEnable
	case mooncake.SoftPinDisable:
		config.SoftPin = service.SoftPinDisable
	default:
		return config, errs.New(errs.InvalidParams, "PutStart", "soft_pin_action is %d; it is 0 to 2", c.SoftPin)
	}
	if c.SoftPinMillis != nil {
		ttl := time.Duration(min(*c.SoftPinMillis, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
		config.SoftPinTTL = &ttl
	}
	return config, nil
}

// checkText refuses what gRPC could not carry, which is UTF-8 only.
func checkText(kind errs.Kind, what string, texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return errs.New(kind, "", "%s is not UTF-8: %q", what, s)
		}
	}
	return nil
}

// update is a function about puts in progress.
func update[R any](serve func(c call, u service.UpdateRequest, a *args) (R, error)) func(c call, a *args) (R, error) {
	return func(c call, a *args) (r R, err error) {
		selector, known := selectors[a.Kind]
		if !known {
			return r, errs.New(errs.InvalidWrite, "PutEnd", "there are no replicas of type %d", a.Kind)
		}
		return serve(c, service.UpdateRequest{Tenant: c.tenant, Client: a.Client, Selector: selector}, a)
	}
}

// ofAll is a function of upserts whose arguments do not say which replicas are
// meant: all.
func ofAll[R any](serve func(c call, a *args) (R, error)) func(c call, a *args) (R, error) {
	return func(c call, a *args) (R, error) {
		a.Kind = mooncake.ReplicaAll
		return serve(c, a)
	}
}

var selectors = map[int32]metadata.Selector{
	mooncake.ReplicaMemory:    metadata.SelectMemory,
	mooncake.ReplicaDisk:      metadata.SelectDisk,
	mooncake.ReplicaLocalDisk: metadata.SelectLocalDisk,
	mooncake.ReplicaAll:       metadata.SelectAll,
}

func putEnd(c call, u service.UpdateRequest, a *args) (struct{}, error) {
	return struct{}{}, c.master.PutEnd(c, u, service.UpdateItem{Key: a.Item.Key, Checksum: a.Item.Checksum})
}

func batchPutEnd(c call, u service.UpdateRequest, a *args) ([]error, error) {
	items := make([]service.UpdateItem, len(a.Items))
	for i, item := range a.Items {
		items[i] = service.UpdateItem{Key: item.Key, Checksum: item.Checksum}
	}
	return c.master.BatchPutEnd(c, u, items)
}

func putRevoke(c call, u service.UpdateRequest, a *args) (struct{}, error) {
	return struct{}{}, c.master.PutRevoke(c, u, service.UpdateItem{Key: a.Key})
}

func batchPutRevoke(c call, u service.UpdateRequest, a *args) ([]error, error) {
	items := make([]service.UpdateItem, len(a.Keys))
	for i, key := range a.Keys {
		items[i] = service.UpdateItem{Key: key}
	}
	return c.master.BatchPutRevoke(c, u, items)
}
