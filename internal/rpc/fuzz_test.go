package rpc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
	"github.com/understudy-store/understudy/segment"
)

// FuzzCalls sends any bytes as requests to every method that clients use, one
// call after the other, to a node with a follower that gets its records. Each
// call succeeds or fails with a kind of error of ours that is no defect. The
// follower can apply what the node has committed and has the same state, in
// which nothing overlaps.
func FuzzCalls(f *testing.F) {
	methods := clientMethods(f)
	for _, script := range callScripts() {
		var b []byte
		for _, c := range script {
			i := slices.IndexFunc(methods, func(m method) bool { return m.request.Descriptor() == c.ProtoReflect().Descriptor() })
			payload, err := proto.Marshal(c)
			if i < 0 || err != nil {
				f.Fatalf("%T: got method %d, error %v, want a method with that request", c, i, err)
			}
			b = binenc.AppendString(append(b, byte(i)), string(payload))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		n := newFollowedNode(t)
		defer n.stop()
		r := binenc.NewReader(script)
		for calls := 0; r.Len() > 0 && calls < 60; calls++ {
			m := methods[int(r.Byte())%len(methods)]
			payload := r.Bytes(1 << 20)
			if r.Err() != nil {
				break
			}
			n.call(t, m, payload)
			n.now.Add(int64(len(payload)) * 100) // time passes, in ms
		}
		n.check(t)
	})
}

// A method is one of those that clients use.
type method struct {
	name    string // as gRPC has it
	request protoreflect.MessageType
}

func clientMethods(t testing.TB) (list []method) {
	t.Helper()
	for _, service := range []string{"understudy.v1.ObjectService", "understudy.v1.ClientService"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Fatal(err)
		}
		all := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range all.Len() {
			request, err := protoregistry.GlobalTypes.FindMessageByName(all.Get(i).Input().FullName())
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, method{fmt.Sprintf("/%s/%s", service, all.Get(i).Name()), request})
		}
	}
	return list
}

// callScripts are stories that fuzzing begins with.
func callScripts() [][]proto.Message {
	mount := &pb.MountSegmentRequest{ClientId: alice, Segment: memory(seg1)}
	other := memory("00000000-0000-0000-0000-000000000002")
	other.Name, other.Base, other.Size = "host-b", 1<<33, 4096
	long := strings.Repeat("k/ü", 1365)
	ms := uint64(5000)
	two := uint32(2)
	sum := uint64(7)
	return [][]proto.Message{
		{
			mount, &pb.PutStartRequest{ClientId: alice, Key: "a", Size: 100, RequestId: 7}, &pb.PutEndRequest{ClientId: alice, Key: "a", ObjectChecksum: &sum},
			&pb.GetReplicaListRequest{Key: "a"}, &pb.ExistKeyRequest{Key: "a"}, &pb.RemoveRequest{Key: "a"}, &pb.RemoveRequest{Key: "a", Force: true},
		},
		{
			mount, &pb.ReMountSegmentRequest{ClientId: bob, Segments: []*pb.Segment{other}},
			&pb.BatchPutStartRequest{
				ClientId: bob, Items: []*pb.PutStartItem{{Key: long, Size: 1}, {Key: "b", Size: 3000, GroupId: "g"}, {Key: "b", Size: 1}, {Key: "", Size: 0}},
				Config: &pb.PutConfig{ReplicaNum: &two, SoftPinAction: pb.SoftPinAction_SOFT_PIN_ACTION_ENABLE, SoftPinTtlMs: &ms, HardPin: true, DataType: 255},
			},
			&pb.BatchPutEndRequest{ClientId: bob, Items: []*pb.PutEndItem{{Key: long}, {Key: "b"}, {Key: "c"}}},
			&pb.BatchGetReplicaListRequest{Keys: []string{long, "b", "c"}}, &pb.BatchExistKeyRequest{Keys: []string{"b", "b"}},
			&pb.BatchReplicaClearRequest{ClientId: bob, Keys: []string{long, "b"}, SegmentName: "host-b"},
			&pb.UnmountSegmentRequest{ClientId: bob, SegmentId: other.GetId()}, &pb.GetReplicaListByRegexRequest{Regex: "^k", PageSize: 1},
			&pb.RemoveByRegexRequest{Regex: ".*", Force: true}, &pb.RemoveAllRequest{AllTenants: true},
		},
		{
			mount, &pb.PutStartRequest{ClientId: alice, Key: "a", Size: 1}, &pb.PutRevokeRequest{ClientId: alice, Key: "a", RequestId: 9},
			&pb.PutStartRequest{ClientId: bob, Key: "a", Size: 1 << 40}, &pb.BatchPutRevokeRequest{ClientId: alice, Items: []*pb.PutRevokeItem{{Key: "a"}}},
			&pb.BatchRemoveRequest{Keys: []string{"a", "a"}}, &pb.PingRequest{ClientId: alice}, &pb.BatchQueryIpRequest{ClientIds: []string{alice, bob}},
			&pb.ServiceReadyRequest{ContractRevision: 1}, &pb.GetFsdirRequest{}, &pb.GetStorageConfigRequest{}, &pb.MountLocalDiskSegmentRequest{},
		},
		{ // what is sent must not come back whole
			&pb.GetReplicaListByRegexRequest{Regex: strings.Repeat("(", 4000)}, &pb.GetReplicaListByRegexRequest{PageToken: strings.Repeat("x", 1<<16)},
			&pb.PingRequest{ClientId: strings.Repeat("x", 1<<16)}, &pb.RemoveByRegexRequest{Regex: `(a)\1`},
		},
	}
}

// A followedNode is a lone primary whose records a follower applies.
type followedNode struct {
	follower *follower
	store    *metadata.Store
	queue    *journal.Queue
	now      atomic.Int64 // cluster time
	conn     *grpc.ClientConn
	stop     func()
}

func newFollowedNode(t *testing.T) *followedNode {
	t.Helper()
	n := &followedNode{store: metadata.New(metadata.Options{}), follower: &follower{store: metadata.New(metadata.Options{})}}
	n.queue = journal.NewQueue(n.store, 1<<20)
	n.store.StartIDs(term)
	boot := clock.Boot()
	now := func() metadata.Time { return metadata.Time(n.now.Load()) }
	writer := journal.NewWriter(journal.WriterConfig{
		Store: n.store, Queue: n.queue, Log: n.follower, Term: term, Hold: params.HoldTime(), Now: now, Elapsed: boot,
	})
	if err := writer.Commit(t.Context(), &metadata.TermStart{Term: term, Params: params}); err != nil {
		t.Fatal(err)
	}
	gate := service.NewGate()
	gate.Open(service.NewMaster(service.Master{
		Settings: service.Settings{ClusterID: cluster, RootFSDir: "/fs", SoftPinTTL: 30 * time.Minute, MaxSoftPin: 24 * time.Hour, Version: "1.2.3"},
		Term:     term, Store: n.store, Leases: lonetest.Leases(n.store), Queue: n.queue, Now: now, Fence: func(context.Context) error { return nil }, Answers: func() bool { return true },
		Liveness: service.NewLiveness(10*time.Second, 0, boot, n.store), Counters: service.NewCounters(), AllocationFailed: func(uint64, metadata.Time) {},
	}))
	server := rpc.NewServer(rpc.Config{ClusterID: cluster, NodeID: me, Gate: gate, Node: &adminNode{store: n.store}, Log: zerolog.Nop()})
	listener := bufconn.Listen(1 << 16)
	conn, err := grpc.NewClient("passthrough:node", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	n.conn = conn
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- writer.Run(ctx) }()
	go func() { ended <- server.Serve(listener) }()
	n.stop = func() {
		_ = conn.Close()
		_ = server.Stop(ctx)
		cancel()
		for range cap(ended) {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}
	return n
}

// rawCodec sends and receives messages as the bytes they are.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = slices.Clone(b)
	return nil
}

// call makes one call and judges how it ends.
func (n *followedNode) call(t *testing.T, m method, payload []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var answer []byte
	err := n.conn.Invoke(ctx, m.name, payload, &answer, grpc.ForceCodec(rawCodec{}))
	if proto.Unmarshal(payload, m.request.New().Interface()) != nil {
		if st := status.Convert(err); st.Code() != codes.Internal || len(st.Details()) > 0 {
			t.Fatalf("%s with what is no request: %v; want Internal, without details", m.name, err)
		}
		return
	}
	if err == nil {
		return
	}
	e, from := rpcerr.Parse(err)
	switch {
	case from.NodeID != me || from.ClusterID != cluster || from.Term != term:
		t.Fatalf("%s: an error that is not of this node: %v; want %s of %s in term %d", m.name, err, me, cluster, term)
	case e.Kind == errs.Internal, e.Kind == errs.Unresolved, e.Kind == errs.NotLeader, e.Kind == errs.Unavailable:
		t.Fatalf("%s of a healthy node: %v; want a refusal of the request", m.name, err)
	case len(err.Error()) > 4096:
		t.Fatalf("%s: an error of %d bytes, want at most 4096", m.name, len(err.Error()))
	}
}

// check compares the follower, which must have a state without faults.
func (n *followedNode) check(t *testing.T) {
	t.Helper()
	if _, err := n.queue.Submit(t.Context()); err != nil { // waits for what is under way
		t.Fatal(err)
	}
	within(t, "the follower is where the node is", func() bool { // a heartbeat may be between the two
		return n.follower.store.Position() == n.store.Position()
	})
	var sum uint64
	for _, s := range rangesOf(n.store) {
		end := uint64(0)
		for _, r := range s.Ranges {
			if r.Offset < end || r.Length == 0 || r.Offset+r.Length > s.Size {
				t.Fatalf("segment %v of %d bytes has %+v behind %d; want it behind that, inside of the segment (promise A: no aliasing)", s.ID, s.Size, r, end)
			}
			end = r.Offset + r.Length
			sum += r.Length
		}
	}
	if busy := n.store.Stats().Busy; busy != sum {
		t.Fatalf("%d bytes are taken, somebody has %d; want as many (promise A: no aliasing)", busy, sum)
	}
}

// rangesOf returns the ranges of each segment, by offset.
func rangesOf(store *metadata.Store) map[segment.ID]metadata.SegmentRanges {
	all := make(map[segment.ID]metadata.SegmentRanges)
	for part := range store.Ranges(segment.ID{}) {
		for _, list := range part {
			list.Ranges = append(all[list.ID].Ranges, list.Ranges...)
			all[list.ID] = list
		}
	}
	for _, list := range all {
		slices.SortFunc(list.Ranges, func(a, b metadata.BusyRange) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return all
}

// A follower is a log that applies each commit as a standby does.
type follower struct{ store *metadata.Store }

var codec = service.Codec()

// Append applies a commit. What cannot be applied is an error, which ends the
// writer, and with it every call.
func (f *follower) Append(_ context.Context, s *journal.Sealed) error {
	if before := f.store.Position(); before.Seq > 0 && (before.Seq != s.Head.Checked || before.Digest != s.Head.Digest) {
		return fmt.Errorf("the follower: got %+v, want what the head says: %+v", before, s.Head)
	}
	c := &metadata.Commit{Seq: s.Head.Seq, Term: s.Head.Term, Time: s.Head.Time}
	for i, record := range s.Records {
		if record == nil {
			continue
		}
		_, changes, err := codec.DecodeRecord(metadata.Stream(i), record)
		if err != nil {
			return err
		}
		c.Changes = append(c.Changes, changes...)
	}
	_, err := f.store.Apply(c, nil)
	return err
}
