package understudyv1_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	understudyv1 "github.com/understudy-store/understudy/api/understudy/v1"
)

// header is as long as headers usually are.
func header() *understudyv1.ResponseHeader {
	return &understudyv1.ResponseHeader{Term: 300, ClusterId: "mooncake_cluster", NodeId: "host-1.example:50051"}
}

// object is an object with replicas on hosts with names of a usual length.
func object(replicas int) *understudyv1.ReplicaList {
	list := &understudyv1.ReplicaList{ObjectId: 300<<44 + 1<<40, Size: 4 << 20, ObjectChecksum: proto.Uint64(1 << 63)}
	for i := range replicas {
		list.Replicas = append(list.Replicas, &understudyv1.Replica{
			Status: understudyv1.ReplicaStatus_REPLICA_STATUS_COMPLETE,
			Location: &understudyv1.Replica_Memory{Memory: &understudyv1.MemoryLocation{
				Address:     1<<47 - 1,
				Endpoint:    fmt.Sprintf("kv-node-%03d.cluster.example:12345", i),
				Protocol:    "rdma",
				SegmentName: fmt.Sprintf("kv-node-%03d.cluster.example:12345", i),
			}},
		})
	}
	return list
}

func objects(n, replicas int) []*understudyv1.ReplicaList {
	all := make([]*understudyv1.ReplicaList, n)
	for i := range all {
		all[i] = object(replicas)
	}
	return all
}

func keys(n, length int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%0*d", length, i)
	}
	return all
}

// The sizes that the comments and limits of the contract count on.
func TestSizesOnTheWire(t *testing.T) {
	const n = understudyv1.MaxBatchItems
	exist := make([]bool, n)
	items := make([]*understudyv1.PutStartItem, n)
	for i, key := range keys(n, 40) {
		exist[i] = true
		items[i] = &understudyv1.PutStartItem{Key: key, Size: 4 << 20}
	}
	for _, c := range []struct {
		name    string
		message proto.Message
		most    int
	}{
		{"a header", header(), 48},
		{"a read of one replica", &understudyv1.GetReplicaListResponse{Header: header(), LeaseTtlMs: 10_000, Object: object(1)}, 192},
		{"an acknowledgement of the largest batch", &understudyv1.BatchPutEndResponse{Header: header(), Succeeded: n}, 64},
		{"an error of one item", &understudyv1.ItemError{Index: n - 1, Kind: understudyv1.Kind_KIND_OBJECT_NOT_FOUND}, 5},
		{"one byte a key", &understudyv1.BatchExistKeyResponse{Header: header(), Exists: exist}, n + 64},
		{
			"the largest batch of gets with three replicas each",
			&understudyv1.BatchGetReplicaListResponse{Header: header(), LeaseTtlMs: 10_000, Objects: objects(n, 3)},
			understudyv1.DefaultMaxMessageBytes,
		},
		{
			"the largest batch of puts of keys of 40 bytes",
			&understudyv1.BatchPutStartRequest{ClientId: strings.Repeat("0", 36), RequestId: 1, Items: items},
			1 << 20,
		},
		{
			"a batch of 255 of the longest keys",
			&understudyv1.BatchExistKeyRequest{Keys: keys(255, understudyv1.MaxKeyBytes)},
			understudyv1.DefaultMaxMessageBytes,
		},
		{
			"a snapshot chunk adds little",
			&understudyv1.StreamSnapshotResponse{Header: header(), Content: &understudyv1.StreamSnapshotResponse_Chunk{
				Chunk: &understudyv1.SnapshotChunk{Part: 1025, Data: make([]byte, understudyv1.MaxSnapshotChunkBytes), Last: true},
			}},
			understudyv1.MaxSnapshotChunkBytes + 80,
		},
	} {
		size := proto.Size(c.message)
		if size > c.most {
			t.Errorf("%s: %d bytes, at most %d", c.name, size, c.most)
		}
		t.Logf("%s: %d bytes", c.name, size)
	}
}

// A failed item keeps its place in the payload and costs next to nothing there.
func TestFailedItemsKeepTheirPlace(t *testing.T) {
	sent := &understudyv1.BatchGetReplicaListResponse{
		Objects: []*understudyv1.ReplicaList{object(1), {}, object(2)},
		Errors:  []*understudyv1.ItemError{{Index: 1, Kind: understudyv1.Kind_KIND_OBJECT_NOT_FOUND}},
	}
	raw, err := proto.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	got := new(understudyv1.BatchGetReplicaListResponse)
	if err := proto.Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	if len(got.GetObjects()) != 3 || got.GetObjects()[1].GetObjectId() != 0 || len(got.GetObjects()[2].GetReplicas()) != 2 {
		t.Errorf("got %v", got)
	}
}

// Programs that read JSON as floating point must not lose bits of an id.
func TestIDsAreStringsInJSON(t *testing.T) {
	raw, err := protojson.Marshal(&understudyv1.ReplicaList{ObjectId: 1<<64 - 1})
	if err != nil {
		t.Fatal(err)
	}
	if want := `"18446744073709551615"`; !strings.Contains(string(raw), want) {
		t.Errorf("%s does not contain %s", raw, want)
	}
}
