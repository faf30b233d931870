package etcdclient_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
)

// What people read of an error of etcd has no words of gRPC, Go or the sockets.
func TestSays(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("listing the nodes: %w", context.DeadlineExceeded), "listing the nodes: no answer within the time limit"},
		{fmt.Errorf("reading the head: %w", status.Error(codes.DeadlineExceeded, "context deadline exceeded")), "reading the head: no answer within the time limit"},
		{status.Error(codes.Unavailable, "error reading from server: read tcp 10.0.0.9:35686->10.0.0.1:2379: use of closed network connection"), "the connection was closed"},
		{fmt.Errorf("a commit: %w", status.Error(codes.Unavailable, "write tcp 10.0.0.9:35686->10.0.0.1:2379: use of closed network connection")), "a commit: the connection was closed"},
		{status.Error(codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded"), "etcdserver: mvcc: database space exceeded"},
		{errors.New("odd"), "odd"},
	} {
		if got := etcdclient.Says(c.err); got != c.want {
			t.Errorf("of %v: got %q, want %q", c.err, got, c.want)
		}
	}
}
