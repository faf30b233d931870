package client_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
)

// A proxy in front of a node speaks TLS, and an interceptor of the caller sees each call.
func TestTLSAndInterceptors(t *testing.T) {
	cl := newCluster(t, 1)
	cl.lead(0)
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	f := newFront(t, cl.nodes[0].address, grpc.Creds(credentials.NewServerTLSFromCert(&server.TLS.Certificates[0])))
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())

	var mu sync.Mutex
	methods := make(map[string]int)
	count := func(ctx context.Context, method string, req, resp any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		mu.Lock()
		methods[method]++
		mu.Unlock()
		return invoke(ctx, method, req, resp, conn, options...)
	}
	log := new(bytes.Buffer)
	c := connect(t, client.Config{
		Addresses: []string{f.address}, TLS: &tls.Config{RootCAs: pool},
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(count)},
		Log:         slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if exists, err := c.ExistKey(t.Context(), "nothing"); err != nil || exists {
		t.Fatalf("over TLS: got %v, %v, want false and no error", exists, err)
	}
	c.Close()
	if n := methods[pb.ObjectService_ExistKey_FullMethodName]; n != 1 {
		t.Errorf("the interceptor saw %v, want one ExistKey", methods)
	}
	if !strings.Contains(log.String(), "found the leader") {
		t.Errorf("the log has %q, want the leader that was found", log)
	}
}
