package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

var want = rpc.SnapshotRequest{ClusterID: cluster, NodeID: "node-2"}

func TestSnapshotOverTheWire(t *testing.T) {
	n := newNode(t).mount()
	var keys []string
	for i := range 3000 {
		keys = append(keys, fmt.Sprintf("key/%d", i))
	}
	items := make([]*pb.PutStartItem, len(keys))
	for i, key := range keys {
		items[i] = &pb.PutStartItem{Key: key, Size: 100}
	}
	if resp, err := n.objects.BatchPutStart(t.Context(), &pb.BatchPutStartRequest{ClientId: alice, Items: items}); err != nil || len(resp.GetErrors()) > 0 {
		t.Fatal(err)
	}
	n.put("whole")
	before := n.store.Position()
	loader := metadata.NewLoader(metadata.Options{})
	info, err := rpc.FetchSnapshot(t.Context(), n.conn, want, loader.Add)
	if err != nil {
		t.Fatal(err)
	}
	if info.NodeID != me || info.Term != term || info.Start != before.Seq || info.Revision != 4711 || info.Head != "{}" || info.Parts != metadata.SnapshotParts || info.End < info.Start || info.Bytes == 0 {
		t.Errorf("%+v, the store was at %+v; want parts from there on, with revision 4711 and the head", info, before)
	}
	if loader.Start() != info.Start || loader.End() != info.End {
		t.Errorf("the parts stand at %d to %d, the stream said %d to %d; want the same", loader.Start(), loader.End(), info.Start, info.End)
	}
	for seq := info.Start + 1; seq <= info.End; seq++ { // heartbeats
		if err := loader.Apply(&metadata.Commit{Seq: seq, Term: term, Time: n.store.Position().Time}); err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := loader.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loaded.Inspect(metadata.DefaultTenant, "whole"); err != nil {
		t.Errorf("an object in the loaded snapshot: got error %v, want it there", err)
	}
	if got, want := loaded.Stats().Objects, n.store.Stats().Objects; got != want {
		t.Errorf("%d objects, want %d", got, want)
	}
}

func TestSnapshotsThatAreRefused(t *testing.T) {
	n := newNode(t)
	never := func([]byte) error { t.Error("a refused snapshot: got a part, want none"); return nil }
	fetch := func(r rpc.SnapshotRequest) error {
		_, err := rpc.FetchSnapshot(t.Context(), n.conn, r, never)
		return err
	}
	err := fetch(rpc.SnapshotRequest{ClusterID: "other", NodeID: "node-2"})
	if errs.KindOf(err) != errs.InvalidParams || !strings.Contains(err.Error(), `"other"`) || !strings.Contains(err.Error(), `"test"`) || !strings.Contains(err.Error(), "--cluster_id") {
		t.Errorf("another cluster: %v; want both clusters and --cluster_id named", err)
	}
	n.gate.Close(service.Hint{Term: 8, RPC: "b:2"})
	err = fetch(want)
	var notLeader *service.NotLeaderError
	if errs.KindOf(err) != errs.NotLeader || !errors.As(err, &notLeader) || notLeader.Hint != (service.Hint{Term: 8, RPC: "b:2"}) {
		t.Errorf("a standby: %v; want the new primary b:2 in term 8", err)
	}
	n.gate.Open(n.master)

	if _, err := rpc.FetchSnapshot(t.Context(), n.conn, want, func([]byte) error { return errSecret }); !errors.Is(err, errSecret) {
		t.Errorf("the caller's own error: got %v, want errSecret", err)
	}
}

func TestSnapshotsAtOnceAreBounded(t *testing.T) {
	waiting := waitingSource{begun: make(chan struct{}, 1)}
	n := newNode(t, func(c *rpc.Config) { c.Limits.Snapshots, c.Snapshots = 1, waiting })
	never := func([]byte) error { t.Error("a snapshot that only waits: got a part, want none"); return nil }
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := rpc.FetchSnapshot(ctx, n.conn, want, never)
		first <- err
	}()
	<-waiting.begun
	_, err := rpc.FetchSnapshot(t.Context(), n.conn, want, never)
	if errs.KindOf(err) != errs.Unavailable {
		t.Errorf("one snapshot too many: got %v, want Unavailable", err)
	}
	cancel()
	if err := <-first; errs.KindOf(err) != errs.Unresolved {
		t.Errorf("the snapshot that was given up: got %v, want Unresolved", err)
	}
	within(t, "room for another one", func() bool {
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := rpc.FetchSnapshot(short, n.conn, want, never)
		return errs.KindOf(err) == errs.Unresolved // it was let in, and waited
	})
}

// waitingSource begins a snapshot when nobody wants it any more.
type waitingSource struct{ begun chan struct{} }

func (w waitingSource) BeginSnapshot(ctx context.Context) (rpc.SnapshotBegin, error) {
	select {
	case w.begun <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return rpc.SnapshotBegin{}, ctx.Err()
}

// A sender that goes silent is given up, so that another can be asked.
func TestFetchGivesUpASilentSender(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Snapshots = waitingSource{begun: make(chan struct{}, 1)} })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, patience := range []time.Duration{1, 50 * time.Millisecond} { // before there is a connection, and behind that
		r := want
		r.Patience = patience
		_, err := rpc.FetchSnapshot(ctx, n.conn, r, func([]byte) error { t.Error("a silent sender: got a part, want none"); return nil })
		if !errors.Is(err, rpc.ErrSnapshotBroken) || !strings.Contains(err.Error(), "nothing has come") || ctx.Err() != nil {
			t.Errorf("after %v: got %v, want rpc.ErrSnapshotBroken with \"nothing has come\"", patience, err)
		}
	}
}

// The term ends while its snapshot is sent.
func TestSnapshotEndsWithItsTerm(t *testing.T) {
	for name, end := range map[string]func(n *node){
		"fenced": func(n *node) { n.fenced.Store(true) },
		"another term in the same state": func(n *node) {
			at := n.store.Position()
			if _, err := n.store.Apply(&metadata.Commit{Seq: at.Seq + 1, Term: term + 1, Time: at.Time, Changes: []metadata.Change{
				&metadata.TermStart{Term: term + 1, Params: params},
			}}, nil); err != nil {
				n.t.Error(err)
			}
		},
	} {
		n := newNode(t)
		asked := 0
		hook := func() {
			if asked++; asked == 50 {
				end(n)
			}
		}
		n.onFence.Store(&hook)
		parts := 0
		_, err := rpc.FetchSnapshot(t.Context(), n.conn, want, func([]byte) error { parts++; return nil })
		if errs.KindOf(err) != errs.NotLeader || parts == 0 || parts > 50 {
			t.Errorf("%s: %d parts, then %v; want NotLeader after 1 to 50 parts", name, parts, err)
		}
	}
}

// script is a sender that sends what it is told.
type script struct {
	pb.UnimplementedSnapshotServiceServer
	messages []*pb.StreamSnapshotResponse
	err      error
}

func (s *script) StreamSnapshot(_ *pb.StreamSnapshotRequest, stream grpc.ServerStreamingServer[pb.StreamSnapshotResponse]) error {
	for _, m := range s.messages {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return s.err
}

// scripted returns a connection to a sender, and that.
func scripted(t *testing.T) (*script, *grpc.ClientConn) {
	t.Helper()
	l, s, server := bufconn.Listen(1<<20), &script{}, grpc.NewServer()
	pb.RegisterSnapshotServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///sender", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: got %v, want no error", err)
		}
	})
	return s, conn
}

// snapshot returns the messages of a snapshot of these parts, cut into chunks
// of 3 bytes.
func snapshot(parts ...string) []*pb.StreamSnapshotResponse {
	header := &pb.ResponseHeader{Term: 5, ClusterId: cluster, NodeId: me}
	list := []*pb.StreamSnapshotResponse{{Content: &pb.StreamSnapshotResponse_Start{Start: &pb.SnapshotStart{
		Format: rpc.SnapshotFormat, StartSequence: 10, StartRevision: 20, Parts: uint32(len(parts)),
	}}}}
	for i, part := range parts {
		for chunk := range slices.Chunk([]byte(part), 3) {
			list = append(list, &pb.StreamSnapshotResponse{Content: &pb.StreamSnapshotResponse_Chunk{Chunk: &pb.SnapshotChunk{Part: uint32(i), Data: chunk}}})
		}
		list[len(list)-1].GetChunk().Last = true
	}
	all := strings.Join(parts, "")
	list = append(list, &pb.StreamSnapshotResponse{Content: &pb.StreamSnapshotResponse_End{End: &pb.SnapshotEnd{
		EndSequence: 12, Bytes: uint64(len(all)), Checksum: xxh3.HashString(all),
	}}})
	for _, m := range list {
		m.Header = proto.CloneOf(header)
	}
	return list
}

var someParts = []string{"first", "x", "third part", "last"}

func TestFetchWhole(t *testing.T) {
	s, conn := scripted(t)
	s.messages = snapshot(someParts...)
	var got []string
	info, err := rpc.FetchSnapshot(t.Context(), conn, want, func(part []byte) error {
		got = append(got, string(part))
		return nil
	})
	if err != nil || !slices.Equal(got, someParts) {
		t.Errorf("got parts %q, %v; want %q", got, err, someParts)
	}
	if info != (rpc.SnapshotInfo{NodeID: me, Term: 5, Start: 10, Revision: 20, End: 12, Parts: 4, Bytes: 20}) {
		t.Errorf("got %+v, want what the sender announced and 20 bytes in 4 parts", info)
	}
}

// However a stream ends, without its last message it is of no use.
func TestFetchCutAtEveryMessage(t *testing.T) {
	s, conn := scripted(t)
	whole := snapshot(someParts...)
	for i := range whole {
		for _, end := range []error{nil, status.Error(codes.Unavailable, "the node went away")} {
			s.messages, s.err = whole[:i], end
			_, err := rpc.FetchSnapshot(t.Context(), conn, want, func([]byte) error { return nil })
			switch {
			case end == nil && !errors.Is(err, rpc.ErrSnapshotBroken):
				t.Errorf("cut behind message %d: %v; want ErrSnapshotBroken", i, err)
			case end != nil && errs.KindOf(err) != errs.Unresolved:
				t.Errorf("broken behind message %d: %v; want Unresolved", i, err)
			}
		}
	}
	// A node that fails behind the last message may have more to say.
	s.messages, s.err = whole, errs.Internal
	if _, err := rpc.FetchSnapshot(t.Context(), conn, want, func([]byte) error { return nil }); err == nil {
		t.Error("a stream that fails after its last message: got the snapshot accepted, want an error")
	}
}

func TestFetchDamaged(t *testing.T) {
	s, conn := scripted(t)
	type messages = []*pb.StreamSnapshotResponse
	for name, tc := range map[string]struct {
		says   string
		damage func(messages) messages
	}{
		"a byte flipped":          {"checksum", func(m messages) messages { m[2].GetChunk().Data[1] ^= 1; return m }},
		"a chunk left out":        {"bytes have come", func(m messages) messages { return append(m[:1], m[2:]...) }},
		"a part left out":         {"stands in part", func(m messages) messages { return append(m[:3], m[4:]...) }},
		"a chunk twice":           {"bytes have come", func(m messages) messages { return slices.Insert(m, 2, m[1]) }},
		"chunks swapped":          {"checksum", func(m messages) messages { m[4], m[5] = m[5], m[4]; return m }},
		"parts swapped":           {"stands in part", func(m messages) messages { m[2], m[3] = m[3], m[2]; return m }},
		"no start":                {"does not begin", func(m messages) messages { return m[1:] }},
		"two starts":              {"no chunk", func(m messages) messages { return slices.Insert(m, 1, m[0]) }},
		"an early end":            {"no chunk", func(m messages) messages { return append(m[:5], m[len(m)-1]) }},
		"something behind it":     {"follows its end", func(m messages) messages { return append(m, m[len(m)-1]) }},
		"a wrong sum":             {"checksum", func(m messages) messages { m[len(m)-1].GetEnd().Checksum++; return m }},
		"a wrong size":            {"bytes have come", func(m messages) messages { m[len(m)-1].GetEnd().Bytes++; return m }},
		"an end before its start": {"it ends at", func(m messages) messages { m[len(m)-1].GetEnd().EndSequence = 9; return m }},
		"no parts":                {"0 parts", func(m messages) messages { m[0].GetStart().Parts = 0; return m }},
		"parts without end":       {"parts", func(m messages) messages { m[0].GetStart().Parts = 1 << 30; return m }},
		"fewer parts":             {"no end", func(m messages) messages { m[0].GetStart().Parts--; return m }},
		"an empty chunk":          {"is empty", func(m messages) messages { m[1].GetChunk().Data = nil; return m }},
		"a large chunk":           {"a chunk has", func(m messages) messages { m[1].GetChunk().Data = make([]byte, pb.MaxSnapshotChunkBytes+1); return m }},
		"another term":            {"goes on as", func(m messages) messages { m[4].Header.Term = 6; return m }},
		"no term":                 {"term 0", func(m messages) messages { m[0].Header.Term = 0; return m }},
		"another node":            {"goes on as", func(m messages) messages { m[4].Header.NodeId = "node-3"; return m }},
		"another cluster":         {"belongs to cluster", func(m messages) messages { m[0].Header.ClusterId = "other"; return m }},
		"no header":               {"belongs to cluster", func(m messages) messages { m[3].Header = nil; return m }},
		"nothing in it":           {"no chunk", func(m messages) messages { m[3].Content = nil; return m }},
	} {
		s.messages = tc.damage(snapshot(someParts...))
		_, err := rpc.FetchSnapshot(t.Context(), conn, want, func([]byte) error { return nil })
		if !errors.Is(err, rpc.ErrSnapshotBroken) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want ErrSnapshotBroken with %q", name, err, tc.says)
		}
	}
	s.messages = snapshot(someParts...)
	s.messages[0].GetStart().Format = 2
	if _, err := rpc.FetchSnapshot(t.Context(), conn, want, func([]byte) error { return nil }); errs.KindOf(err) != errs.InvalidVersion {
		t.Errorf("another format: got %v, want InvalidVersion", err)
	}
}

// A part larger than a chunk goes out in several messages.
func TestLargePart(t *testing.T) {
	n := newNode(t)
	big := strings.Repeat("0123456789abcdef", pb.MaxSnapshotChunkBytes/16) + "and a rest"
	begin, err := n.BeginSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begin.First = []byte(big)
	n2 := newNode(t, func(c *rpc.Config) { c.Snapshots = source(begin) })
	var first []byte
	chunks := 0
	stream, err := pb.NewSnapshotServiceClient(n2.conn).StreamSnapshot(t.Context(), &pb.StreamSnapshotRequest{ClusterId: cluster, Formats: []uint32{1}})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if c := m.GetChunk(); c != nil && c.GetPart() == 0 {
			chunks++
			if first = append(first, c.GetData()...); len(c.GetData()) > pb.MaxSnapshotChunkBytes || c.GetLast() != (chunks == 2) {
				t.Errorf("chunk %d has %d bytes, last %v; want at most 1 MiB, and the second to be the last", chunks, len(c.GetData()), c.GetLast())
			}
		}
	}
	if chunks != 2 || string(first) != big {
		t.Errorf("%d chunks, %d bytes; want 2 with %d bytes", chunks, len(first), len(big))
	}
}

// What a server sends in parts goes out under the smallest --max-message-bytes
// that there is.
func TestPartsUnderTheSmallestMessageLimit(t *testing.T) {
	smallest := func(c *rpc.Config) { c.Limits.MessageBytes = 1 << 20 }
	n := newNode(t, smallest).mount()
	begin, err := n.BeginSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begin.First = make([]byte, pb.MaxSnapshotChunkBytes+1)
	sender := newNode(t, smallest, func(c *rpc.Config) { c.Snapshots = source(begin) })
	info, err := rpc.FetchSnapshot(t.Context(), sender.conn, want, func([]byte) error { return nil })
	if err != nil || info.Parts != metadata.SnapshotParts {
		t.Errorf("snapshot: %+v, %v; want all parts", info, err)
	}

	if _, err := n.clients.MountLocalDiskSegment(t.Context(), &pb.MountLocalDiskSegmentRequest{ClientId: alice, EnableOffloading: true}); err != nil {
		t.Fatal(err)
	}
	const objects = 300
	for i := range objects {
		n.put(fmt.Sprintf("%04d", i) + strings.Repeat("x", 4092))
	}
	stream, err := n.ops.DumpRanges(t.Context(), &pb.DumpRangesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := receive(stream)
	ranges := 0
	for _, m := range all {
		ranges += len(m.GetRanges())
	}
	if err != nil || ranges != objects {
		t.Errorf("dump: %d messages, %v; want %d ranges, got %d", len(all), err, objects, ranges)
	}
	tasks, err := n.clients.OffloadObjectHeartbeat(t.Context(), &pb.OffloadObjectHeartbeatRequest{ClientId: alice, EnableOffloading: true})
	if err != nil || proto.Size(tasks) < 1<<20 {
		t.Errorf("tasks to copy: %d, %v; want more than 1 MiB", len(tasks.GetTasks()), err)
	}
}

// source begins the same snapshot each time.
type source rpc.SnapshotBegin

func (s source) BeginSnapshot(context.Context) (rpc.SnapshotBegin, error) {
	return rpc.SnapshotBegin(s), nil
}

// One host gets half of the places at most.
func TestOneHostLeavesSnapshotsToOthers(t *testing.T) {
	waiting := waitingSource{begun: make(chan struct{}, 4)}
	n := newNode(t, func(c *rpc.Config) { c.Snapshots = waiting })
	never := func([]byte) error { t.Error("a snapshot that only waits: got a part, want none"); return nil }
	ctx, cancel := context.WithCancel(t.Context())
	var fetches sync.WaitGroup
	for range 2 {
		fetches.Go(func() { _, _ = rpc.FetchSnapshot(ctx, n.conn, want, never) })
		<-waiting.begun
	}
	_, err := rpc.FetchSnapshot(t.Context(), n.conn, want, never)
	if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "2 of them to your host") {
		t.Errorf("a third snapshot to one host: got %v, want Unavailable", err)
	}
	cancel()
	fetches.Wait()
}

// Strangers who take all places leave one to each node that is registered.
func TestSnapshotPlacesOfRegisteredNodes(t *testing.T) {
	waiting := waitingSource{begun: make(chan struct{}, 4)}
	n := newNode(t, func(c *rpc.Config) {
		c.Limits.Snapshots, c.Snapshots = 2, waiting
		c.Registered = func(id, host string) bool { return id == "node-2" && host == "127.0.0.1" }
	})
	never := func([]byte) error { t.Error("a snapshot that only waits: got a part, want none"); return nil }
	ctx, cancel := context.WithCancel(t.Context())
	var fetches sync.WaitGroup
	hold := func(id string, conn *grpc.ClientConn) {
		r := want
		r.NodeID = id
		fetches.Go(func() { _, _ = rpc.FetchSnapshot(ctx, conn, r, never) })
		<-waiting.begun
	}
	elsewhere := n.dial(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, "tcp", address)
	}))
	hold("stranger", n.conn)
	hold("stranger", elsewhere)
	hold("node-2", n.conn)
	for what, tc := range map[string]struct {
		conn *grpc.ClientConn
		id   string
	}{
		"another stranger": {n.conn, "node-3"}, "a second one to a node": {n.conn, "node-2"}, "its id from another host": {elsewhere, "node-2"},
	} {
		r := want
		r.NodeID = tc.id
		if _, err := rpc.FetchSnapshot(t.Context(), tc.conn, r, never); errs.KindOf(err) != errs.Unavailable {
			t.Errorf("%s: got %v, want Unavailable", what, err)
		}
	}
	cancel()
	fetches.Wait()
}
