package app

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/rpc"
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
