package mooncake_test

import (
	"fmt"
	"testing"

	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// through packs a value and unpacks it.
func through[T any](t *testing.T, m *structpack.Message[T], v T) (back T) {
	t.Helper()
	if err := structpack.Unpack(new(structpack.Reader), string(structpack.Pack(new(structpack.Writer), nil, m, &v)), m, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

// A generation's messages carry the fields that it is declared to have.
func TestFields(t *testing.T) {
	number := uint64(1)
	for _, name := range mooncake.Names() {
		g := generation(t, name)
		put := through(t, g.PutStart.Args, mooncake.Args{
			Tenant: "t", Config: mooncake.ReplicateConfig{SoftPin: mooncake.SoftPinEnable, SoftPinMillis: &number, Groups: &[]string{"g"}},
		})
		end := through(t, g.BatchPutEnd.Args, mooncake.Args{Items: []mooncake.PutItem{{Key: "k", Checksum: &number}}})
		mount := through(t, g.MountSegment.Args, mooncake.Args{Segment: segment.Spec{HostID: "h"}})
		carries := mooncake.Fields{
			Tenants: put.Tenant != "", HostIDs: mount.Segment.HostID != "", SoftPinTTL: put.Config.SoftPinMillis != nil,
			Groups: put.Config.Groups != nil, Checksums: end.Items[0].Checksum != nil,
		}
		if g.Fields != carries {
			t.Errorf("%s: got the fields %+v, want %+v", name, g.Fields, carries)
		}
	}
}

// The largest answers that a master gives can be read.
func TestLargeAnswers(t *testing.T) {
	g := generation(t, "head")
	replicas := make([]metadata.Descriptor, 13)
	for i := range replicas {
		replicas[i] = metadata.Descriptor{Kind: metadata.Memory, Status: metadata.Complete}
	}
	found := mooncake.Result[[]mooncake.KeyedReplicas]{Value: make([]mooncake.KeyedReplicas, 100_000)}
	for i := range found.Value {
		found.Value[i] = mooncake.KeyedReplicas{Key: fmt.Sprint(i), ObjectReplicas: mooncake.ObjectReplicas{ID: 1, Replicas: replicas[:1]}}
	}
	lists := make([]mooncake.Result[metadata.ReplicaList], 10_000)
	for i := range lists {
		lists[i].Value = metadata.ReplicaList{ID: 1, Replicas: replicas}
	}
	large(t, g.GetReplicaListByRegex.Result, &found, func(r *mooncake.Result[[]mooncake.KeyedReplicas]) int { return len(r.Value) })
	large(t, g.BatchGetReplicaList.Result, &lists, func(r *[]mooncake.Result[metadata.ReplicaList]) int { return len(*r) })
}

func large[T any](t *testing.T, m *structpack.Message[T], v *T, length func(*T) int) {
	t.Helper()
	packed := string(structpack.Pack(new(structpack.Writer), nil, m, v))
	var back T
	if err := structpack.Unpack(&structpack.Reader{AnyLength: true}, packed, m, &back); err != nil || length(&back) != length(v) {
		t.Errorf("%d bytes: %d elements, %v; want %d", len(packed), length(&back), err, length(v))
	}
	if err := structpack.Unpack(new(structpack.Reader), packed, m, &back); err == nil {
		t.Errorf("%d bytes are taken from anybody, want an error", len(packed))
	}
}
