package journal_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/metadata"
)

// A follower gets on although its watch brings nothing any more while etcd answers everything else.
func TestStuckWatchIsBegunAnew(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	var watches, stuck atomic.Int64
	client := watching(t, etcd, func(s grpc.ClientStream) grpc.ClientStream { return &watchStream{s, watches.Add(1), &stuck} })
	s, begin := newStandby(), now(t, client)
	p := newPrimary(t, etcd.Client(t), 1<<20).run().mount()
	follow(t, client, begin, s)
	p.mustPut("a")
	s.reach(t, p.store.Position().Seq)
	stuck.Store(watches.Load())
	p.mustPut("b")
	s.reach(t, p.store.Position().Seq)
}

// If one message of a watch takes longer than a watch may be silent, the watch is restarted, and may
// then be silent for longer.
func TestSlowMessageOfAWatchIsWaitedFor(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	client := watching(t, etcd, func(s grpc.ClientStream) grpc.ClientStream { return slowStream{s} })
	s, begin := newStandby(), now(t, client)
	p := newPrimary(t, etcd.Client(t), 1<<20).run().mount()
	p.mustPut("a")
	follow(t, client, begin, s)
	s.reach(t, p.store.Position().Seq)
}

// watching returns a client whose watches are wrapped.
func watching(t *testing.T, etcd *etcdtest.Cluster, wrap func(grpc.ClientStream) grpc.ClientStream) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: etcd.Endpoints(), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc,
			cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			s, err := streamer(ctx, desc, cc, method, opts...)
			if err != nil || !strings.HasSuffix(method, "/Watch") {
				return s, err
			}
			return wrap(s), nil
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A slowStream takes 7 s for each message that brings something.
type slowStream struct{ grpc.ClientStream }

func (s slowStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if r, ok := m.(*etcdserverpb.WatchResponse); err == nil && ok && len(r.Events) > 0 {
		select {
		case <-time.After(7 * time.Second):
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
	return err
}

// reach waits until the standby has come to a sequence.
func (s *standby) reach(t *testing.T, want metadata.Seq) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		moved := s.moved
		s.mu.Unlock()
		got := s.store.Position().Seq
		if got >= want {
			return
		}
		select {
		case <-moved:
		case <-deadline:
			t.Fatalf("the standby stays at %d, wanted %d", got, want)
		}
	}
}

// A watchStream brings nothing if its number is that of the stuck ones, or less.
type watchStream struct {
	grpc.ClientStream
	number int64
	stuck  *atomic.Int64
}

func (s *watchStream) RecvMsg(m any) error {
	for {
		if err := s.ClientStream.RecvMsg(m); err != nil || s.number > s.stuck.Load() {
			return err
		}
	}
}
