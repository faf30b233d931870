package conformance_test

import (
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// An api is what a line calls. The last result is the C++ master's number of the
// error, 0 for none.
type api interface {
	Exist(key string) (bool, int32)
	Get(key string) ([]metadata.Descriptor, int32)
	BatchExist(keys ...string) []bool
	BatchGet(keys ...string) []int32
	PutStart(client byte, key string, size uint64, how mooncake.ReplicateConfig) ([]metadata.Descriptor, int32)
	PutEnd(client byte, key string) int32
	PutRevoke(client byte, key string) int32
	UpsertStart(client byte, key string, size uint64) ([]metadata.Descriptor, int32)
	UpsertEnd(client byte, key string) int32
	UpsertRevoke(client byte, key string) int32
	Remove(key string, force bool) int32
	BatchRemove(force bool, keys ...string) []int32
	RemoveAll(force bool) int
	RemoveByRegex(pattern string, force bool) (int, int32)
	Clear(client byte, keys ...string) (int, int32)
	Mount(s segment.Spec) int32
	ReMount(client byte, s ...segment.Spec) int32
	Unmount(id segment.ID) int32
	GracefulUnmount(client byte, id segment.ID, grace time.Duration) int32
	Ping(client byte) (known bool)
	SegmentStatus(name string) (metadata.SegmentStatus, int32)
	transfers
}

// A wire calls by Mooncake's protocol.
type wire struct {
	*testing.T
	conn *mooncakeclient.Conn
	g    *mooncake.Generation
}

func do[R any](w *wire, call mooncake.Call[R], args mooncake.Args) (result R) {
	w.Helper()
	if _, err := mooncakeclient.Do(w.Context(), w.conn, call, &args, &result); err != nil {
		w.Errorf("%s: got %v, want an answer", call.Name, err)
	}
	return result
}

func codes[V any](results []mooncake.Result[V]) (list []int32) {
	for _, r := range results {
		list = append(list, r.Failure)
	}
	return list
}

func id(n byte) segment.ClientID { return segment.ClientID{n} }

func (w *wire) Exist(key string) (bool, int32) {
	r := do(w, w.g.ExistKey, mooncake.Args{Key: key})
	return r.Value, r.Failure
}

func (w *wire) Get(key string) ([]metadata.Descriptor, int32) {
	r := do(w, w.g.GetReplicaList, mooncake.Args{Key: key})
	return r.Value.Replicas, r.Failure
}

func (w *wire) BatchExist(keys ...string) (list []bool) {
	for _, r := range do(w, w.g.BatchExistKey, mooncake.Args{Keys: keys}) {
		list = append(list, r.Value)
	}
	return list
}

func (w *wire) BatchGet(keys ...string) []int32 {
	return codes(do(w, w.g.BatchGetReplicaList, mooncake.Args{Keys: keys}))
}

func (w *wire) PutStart(client byte, key string, size uint64, how mooncake.ReplicateConfig) ([]metadata.Descriptor, int32) {
	r := do(w, w.g.PutStart, mooncake.Args{Client: id(client), Key: key, Size: size, Config: how})
	return r.Value.Replicas, r.Failure
}

func (w *wire) PutEnd(client byte, key string) int32 {
	return do(w, w.g.PutEnd, mooncake.Args{Client: id(client), Item: mooncake.PutItem{Key: key}}).Failure
}

func (w *wire) PutRevoke(client byte, key string) int32 {
	return do(w, w.g.PutRevoke, mooncake.Args{Client: id(client), Key: key}).Failure
}

func (w *wire) UpsertStart(client byte, key string, size uint64) ([]metadata.Descriptor, int32) {
	r := do(w, w.g.UpsertStart, mooncake.Args{Client: id(client), Key: key, Size: size, Config: one})
	return r.Value.Replicas, r.Failure
}

func (w *wire) UpsertEnd(client byte, key string) int32 {
	return do(w, w.g.UpsertEnd, mooncake.Args{Client: id(client), Item: mooncake.PutItem{Key: key}}).Failure
}

func (w *wire) UpsertRevoke(client byte, key string) int32 {
	return do(w, w.g.UpsertRevoke, mooncake.Args{Client: id(client), Key: key}).Failure
}

func (w *wire) Remove(key string, force bool) int32 {
	return do(w, w.g.Remove, mooncake.Args{Key: key, Force: force}).Failure
}

func (w *wire) BatchRemove(force bool, keys ...string) []int32 {
	return codes(do(w, w.g.BatchRemove, mooncake.Args{Keys: keys, Force: force}))
}

func (w *wire) RemoveAll(force bool) int {
	return int(do(w, w.g.RemoveAll, mooncake.Args{Force: force}))
}

func (w *wire) RemoveByRegex(pattern string, force bool) (int, int32) {
	r := do(w, w.g.RemoveByRegex, mooncake.Args{Key: pattern, Force: force})
	return int(r.Value), r.Failure
}

func (w *wire) Clear(client byte, keys ...string) (int, int32) {
	r := do(w, w.g.BatchReplicaClear, mooncake.Args{Client: id(client), Keys: keys})
	return len(r.Value), r.Failure
}

func (w *wire) Mount(s segment.Spec) int32 {
	return do(w, w.g.MountSegment, mooncake.Args{Client: s.Client, Segment: s}).Failure
}

func (w *wire) ReMount(client byte, s ...segment.Spec) int32 {
	return do(w, w.g.ReMountSegment, mooncake.Args{Client: id(client), Segments: s}).Failure
}

func (w *wire) Unmount(seg segment.ID) int32 {
	return do(w, w.g.UnmountSegment, mooncake.Args{SegmentID: seg, Client: id(1)}).Failure
}

func (w *wire) GracefulUnmount(client byte, seg segment.ID, grace time.Duration) int32 {
	return do(w, w.g.GracefulUnmount, mooncake.Args{Client: id(client), SegmentID: seg, GraceMillis: uint64(grace.Milliseconds())}).Failure
}

func (w *wire) Ping(client byte) bool {
	return do(w, w.g.Ping, mooncake.Args{Client: id(client)}).Value.Status == mooncake.ClientOK
}

func (w *wire) SegmentStatus(name string) (metadata.SegmentStatus, int32) {
	r := do(w, w.g.SegmentStatus, mooncake.Args{SegmentName: name})
	return metadata.SegmentStatus(r.Value), r.Failure
}

// A direct calls the service.
type direct struct {
	*testing.T
	m *service.Master
}

const tenant = metadata.DefaultTenant

func number(err error) int32 { return errs.KindOf(err).Number() }

func numbers(failed []error) (list []int32) {
	for _, err := range failed {
		list = append(list, number(err))
	}
	return list
}

func (d direct) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d direct) Exist(key string) (bool, int32) {
	found, err := d.m.ExistKey(d.Context(), tenant, key)
	return found, number(err)
}

func (d direct) Get(key string) ([]metadata.Descriptor, int32) {
	l, err := d.m.GetReplicaList(d.Context(), tenant, key)
	return l.Replicas, number(err)
}

func (d direct) BatchExist(keys ...string) []bool {
	found, _, err := d.m.BatchExistKey(d.Context(), tenant, keys)
	d.must(err)
	return found
}

func (d direct) BatchGet(keys ...string) []int32 {
	_, failed, err := d.m.BatchGetReplicaList(d.Context(), tenant, keys, nil)
	d.must(err)
	return numbers(failed)
}

func (d direct) PutStart(client byte, key string, size uint64, how mooncake.ReplicateConfig) ([]metadata.Descriptor, int32) {
	config := service.PutConfig{
		Replicas: int(how.Replicas), Preferred: how.Preferred, SoftPin: service.SoftPinAction(how.SoftPin), HardPin: how.HardPin, HostID: how.HostID,
	}
	item := service.PutItem{Key: key, Size: size}
	if how.Groups != nil {
		item.Group = (*how.Groups)[0]
	}
	r, err := d.m.PutStart(d.Context(), service.PutRequest{Tenant: tenant, Client: id(client), Config: config, Unnumbered: true}, item)
	return r.Replicas, number(err)
}

func update(client byte) service.UpdateRequest {
	return service.UpdateRequest{Tenant: tenant, Client: id(client), Selector: metadata.SelectMemory}
}

func (d direct) PutEnd(client byte, key string) int32 {
	return number(d.m.PutEnd(d.Context(), update(client), service.UpdateItem{Key: key}))
}

func (d direct) PutRevoke(client byte, key string) int32 {
	return number(d.m.PutRevoke(d.Context(), update(client), service.UpdateItem{Key: key}))
}

func (d direct) UpsertStart(client byte, key string, size uint64) ([]metadata.Descriptor, int32) {
	config := service.PutConfig{Replicas: 1, Upsert: true}
	r, err := d.m.PutStart(d.Context(), service.PutRequest{Tenant: tenant, Client: id(client), Config: config, Unnumbered: true}, service.PutItem{Key: key, Size: size})
	return r.Replicas, number(err)
}

func (d direct) UpsertEnd(client byte, key string) int32 { return d.PutEnd(client, key) }

func (d direct) UpsertRevoke(client byte, key string) int32 { return d.PutRevoke(client, key) }

func (d direct) Remove(key string, force bool) int32 {
	return number(d.m.Remove(d.Context(), removal(force), key))
}

func removal(force bool) service.RemoveRequest {
	return service.RemoveRequest{Tenant: tenant, Force: force}
}

func (d direct) BatchRemove(force bool, keys ...string) []int32 {
	failed, err := d.m.BatchRemove(d.Context(), removal(force), keys)
	d.must(err)
	return numbers(failed)
}

func (d direct) RemoveAll(force bool) int {
	n, err := d.m.RemoveAll(d.Context(), removal(force))
	d.must(err)
	return n.Removed
}

func (d direct) RemoveByRegex(pattern string, force bool) (int, int32) {
	n, err := d.m.RemoveByRegex(d.Context(), removal(force), pattern)
	return n.Removed, number(err)
}

func (d direct) Clear(client byte, keys ...string) (int, int32) {
	cleared, err := d.m.BatchReplicaClear(d.Context(), tenant, keys, id(client), "")
	return len(cleared), number(err)
}

func (d direct) Mount(s segment.Spec) int32 { return number(d.m.MountSegment(d.Context(), s)) }

func (d direct) ReMount(client byte, s ...segment.Spec) int32 {
	return number(d.m.ReMountSegment(d.Context(), id(client), s))
}

func (d direct) Unmount(seg segment.ID) int32 {
	return number(d.m.UnmountSegment(d.Context(), seg, nil))
}

func (d direct) GracefulUnmount(client byte, seg segment.ID, grace time.Duration) int32 {
	return number(d.m.GracefulUnmountSegment(d.Context(), id(client), seg, grace))
}

func (d direct) Ping(client byte) bool {
	known, err := d.m.Ping(d.Context(), id(client))
	d.must(err)
	return known
}

func (d direct) SegmentStatus(name string) (metadata.SegmentStatus, int32) {
	status, err := d.m.SegmentStatus(d.Context(), name)
	return status, number(err)
}
