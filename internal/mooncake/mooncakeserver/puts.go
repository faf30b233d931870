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
	"github.com/understudy-store/understudy/segment"
)

// Puts on this protocol have no request ids. See service.PutStart.Unnumbered for
// what a repeated PutStart gets.

func putStart(c call, a *mooncake.PutStartArgs, r *mooncake.Result[mooncake.Placement]) error {
	var got service.Reservation
	var group string
	p, err := putOf(a.Client, &a.Config)
	if err == nil {
		group, err = groupOf(&a.Config, 0, 1)
	}
	if err == nil {
		item := service.PutItem{Key: strings.Clone(a.Key), Size: a.Size, Group: group}
		if err = checkText("key", a.Key); err == nil {
			got, err = c.master.PutStart(c, p, item)
		}
		if err == nil {
			c.reserved(c.master, item.Key, got.ID)
		}
	}
	r.Value = mooncake.Placement{ID: got.ID, Replicas: got.Replicas}
	if err := c.heard(); err != nil {
		return err
	}
	return settle(c, "PutStart", r, err)
}

func batchPutStart(c call, a *mooncake.BatchPutStartArgs, r *[]mooncake.Result[mooncake.Placement]) error {
	*r = results(*r, len(a.Keys))
	p, err := putOf(a.Client, &a.Config)
	if err == nil && len(a.Sizes) != len(a.Keys) {
		err = errs.New(errs.InvalidParams, "BatchPutStart", "there are %d keys and %d sizes", len(a.Keys), len(a.Sizes))
	}
	items := make([]service.PutItem, len(a.Keys))
	for i := 0; i < len(items) && err == nil; i++ {
		items[i] = service.PutItem{Key: strings.Clone(a.Keys[i]), Size: a.Sizes[i]}
		if err = checkText("key", items[i].Key); err == nil {
			items[i].Group, err = groupOf(&a.Config, i, len(items))
		}
	}
	if err != nil {
		return settleAll(c, "BatchPutStart", *r, nil, err)
	}
	got, failed, err := c.master.BatchPutStart(c, p, items)
	for i := range got {
		(*r)[i].Value = mooncake.Placement{ID: got[i].ID, Replicas: got[i].Replicas}
		if failed[i] == nil {
			c.reserved(c.master, items[i].Key, got[i].ID)
		}
	}
	if err := c.heard(); err != nil {
		return err
	}
	return settleAll(c, "BatchPutStart", *r, failed, err)
}

// patience is how long a put may take before it is worth a system call to see
// whether its client still waits.
const patience = time.Millisecond

// heard returns an error if the client has gone while its put was being written:
// it will not hear of its reservation.
func (c call) heard() error {
	if len(c.puts) > 0 && c.front.Clock()-c.began > patience && c.conn.PeerGone() {
		c.abandon() // now: answers of before may still be handed to the network
		return errPeerGone
	}
	return nil
}

// putOf reads how objects are to be put; the service checks the rest.
func putOf(client segment.ClientID, c *mooncake.ReplicateConfig) (service.PutStart, error) {
	p := service.PutStart{Tenant: tenant, Client: client, Unnumbered: true, Config: service.PutConfig{
		Replicas: int(min(c.Replicas, math.MaxInt32)), Preferred: c.Preferred, HardPin: c.HardPin, SameNode: c.PreferSameNode, DataType: c.DataType,
	}}
	if c.PreferredOne != "" {
		p.Config.Preferred = []string{c.PreferredOne}
	}
	if c.Replicas == 0 && (c.NoF > 0 || c.DFS > 0) {
		return p, errs.New(errs.NotSupported, "PutStart", "replicas outside of memory alone are not offered; ask for a memory replica too")
	}
	switch c.SoftPin {
	case mooncake.SoftPinPreserve:
		p.Config.SoftPin = service.SoftPinPreserve
	case mooncake.SoftPinEnable:
		p.Config.SoftPin = service.SoftPinEnable
	case mooncake.SoftPinDisable:
		p.Config.SoftPin = service.SoftPinDisable
	default:
		return p, errs.New(errs.InvalidParams, "PutStart", "soft_pin_action is %d; it is 0 to 2", c.SoftPin)
	}
	if c.SoftPinMillis != nil {
		ttl := time.Duration(min(*c.SoftPinMillis, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
		p.Config.SoftPinTTL = &ttl
	}
	return p, nil
}

// groupOf returns the group of item i of n.
func groupOf(c *mooncake.ReplicateConfig, i, n int) (string, error) {
	if c.Groups == nil {
		return "", nil
	}
	groups := *c.Groups
	if len(groups) != n {
		return "", errs.New(errs.InvalidParams, "PutStart", "there are %d keys and %d groups", n, len(groups))
	}
	return strings.Clone(groups[i]), checkText("group", groups[i])
}

// checkText refuses what no other client could ask for: gRPC carries UTF-8.
func checkText(what, s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	return errs.New(errs.InvalidKey, "PutStart", "the %s is not UTF-8", what)
}

// specOf reads a segment; the service checks the rest.
func specOf(client segment.ClientID, spec segment.Spec) (segment.Spec, error) {
	for _, s := range []string{spec.Name, spec.Endpoint, spec.Protocol, spec.HostID} {
		if !utf8.ValidString(s) {
			return spec, errs.New(errs.InvalidParams, "MountSegment", "a name of segment %v is not UTF-8", spec.ID)
		}
	}
	spec.Client = client
	return spec, nil
}

func putEnd(c call, a *mooncake.PutEndArgs, r *mooncake.Done) error {
	u, err := updateOf(a.Client, a.Kind)
	if err == nil {
		err = c.master.PutEnd(c, u, service.PutRef{Key: a.Item.Key, Checksum: a.Item.Checksum})
	}
	return settle(c, "PutEnd", r, err)
}

func batchPutEnd(c call, a *mooncake.BatchPutEndArgs, r *[]mooncake.Done) error {
	*r = results(*r, len(a.Items))
	refs := make([]service.PutRef, len(a.Items))
	for i, item := range a.Items {
		refs[i] = service.PutRef{Key: item.Key, Checksum: item.Checksum}
	}
	u, err := updateOf(a.Client, a.Kind)
	var failed []error
	if err == nil {
		failed, err = c.master.BatchPutEnd(c, u, refs)
	}
	return settleAll(c, "BatchPutEnd", *r, failed, err)
}

func putRevoke(c call, a *mooncake.PutRevokeArgs, r *mooncake.Done) error {
	u, err := updateOf(a.Client, a.Kind)
	if err == nil {
		err = c.master.PutRevoke(c, u, service.PutRef{Key: a.Key})
	}
	return settle(c, "PutRevoke", r, err)
}

func batchPutRevoke(c call, a *mooncake.BatchPutRevokeArgs, r *[]mooncake.Done) error {
	*r = results(*r, len(a.Keys))
	refs := make([]service.PutRef, len(a.Keys))
	for i, key := range a.Keys {
		refs[i] = service.PutRef{Key: key}
	}
	u, err := updateOf(a.Client, a.Kind)
	var failed []error
	if err == nil {
		failed, err = c.master.BatchPutRevoke(c, u, refs)
	}
	return settleAll(c, "BatchPutRevoke", *r, failed, err)
}

func updateOf(client segment.ClientID, kind int32) (service.PutUpdate, error) {
	u := service.PutUpdate{Tenant: tenant, Client: client}
	switch kind {
	case mooncake.ReplicaMemory:
		u.Selector = metadata.SelectMemory
	case mooncake.ReplicaDisk:
		u.Selector = metadata.SelectDisk
	case mooncake.ReplicaLocalDisk:
		u.Selector = metadata.SelectLocalDisk
	case mooncake.ReplicaAll:
		u.Selector = metadata.SelectAll
	default:
		return u, errs.New(errs.InvalidWrite, "PutEnd", "there are no replicas of type %d", kind)
	}
	return u, nil
}

func removal(force bool) service.Removal { return service.Removal{Tenant: tenant, Force: force} }
