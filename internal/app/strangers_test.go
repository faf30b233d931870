package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// from returns a connection to a node that comes from an address.
func from(t *testing.T, address string, m *member) *grpc.ClientConn {
	t.Helper()
	dial := func(ctx context.Context, to string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext(ctx, "tcp", to)
	}
	conn, err := grpc.NewClient("passthrough:///"+m.RPCAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Strangers of several hosts who ask for the state all the time, and read nothing of it,
// keep no standby from getting it.
func TestStrangersLeaveTheStateToStandbys(t *testing.T) {
	t.Parallel()
	a := run(t, settings(config.Primary, "a", []string{}))
	term := a.serves().GetState().GetTerm()
	w := writer(t, client.Config{Addresses: []string{a.RPCAddress()}})
	for i := range 30 { // more than connections buffer
		var items []client.PutItem
		for j := range 20 {
			items = append(items, client.PutItem{Key: fmt.Sprintf("%s/%d/%d", strings.Repeat("x", 4000), i, j), Size: 1})
		}
		if _, err := w.BatchPutStart(t.Context(), items, client.PutConfig{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	held := make(chan struct{}, 1000)
	for host := range 4 {
		conn := from(t, fmt.Sprintf("127.0.0.%d", 2+host), a)
		for range 3 {
			strangers.Go(func() { askAndStall(ctx, conn, a, held) })
		}
	}
	defer strangers.Wait()
	defer leave()
	for range 4 { // as many as there can be
		<-held
	}
	b := run(t, settings(config.Standby, "b", []string{a.etcdEndpoint(t)}))
	b.promotable()
	if now := a.serves().GetState().GetTerm(); now != term {
		t.Errorf("term %d, want %d as before", now, term)
	}
}

// askAndStall asks for the state until it gets it, does not read it for as long as that is
// sent, and begins again.
func askAndStall(ctx context.Context, conn *grpc.ClientConn, a *member, held chan<- struct{}) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil {
		call, end := context.WithTimeout(ctx, 25*time.Second)
		stream, err := pb.NewSnapshotServiceClient(conn).StreamSnapshot(call, &pb.StreamSnapshotRequest{
			ClusterId: a.cfg.HA.ClusterID, NodeId: "b", Formats: []uint32{rpc.SnapshotFormat},
		})
		if err == nil {
			if _, err = stream.Recv(); err == nil {
				held <- struct{}{}
				<-call.Done()
			}
		}
		end()
		select {
		case <-ctx.Done():
		case <-again.C:
		}
	}
}

// What anybody could do without roles, nobody can who has none, or that of a client: each
// attempt is refused, changes nothing, and stands in the log with who made it.
func TestStrangersAreRefused(t *testing.T) {
	ours := newAuthority(t)
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("operator ci "+strings.Repeat("0123456789", 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := secure(settings(config.Primary, "a", []string{}), nodeFiles(t, ours))
	c.Security.Roles, c.Security.Tokens = true, tokens
	a := run(t, c)
	before := a.serves()
	victim := uuid.New()
	host := as(t, a, client.Config{TLS: tlsOf(t, issue(t, ours, "host", certs.Subject{Name: "host", Role: "client", ClientID: victim})), ClientID: victim})
	segment := mount(t, host)
	put(t, host, "k")

	thief := issue(t, ours, "thief", certs.Subject{Name: "thief", Role: "client", ClientID: uuid.New()})
	memory := &pb.Segment{Id: uuid.NewString(), Name: "f", Base: 1 << 32, Size: 1 << 20, Endpoint: "f:1", Protocol: "tcp"}
	for who, files := range map[string]certs.Files{"": {CA: ours.File()}, "thief": thief} {
		conn, err := grpc.NewClient(a.RPCAddress(), grpc.WithTransportCredentials(credentials.NewTLS(tlsOf(t, files))))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for call, request := range map[string]proto.Message{
			pb.ClientService_MountSegment_FullMethodName:     &pb.MountSegmentRequest{ClientId: victim.String(), Segment: memory},
			pb.ClientService_ReMountSegment_FullMethodName:   &pb.ReMountSegmentRequest{ClientId: victim.String(), Segments: []*pb.Segment{memory}},
			pb.ClientService_UnmountSegment_FullMethodName:   &pb.UnmountSegmentRequest{ClientId: victim.String(), SegmentId: segment.String()},
			pb.ClientService_Ping_FullMethodName:             &pb.PingRequest{ClientId: victim.String()},
			pb.ObjectService_RemoveAll_FullMethodName:        &pb.RemoveAllRequest{Force: true},
			pb.AdminService_Handover_FullMethodName:          &pb.HandoverRequest{},
			pb.AdminService_StartEmpty_FullMethodName:        &pb.StartEmptyRequest{},
			pb.AdminService_PauseTakeover_FullMethodName:     &pb.PauseTakeoverRequest{},
			pb.AdminService_ListKeys_FullMethodName:          &pb.ListKeysRequest{},
			pb.SnapshotService_StreamSnapshot_FullMethodName: &pb.StreamSnapshotRequest{ClusterId: a.cfg.HA.ClusterID, NodeId: "a", Formats: []uint32{rpc.SnapshotFormat}},
			pb.AdminService_Events_FullMethodName:            &pb.EventsRequest{},
			pb.AdminService_Backup_FullMethodName:            &pb.BackupRequest{},
		} {
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, call)
			if err == nil {
				err = errors.Join(stream.SendMsg(request), stream.CloseSend())
			}
			if err == nil {
				err = stream.RecvMsg(new(emptypb.Empty))
			}
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s of %q: got %v, want PermissionDenied", call, who, err)
			}
			if line := logged(a, `"order":"`+path.Base(call)+`"`, `"identity":"`+who+`"`); !strings.Contains(line, `"peer":"127.0.0.1:`) || !strings.Contains(line, `"result":"ILLEGAL_CLIENT"`) {
				t.Errorf("%s of %q: the log has %q, want a line with who asked and what came of it", call, who, line)
			}
		}
	}
	after := a.serves()
	if after.GetState().GetTerm() != before.GetState().GetTerm() || after.GetState().GetSegments() != 1 || after.GetState().GetObjects() != 1 {
		t.Errorf("got %v, want the term %d, a segment and an object as before", after.GetState(), before.GetState().GetTerm())
	}
}

// logged returns the first line of a node's log with all of some texts.
func logged(m *member, texts ...string) string {
	for line := range strings.Lines(m.log.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return line
		}
	}
	return ""
}

// Without roles an order is obeyed, whoever gave it, and logged with the address.
func TestOrdersOfAnybodyAreLogged(t *testing.T) {
	a := run(t, settings(config.Primary, "a", nil))
	a.serves()
	conn := from(t, "127.0.0.2", a)
	if _, err := pb.NewObjectServiceClient(conn).RemoveAll(t.Context(), &pb.RemoveAllRequest{Force: true}); err != nil {
		t.Fatal(err)
	}
	if line := logged(a, `"order":"RemoveAll"`); !strings.Contains(line, `"peer":"127.0.0.2:`) || !strings.Contains(line, `"result":"OK"`) {
		t.Errorf("the log has %q, want the order, the address and the result", line)
	}
}

// Without roles anybody may mount under a client's id; who takes its memory by that is logged.
func TestMountsUnderAnothersIDAreLogged(t *testing.T) {
	a := run(t, settings(config.Primary, "a", nil))
	a.serves()
	victim := uuid.NewString()
	for instance, address := range []string{"127.0.0.1", "127.0.0.2"} {
		_, err := pb.NewClientServiceClient(from(t, address, a)).MountSegment(t.Context(), &pb.MountSegmentRequest{
			ClientId: victim, InstanceId: uint64(instance + 1),
			Segment: &pb.Segment{Id: uuid.NewString(), Name: "m", Base: uint64(instance+1) << 32, Size: 1 << 20, Endpoint: "m:1", Protocol: "tcp"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	line := logged(a, "a mount took memory of others", `"part":"audit"`, `"peer":"127.0.0.2"`, `"client":"`+victim+`"`, `"owner":"`+victim+`"`, `"owner_peer":"127.0.0.1"`)
	if line == "" {
		t.Error("a mount under another's id: got no line in the log, want one with both peers in the audit")
	}
}

// Six hundred callers of HTTP who keep their connections, and ask nothing more, keep
// nobody from asking how the node is.
func TestIdleHTTPConnectionsLeaveRoomForHealth(t *testing.T) {
	a := run(t, settings(config.Primary, "a", nil))
	a.serves()
	for range 600 {
		c, err := net.Dial("tcp", a.cfg.Node.HTTPAddress)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		askHealth(t, c)
	}
	c, err := net.Dial("tcp", a.cfg.Node.HTTPAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	askHealth(t, c)
}

// askHealth asks for a node's health and keeps the connection.
func askHealth(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("/health: got %s, want 200", resp.Status)
	}
}
