package rpc_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/certs"
	"github.com/understudy-store/understudy/internal/security/share"
)

// A rawPeer speaks HTTP/2 as it likes, and takes no byte of an answer.
type rawPeer struct {
	net.Conn
	*http2.Framer
	stream uint32
	ended  chan struct{} // closed when the server has closed the connection
	acks   chan struct{} // one for each settings that the server has read
}

func (n *node) raw() *rawPeer {
	n.t.Helper()
	conn, err := net.Dial("tcp", n.address)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.rawOver(conn)
}

func (n *node) rawOver(conn net.Conn) *rawPeer {
	n.t.Cleanup(func() { _ = conn.Close() })
	p := &rawPeer{Conn: conn, Framer: http2.NewFramer(conn, conn), ended: make(chan struct{}), acks: make(chan struct{}, 1000)}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	go func() {
		defer close(p.ended)
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			if s, ok := f.(*http2.SettingsFrame); ok && s.IsAck() {
				p.acks <- struct{}{}
			}
		}
	}()
	return p
}

// acked waits until the server has read so many of the settings that were sent, and so all that
// was sent before them.
func (p *rawPeer) acked(n int) {
	for range n {
		select {
		case <-p.acks:
		case <-p.ended:
		}
	}
}

// open begins a call whose headers have a value of so many bytes, in CONTINUATION frames
// of 16 KiB at most, and sends no byte of the request.
func (p *rawPeer) open(method string, value int) error {
	p.stream += 2
	stream := p.stream - 1
	var header bytes.Buffer
	enc := hpack.NewEncoder(&header)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	first := header.Len()
	if value > 0 {
		_ = enc.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("^", value), Sensitive: true}) // in neither table
	}
	err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Next(first), EndHeaders: value == 0})
	for header.Len() > 0 && err == nil {
		part := header.Next(16 << 10)
		err = p.WriteContinuation(stream, header.Len() == 0, part)
	}
	return err
}

// call sends the first bytes of a request, all of them if that many is 0.
func (p *rawPeer) call(method string, m proto.Message, first int) error {
	if err := p.open(method, 0); err != nil {
		return err
	}
	stream := p.stream - 1
	body, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	whole := first == 0
	if !whole {
		body = body[:first]
	}
	for len(body) > 16<<10 {
		if err := p.WriteData(stream, false, body[:16<<10]); err != nil {
			return err
		}
		body = body[16<<10:]
	}
	return p.WriteData(stream, whole, body)
}

// empty waits until nothing is counted any more.
func (n *node) empty(budget *share.Budget) {
	n.t.Helper()
	for began := time.Now(); !budget.Empty(); time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Since(began) > 30*time.Second {
			n.t.Fatal("after 30 s without calls: got bytes that are counted, want none")
		}
	}
}

// Who finishes no request has its connection closed before all of them have taken more
// than there is; what it took is free again then, and others did not notice.
func TestUnfinishedRequests(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 4 << 20 }).mount()
	open, arriving, _ := n.server.Budgets()
	large := &pb.BatchExistKeyRequest{Keys: []string{strings.Repeat("k", 60_000)}}
	p, sent := n.raw(), 0
	for ; sent < 1000; sent++ {
		if p.call(pb.ObjectService_BatchExistKey_FullMethodName, large, 60_000) != nil {
			break
		}
		select {
		case <-p.ended:
		default:
			continue
		}
		break
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("%d requests of 60 kB are not finished: got the connection open after 30 s, want it closed", sent)
	}
	n.empty(open)
	n.empty(arriving)
	n.put("k")
}

// So has who sends large requests whose calls wait for a commit: each keeps its request.
func TestRequestsOfCallsThatWait(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 4 << 20 }).mount()
	_, arriving, _ := n.server.Budgets()
	release := n.log.stall(t)
	p := n.raw()
	for i := range 100 {
		items := make([]*pb.PutStartItem, 16)
		for k := range items {
			items[k] = &pb.PutStartItem{Key: fmt.Sprintf("%d/%d/%s", i, k, strings.Repeat("k", 4000)), Size: 1}
		}
		if p.call(pb.ObjectService_BatchPutStart_FullMethodName, &pb.BatchPutStartRequest{ClientId: alice, Items: items}, 0) != nil {
			break
		}
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Error("100 calls with 64 kB each wait: got the connection open after 30 s, want it closed")
	}
	release()
	n.empty(arriving)
	n.put("k")
}

// So has who sends headers alone, whose bytes are in any kind of frame, or who opens calls
// and sends nothing at all.
func TestUnfinishedHeaders(t *testing.T) {
	for _, tc := range []struct {
		name         string
		calls, value int
	}{
		{"more than headers may have", 64, 1 << 20},
		{"many long headers", 160, 15 << 10},
		{"many calls", 1000, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 4 << 20 }).mount()
			open, _, _ := n.server.Budgets()
			p := n.raw()
			for range tc.calls {
				if p.open(pb.ObjectService_BatchExistKey_FullMethodName, tc.value) != nil {
					break
				}
			}
			select {
			case <-p.ended:
			case <-time.After(30 * time.Second):
				t.Fatalf("headers alone of %d calls, of %d bytes each: got the connection open after 30 s, want it closed", tc.calls, tc.value)
			}
			n.empty(open)
			n.put("k")
		})
	}
}

// Headers have 16 KiB at most, which is enough for the longest token.
func TestHeadersAreBounded(t *testing.T) {
	n := newNode(t).mount()
	exists := func(bytes int) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", strings.Repeat("x", bytes))
		_, err := n.objects.ExistKey(ctx, &pb.ExistKeyRequest{Key: "k"})
		return err
	}
	if err := exists(14 << 10); err != nil {
		t.Errorf("14 KiB: got %v, want no error", err)
	}
	if err := exists(16 << 10); err == nil || !strings.Contains(err.Error(), "16384") {
		t.Errorf("more than 16 KiB: got %v, want a refusal that names the bound", err)
	}
}

// What is given up or answered is not counted any more, whatever has arrived of it.
func TestFinishedRequestsAreNotCounted(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes, c.Limits.MessageBytes = 1<<20, 50_000 }).mount()
	open, arriving, _ := n.server.Budgets()
	p := n.raw()
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 64 << 10}) // takes answers
	p.acked(2)
	for i := range 100 {
		var err error
		switch i % 3 {
		case 0:
			err = p.call(pb.ObjectService_BatchExistKey_FullMethodName, &pb.BatchExistKeyRequest{Keys: []string{strings.Repeat("k", 40_000)}}, 0)
		case 1:
			if err = p.call(pb.ObjectService_BatchExistKey_FullMethodName, &pb.BatchExistKeyRequest{Keys: []string{strings.Repeat("k", 40_000)}}, 30_000); err == nil {
				err = p.WriteRSTStream(p.stream-1, http2.ErrCodeCancel)
			}
		case 2: // refused for its length, by the server
			err = p.call(pb.ObjectService_BatchExistKey_FullMethodName, &pb.BatchExistKeyRequest{Keys: []string{strings.Repeat("k", 60_000)}}, 20_000)
		}
		if err != nil {
			t.Fatalf("call %d: %v, want no error: all before are over", i, err)
		}
		_ = p.WriteSettings()
		p.acked(1)
		n.empty(open)
		n.empty(arriving)
	}
	select {
	case <-p.ended:
		t.Error("all calls were given up or answered: got the connection closed, want it open: none of them counts")
	default:
	}
}

// putLong puts so many keys of 1,000 bytes.
func (n *node) putLong(keys int) {
	n.t.Helper()
	for i := range keys {
		n.put(fmt.Sprintf("%01000d", i))
	}
}

// leaveUnread asks for a list of so many keys, of 1,000 bytes each, and takes no answer, until
// the host is refused more. It returns that error.
func (n *node) leaveUnread(p *rawPeer, keys int) (err error) {
	n.t.Helper()
	n.putLong(keys)
	within(n.t, "the share of the host is taken", func() bool {
		if err := p.call(pb.AdminService_ListKeys_FullMethodName, &pb.ListKeysRequest{PageSize: 1000}, 0); err != nil {
			n.t.Fatal(err)
		}
		_, err = n.ops.ListKeys(n.t.Context(), &pb.ListKeysRequest{PageSize: 1000})
		return err != nil
	})
	return err
}

// Answers that nobody reads are counted, also those of a few kB, and refused past the share of
// their host, until their connection ends.
func TestUnreadAnswers(t *testing.T) {
	for _, kB := range []int{100, 50, 10} {
		t.Run(fmt.Sprintf("%d kB", kB), func(t *testing.T) {
			n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 2 << 20 }).mount()
			_, _, unread := n.server.Budgets()
			p := n.raw()
			err := n.leaveUnread(p, kB)
			if e, _ := rpcerr.Parse(err); e.Kind != errs.Unresolved || !strings.Contains(err.Error(), "not read yet") {
				t.Errorf("got %v, want what is not read, and that the call may have been applied: it was made (V)", err)
			}
			if _, err := n.ops.ListKeys(t.Context(), &pb.ListKeysRequest{PageSize: 1}); err != nil {
				t.Errorf("a small answer: %v, want no error", err)
			}
			_ = p.Close()
			n.empty(unread)
			if _, err := n.ops.ListKeys(t.Context(), &pb.ListKeysRequest{PageSize: 1000}); err != nil {
				t.Errorf("when the connection has ended: %v, want no error", err)
			}
		})
	}
}

// Who takes no small answers has its connection closed, too, before they have taken more than
// there is.
func TestUnreadSmallAnswers(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 4 << 20 }).mount()
	open, _, _ := n.server.Budgets()
	n.put("k")
	p := n.raw()
	for range 1000 {
		if p.call(pb.ObjectService_ExistKey_FullMethodName, &pb.ExistKeyRequest{Key: "k"}, 0) != nil {
			break
		}
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Fatal("1,000 answers are not read: got the connection open after 30 s, want it closed")
	}
	n.empty(open)
}

// While a peer reads nothing, the answers to calls that it resets wait to be dropped: who resets
// more calls than may be under way has its connection closed.
func TestResetsWithoutReading(t *testing.T) {
	n := newNode(t).mount()
	open, _, unread := n.server.Budgets()
	n.putLong(100)
	conn, err := net.Dial("tcp", n.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	p := &rawPeer{Conn: conn, Framer: http2.NewFramer(conn, conn)}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = p.WriteWindowUpdate(0, 1<<30)
	for range 200 { // 20 MB, more than the system takes without a reader
		if err := p.call(pb.AdminService_ListKeys_FullMethodName, &pb.ListKeysRequest{PageSize: 1000}, 0); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "answers wait", func() bool { return !unread.Empty() })
	for err == nil {
		if err = p.call(pb.ObjectService_ExistKey_FullMethodName, &pb.ExistKeyRequest{Key: "k"}, 0); err == nil {
			err = p.WriteRSTStream(p.stream-1, http2.ErrCodeCancel)
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d calls were reset without reading: got the connection open, want it closed", p.stream/2-200)
	}
	n.empty(open)
}

// As many calls as one connection may have wait for a commit, and all get their answers: also
// while another connection of their host has nearly all that there is for requests.
func TestManyCallsOfOneConnection(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 32 << 20 }).mount()
	open, arriving, _ := n.server.Budgets()
	large, p := &pb.BatchExistKeyRequest{Keys: []string{strings.Repeat("k", 60_000)}}, n.raw()
	for range 250 {
		if err := p.call(pb.ObjectService_BatchExistKey_FullMethodName, large, 60_000); err != nil {
			t.Fatal(err)
		}
	}
	within(t, "15 of 16 MiB of requests are there", func() bool { return taken(arriving) > 14<<20 })
	release := n.log.stall(t)
	var calls sync.WaitGroup
	const many = 1000
	for i := range many {
		calls.Go(func() {
			if _, err := n.objects.PutStart(t.Context(), &pb.PutStartRequest{ClientId: alice, Key: fmt.Sprint(i), Size: 1}); err != nil {
				t.Errorf("call %d of %d at once: got error %v, want an answer", i, many, err)
			}
		})
	}
	within(t, "all calls wait", func() bool { return taken(open) > (many+200)*6<<10 })
	release()
	calls.Wait()
	_ = p.Close()
	n.empty(open)
	n.empty(arriving)
}

// taken is what all have of a budget.
func taken(b *share.Budget) int64 {
	_, all, _ := b.Take("nobody", 0)
	b.GiveBack("nobody", 0)
	return all
}

// Reads of many keys are refused before their keys are looked up, while earlier answers are
// not read: also where callers have roles.
func TestUnreadAnswersStopReads(t *testing.T) {
	for _, roles := range []bool{false, true} {
		t.Run(fmt.Sprintf("roles=%v", roles), func(t *testing.T) {
			var n *node
			var p *rawPeer
			if limit := func(c *rpc.Config) { c.Limits.Bytes = 2 << 20 }; roles {
				server, operator := identities(t)
				callers, err := access.New("", zerolog.Nop())
				if err != nil {
					t.Fatal(err)
				}
				n = newNode(t, limit, func(c *rpc.Config) { c.Callers, c.Credentials = callers, rpc.Credentials(server, true) })
				n.callOver(n.dial(grpc.WithTransportCredentials(credentials.NewTLS(operator))))
				h2 := operator.Clone()
				h2.NextProtos = []string{"h2"}
				conn, err := tls.Dial("tcp", n.address, h2)
				if err != nil {
					t.Fatal(err)
				}
				p = n.rawOver(conn)
			} else {
				n = newNode(t, limit)
				p = n.raw()
			}
			n.mount()
			_ = n.leaveUnread(p, 100)
			_, err := n.objects.BatchGetReplicaList(t.Context(), &pb.BatchGetReplicaListRequest{Keys: slices.Repeat([]string{"k"}, 5000)})
			wantKind(t, "a read of 5,000 keys", err, errs.Unavailable)
		})
	}
}

// The keys of reads that wait for their turn are in memory: a host may have its share of
// them, and no more.
func TestReadsThatWaitAreBounded(t *testing.T) {
	n := newNode(t, func(c *rpc.Config) { c.Limits.Bytes = 2 << 20 }).mount()
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("%0100d", i) // 1.0 MB on the wire, 1.2 MB in memory, of 1 MiB
	}
	for what, read := range map[string]func(keys []string) error{
		"BatchGetReplicaList": func(keys []string) error {
			_, err := n.objects.BatchGetReplicaList(t.Context(), &pb.BatchGetReplicaListRequest{Keys: keys})
			return err
		},
		"BatchExistKey": func(keys []string) error {
			_, err := n.objects.BatchExistKey(t.Context(), &pb.BatchExistKeyRequest{Keys: keys})
			return err
		},
	} {
		wantKind(t, what+" of more keys than a host may have waiting", read(keys), errs.Unavailable)
		if err := read(keys[:5000]); err != nil {
			t.Errorf("%s of half of them: got %v, want no error", what, err)
		}
	}
}

// identities returns what a server and an operator use for TLS.
func identities(t *testing.T) (server, operator *tls.Config) {
	t.Helper()
	authority, err := certs.Open(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	load := func(s certs.Subject) *certs.Source {
		files, err := authority.Issue(s.Name, s)
		if err != nil {
			t.Fatal(err)
		}
		source, err := certs.Load(files, nil)
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	node := load(certs.Subject{Name: "node", Role: "node", Hosts: []string{"127.0.0.1"}, Until: time.Hour})
	return node.Server(tls.RequireAndVerifyClientCert), load(certs.Subject{Name: "operator", Role: "operator", Until: time.Hour}).Client()
}
