package rpc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
)

// putOnLongName mounts memory with a name of 1,000 bytes and puts an object there, which takes
// more than that of each answer.
func (n *node) putOnLongName(key string) {
	n.t.Helper()
	long := memory(bob)
	long.Name, long.Base = strings.Repeat("b", 1000), 1<<40
	if _, err := n.clients.MountSegment(n.t.Context(), &pb.MountSegmentRequest{ClientId: bob, Segment: long}); err != nil {
		n.t.Fatal(err)
	}
	put := &pb.PutStartRequest{ClientId: alice, Key: key, Size: 100, Config: &pb.PutConfig{PreferredSegments: []string{long.GetName()}}}
	if _, err := n.objects.PutStart(n.t.Context(), put); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.objects.PutEnd(n.t.Context(), &pb.PutEndRequest{ClientId: alice, Key: key}); err != nil {
		n.t.Fatal(err)
	}
}

// An answer that fits no message, of 2 MiB here, is refused; one that is much too large before
// all of its keys are looked up.
func TestLargeReads(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.MessageBytes = 64 << 10 }).mount()
	n.putOnLongName("k")
	for _, tc := range []struct {
		keys, looked int
		fits         bool
	}{{1900, 1900, true}, {2100, 2100, false}, {9000, 4000, false}} {
		before := n.master.Counters.Gets.Load()
		_, err := n.objects.BatchGetReplicaList(t.Context(), &pb.BatchGetReplicaListRequest{Keys: slices.Repeat([]string{"k"}, tc.keys)})
		switch what := fmt.Sprintf("%d keys of 1.1 kB", tc.keys); {
		case tc.fits && err != nil:
			t.Errorf("%s: got %v, want no error", what, err)
		case !tc.fits:
			wantKind(t, what, err, errs.InvalidParams)
			if err == nil || !strings.Contains(err.Error(), "2097152 bytes") {
				t.Errorf("%s: got %v, want the bound named, 2097152 bytes", what, err)
			}
		}
		if looked := int(n.master.Counters.Gets.Load() - before); looked > tc.looked {
			t.Errorf("%d keys: %d were looked up, want %d at most", tc.keys, looked, tc.looked)
		}
	}
}

// A read is refused, as one to be tried again, as soon as its answer has no room beside those
// that are not read; so it is for few keys.
func TestReadsStopAtUnreadAnswers(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 2 << 20 }).mount()
	n.putOnLongName("long")
	_ = n.leaveUnread(n.raw(), 100)
	_, err := n.objects.BatchGetReplicaList(t.Context(), &pb.BatchGetReplicaListRequest{Keys: slices.Repeat([]string{"long"}, 250)})
	wantKind(t, "250 keys of 1.1 kB", err, errs.Unavailable)
}

// A client's addresses come as often as it is named: the answer is bounded as it is made.
func TestAddressesOfOneClientAgainAndAgain(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.MessageBytes = 1 << 20 })
	specs := make([]*pb.Segment, 100)
	for i := range specs {
		specs[i] = memory(fmt.Sprintf("6ba7b810-9dad-11d1-80b4-00c04fd4%04d", i))
		specs[i].Endpoint = fmt.Sprintf("%s%d:7000", strings.Repeat("h", 1000), i)
		specs[i].Base += uint64(i) << 31
	}
	if _, err := n.clients.ReMountSegment(t.Context(), &pb.ReMountSegmentRequest{ClientId: alice, Segments: specs}); err != nil {
		t.Fatal(err)
	}
	ask := func(times int) error {
		_, err := n.clients.BatchQueryIp(t.Context(), &pb.BatchQueryIpRequest{ClientIds: slices.Repeat([]string{alice}, times)})
		return err
	}
	if err := ask(10); err != nil {
		t.Errorf("1 MB of addresses: got %v, want no error", err)
	}
	for _, times := range []int{30, 10_000} {
		wantKind(t, fmt.Sprintf("%d times 100 kB of addresses", times), ask(times), errs.InvalidParams)
	}
}

// Puts whose answer would fit no message are refused before anything is reserved.
func TestLargePuts(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.MessageBytes = 1 << 20 }).mount()
	items, copies := make([]*pb.PutStartItem, pb.MaxBatchItems), uint32(64)
	for i := range items {
		items[i] = &pb.PutStartItem{Key: fmt.Sprint(i), Size: 1}
	}
	_, err := n.objects.BatchPutStart(t.Context(), &pb.BatchPutStartRequest{ClientId: alice, Items: items, Config: &pb.PutConfig{ReplicaNum: &copies}})
	wantKind(t, "10,000 puts with 64 replicas", err, errs.InvalidParams)
	if st := n.store.Stats(); st.Objects != 0 {
		t.Errorf("%d objects are reserved, want none", st.Objects)
	}
}

// Each call of clients with a list of items has the contract's bound on them.
func TestLargestBatches(t *testing.T) {
	n := newNode(t).mount()
	for _, m := range methods(t) {
		if m.Parent().Name() != "ObjectService" && m.Parent().Name() != "ClientService" {
			continue
		}
		for i := range m.Input().Fields().Len() {
			field := m.Input().Fields().Get(i)
			if !field.IsList() || field.Name() == "segments" || field.Name() == "preferred_segments" {
				continue
			}
			kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
			if err != nil {
				t.Fatal(err)
			}
			request := kind.New()
			items := request.Mutable(field).List()
			for range pb.MaxBatchItems + 1 {
				if field.Message() != nil {
					items.AppendMutable()
				} else {
					items.Append(protoreflect.ValueOfString(alice))
				}
			}
			_, err = invoke(t.Context(), n.conn, m, request.Interface())
			wantKind(t, string(m.Name()), err, errs.InvalidParams)
			if err == nil || !strings.Contains(err.Error(), "10001 items") {
				t.Errorf("%s: got %v, want an error with the number of items", m.Name(), err)
			}
		}
	}
}
