package mooncake_test

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// golden packs a value, compares it with bytes that are known, and unpacks them.
// Blanks and names of members among the bytes are for people.
func golden[T any](t *testing.T, what string, m *structpack.Message[T], v T, want string) {
	t.Helper()
	var bytes strings.Builder
	for _, word := range strings.Fields(want) {
		if !strings.HasSuffix(word, ":") {
			bytes.WriteString(word)
		}
	}
	if got := hex.EncodeToString(structpack.Pack(new(structpack.Writer), nil, m, &v)); got != bytes.String() {
		t.Errorf("%s is packed as\n%s, want\n%s", what, got, bytes.String())
	}
	message, err := hex.DecodeString(bytes.String())
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := structpack.Unpack(new(structpack.Reader), string(message), m, &back); err != nil || !reflect.DeepEqual(back, v) {
		t.Errorf("%s is unpacked as\n%+v, %v, want\n%+v", what, back, err, v)
	}
}

func generation(t *testing.T, name string) *mooncake.Generation {
	t.Helper()
	g, ok := mooncake.NewGeneration(name)
	if !ok {
		t.Fatal(name)
	}
	return g
}

// Calls between Mooncake's own client and server, as they were captured.
func TestCaptured(t *testing.T) {
	g := generation(t, "head")
	if g.ServiceReady.ID != 0x7b81bb56 || g.ExistKey.ID != 0x89385f09 || g.ServiceReady.Args != nil {
		t.Errorf("functions %08x, %08x; want 7b81bb56 without arguments, and 89385f09", g.ServiceReady.ID, g.ExistKey.ID)
	}
	golden(t, "ServiceReady's result", g.ServiceReady.Result, mooncake.Result[string]{Value: "2.0.0"}, "34ccb31c 01 05 322e302e30")
	golden(t, "ExistKey's arguments", g.ExistKey.Args, mooncake.Args{Key: "ab", Tenant: "tenantA"}, "d81ef97c 02 6162 07 74656e616e7441")
	golden(t, "ExistKey's result", g.ExistKey.Result, mooncake.Result[bool]{Value: true}, "d200e890 01 01")
	golden(t, "GetReplicaList's result", g.GetReplicaList.Result, mooncake.Result[metadata.ReplicaList]{Failure: -704}, "6c27c688 00 40fdffff")
	golden(t, "PutEnd's result", g.PutEnd.Result, mooncake.Done{}, "cc6828af 01")
}

// Neighbours of one type can change places without a change of the hash. So the
// bytes are written down once, with the original's names of the members.
func TestOrderOfMembers(t *testing.T) {
	const (
		u1 = "0100000000000000"
		u2 = "0200000000000000"
		u3 = "0300000000000000"
	)
	client := segment.ClientID{7: 1, 15: 2} // the pair {1, 2}
	ttl, sum := uint64(3), uint64(2)
	head := generation(t, "head")
	golden(t, "MountSegment", head.MountSegment.Args, mooncake.Args{
		Segment: segment.Spec{ID: segment.ID{7: 2, 15: 3}, Name: "n", Base: 1, Size: 2, Endpoint: "e", Protocol: "p", HostID: "h"}, Client: client,
	}, "ae0df79e id: "+u2+u3+" name: 016e base: "+u1+" size: "+u2+" te_endpoint: 0165 protocol: 0170 host_id: 0168 client_id: "+u1+u2)
	golden(t, "PutStart", head.PutStart.Args, mooncake.Args{
		Client: client, Key: "k", Size: 3, Tenant: "t", Config: mooncake.ReplicateConfig{
			Replicas: 1, NoF: 2, DFS: 3, SoftPin: 1, SoftPinMillis: &ttl, HardPin: true, Preferred: []string{"a"}, PreferredOne: "b",
			PreferredNoF: []string{"c"}, PreferSameNode: true, DataType: 9, HostID: "d", Groups: &[]string{"e"},
		},
	}, "0ebd85e3 client_id: "+u1+u2+" key: 016b slice_length: "+u3+" replica_num: "+u1+" nof_replica_num: "+u2+" dfs_replica_num: "+u3+
		" soft_pin_action: 01 soft_pin_ttl_ms: 01 "+u3+" with_hard_pin: 01 preferred_segments: 01 0161 preferred_segment: 0162"+
		" preferred_nof_segments: 01 0163 prefer_alloc_in_same_node: 01 data_type: 09 host_id: 0164 group_ids: 01 01 0165 tenant_id: 0174")
	replicas := []metadata.Descriptor{
		{Kind: metadata.Memory, Status: metadata.Complete, Size: 1, Address: 2, Protocol: "p", Endpoint: "e"},
		{Kind: metadata.Disk, Status: metadata.Processing, Path: "f", Size: 3},
		{Kind: metadata.LocalDisk, Status: metadata.Complete, Client: client, Size: 3, Endpoint: "e"},
	}
	const id = "0500000000000000"
	memory := "id: " + id + " memory: 00 size_: " + u1 + " buffer_address_: " + u2 + " protocol_: 0170 transport_endpoint_: 0165 complete: 03000000"
	disk := " id: " + id + " disk: 02 file_path: 0166 object_size: " + u3 + " processing: 02000000"
	local := " id: " + id + " local_disk: 03 client_id: " + u1 + u2 + " object_size: " + u3 + " transport_endpoint: 0165 complete: 03000000 "
	list := metadata.ReplicaList{ID: 5, Replicas: replicas, LeaseTTL: time.Millisecond, Checksum: &sum}
	golden(t, "GetReplicaList", head.GetReplicaList.Result, mooncake.Result[metadata.ReplicaList]{Value: list},
		"6c27c688 01 replicas: 03 "+memory+disk+local+"lease_ttl_ms: "+u1+" object_checksum: 01 "+u2)
	golden(t, "NotifyOffloadSuccess", head.NotifyOffloadSuccess.Args, mooncake.Args{
		Client: client, Tasks: []mooncake.OffloadTask{{Tenant: "t", Key: "k", Size: 3}},
		Objects: []mooncake.OffloadedObject{{Bucket: 1, Offset: 2, KeySize: 3, DataSize: 1, Endpoint: "e"}},
	}, "929ae7d4 client_id: "+u1+u2+" 01 tenant_id: 0174 key: 016b size: "+u3+
		" 01 bucket_id: "+u1+" offset: "+u2+" key_size: "+u3+" data_size: "+u1+" transport_endpoint: 0165")
	golden(t, "BatchReplicaClear", head.BatchReplicaClear.Args, mooncake.Args{Keys: []string{"k"}, Client: client, SegmentName: "s"},
		"a22f2b47 01 016b "+u1+u2+" 0173")

	old := generation(t, "v0.3.11")
	golden(t, "v0.3.11 PutStart", old.PutStart.Args, mooncake.Args{
		Client: client, Key: "k", Size: 3, Config: mooncake.ReplicateConfig{
			Replicas: 1, NoF: 2, SoftPin: 1, HardPin: false, Preferred: []string{"a"}, PreferredOne: "b", PreferredNoF: []string{"c"}, PreferSameNode: true, DataType: 9,
		},
	}, hashOf(old.PutStart.Args)+" client_id: "+u1+u2+" key: 016b slice_length: "+u3+" replica_num: "+u1+" nof_replica_num: "+u2+
		" with_soft_pin: 01 with_hard_pin: 00 preferred_segments: 01 0161 preferred_segment: 0162 preferred_nof_segments: 01 0163 prefer_alloc_in_same_node: 01 data_type: 09")
	golden(t, "v0.3.11 OffloadObjectHeartbeat", old.OffloadObjectHeartbeat.Result, mooncake.Result[[]mooncake.OffloadTask]{Value: []mooncake.OffloadTask{{Key: "k", Size: 3}}},
		hashOf(old.OffloadObjectHeartbeat.Result)+" 01 01 016b "+u3)
}

// hashOf is a type's hash as it stands in front of a message. TestTypes... holds
// it against the original.
func hashOf[T any](m *structpack.Message[T]) string {
	h := m.Type().Hash()
	return hex.EncodeToString([]byte{byte(h), byte(h >> 8), byte(h >> 16), byte(h >> 24)})
}
