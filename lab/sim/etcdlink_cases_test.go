package sim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// in runs a test in a bubble, with a server and a client of it.
func in(t *testing.T, opts etcdOptions, test func(t *testing.T, s *Server, l *Link, c *clientv3.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newEtcd(t, opts)
		l := s.Link("client")
		test(t, s, l, connect(t, l))
	})
}

func connect(t *testing.T, l *Link) *clientv3.Client {
	t.Helper()
	c, err := l.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// put returns how long a put takes, and its error.
func put(c *clientv3.Client, timeout time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	begun := time.Now()
	_, err := c.Put(ctx, "k", "")
	return time.Since(begun), err
}

func TestDelay(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, _ *Server, l *Link, c *clientv3.Client) {
		if took, err := put(c, time.Second); err != nil || took != 0 {
			t.Fatalf("without delay a put took %v, error %v; want 0s, no error", took, err)
		}
		l.Delay(100*time.Millisecond, 300*time.Millisecond)
		if took, err := put(c, time.Second); err != nil || took != 400*time.Millisecond {
			t.Errorf("with 100 ms there and 300 ms back a put took %v, error %v; want 400ms, no error", took, err)
		}
	})
}

func TestStall(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, s *Server, l *Link, c *clientv3.Client) {
		before := s.Revision()
		l.Stall()
		time.AfterFunc(time.Second, l.Resume)
		if _, err := put(c, 500*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a put over a stalled link: got error %v, want DeadlineExceeded", err)
		}
		if got := s.Revision(); got != before {
			t.Errorf("after a put over a stalled link: got revision %d, want %d", got, before)
		}
		if took, err := put(c, time.Second); err != nil || took != 500*time.Millisecond {
			t.Errorf("a put that waits for the end of the stall took %v, error %v; want 500ms, no error", took, err)
		}
	})
}

// A client that gives up does not take back its request; a cut loses it.
func TestRequestUnderWay(t *testing.T) {
	for name, cut := range map[string]bool{"the client gives up": false, "the link is cut": true} {
		t.Run(name, func(t *testing.T) {
			in(t, etcdOptions{}, func(t *testing.T, s *Server, l *Link, c *clientv3.Client) {
				before := s.Revision()
				l.Delay(200*time.Millisecond, 0)
				if _, err := put(c, 100*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("a put that takes longer than its client waits: got error %v, want DeadlineExceeded", err)
				}
				if cut {
					l.Cut()
				}
				time.Sleep(150 * time.Millisecond)
				if got, want := s.Revision() > before, !cut; got != want {
					t.Errorf("the request has arrived: got %v, want %v", got, want)
				}
			})
		})
	}
}

// Messages that were held back arrive one by one, each after its latency.
func TestLatency(t *testing.T) {
	latency := func(_ string, m proto.Message) time.Duration {
		if _, isPut := m.(*pb.PutRequest); isPut {
			return 3 * time.Millisecond
		}
		return 0
	}
	in(t, etcdOptions{Latency: latency}, func(t *testing.T, s *Server, l *Link, c *clientv3.Client) {
		if took, err := put(c, time.Second); err != nil || took != 6*time.Millisecond {
			t.Errorf("a put took %v, error %v; want 6ms, no error", took, err)
		}
		before := s.Revision()
		l.Stall()
		_, _ = put(c, time.Second)
		l.Resume()
		time.Sleep(2 * time.Millisecond)
		if got := s.Revision(); got != before {
			t.Errorf("2 ms after the stall: got revision %d, want %d", got, before)
		}
		time.Sleep(2 * time.Millisecond)
		if got, want := s.Revision(), before+1; got != want {
			t.Errorf("4 ms after the stall: got revision %d, want %d", got, want)
		}
	})
}

func TestUntilRetry(t *testing.T) {
	for since, want := range map[time.Duration]time.Duration{
		0:                      0,
		time.Millisecond:       49 * time.Millisecond,
		50 * time.Millisecond:  0,
		60 * time.Millisecond:  65 * time.Millisecond,
		300 * time.Millisecond: 106250 * time.Microsecond,
	} {
		if got := untilRetry(since); got != want {
			t.Errorf("the next attempt, %v after the connection broke: got %v, want %v", since, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, s *Server, l *Link, c *clientv3.Client) {
		other := connect(t, s.Link("other"))
		l.Cut()
		if _, err := put(c, time.Second); err == nil {
			t.Error("a put over a link that is cut: got no error, want one")
		}
		if _, err := put(other, time.Second); err != nil {
			t.Errorf("a put over another link: got error %v, want none", err)
		}
		l.Heal()
		time.Sleep(lastRetry)
		if _, err := put(c, time.Second); err != nil {
			t.Errorf("a put over a link that has healed: got error %v, want none", err)
		}
	})
}

func TestVerdicts(t *testing.T) {
	for name, tc := range map[string]struct {
		verdict Verdict
		code    codes.Code
		applied bool
	}{
		"serve":  {Serve, codes.OK, true},
		"refuse": {Refuse, codes.Unavailable, false},
		"break":  {Break, codes.Unavailable, true},
		"drop":   {Drop, codes.DeadlineExceeded, false},
		"lose":   {Lose, codes.DeadlineExceeded, true},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, etcdOptions{}, func(t *testing.T, s *Server, _ *Link, c *clientv3.Client) {
				other := connect(t, s.Link("other"))
				s.Fault(func(call Call) Verdict {
					if _, isPut := call.Request.(*pb.PutRequest); isPut && call.Client == "client" {
						return tc.verdict
					}
					return Serve
				})
				before := s.Revision()
				_, err := put(c, time.Second)
				code := status.Code(err)
				if errors.Is(err, context.DeadlineExceeded) {
					code = codes.DeadlineExceeded
				}
				if applied := s.Revision() > before; code != tc.code || applied != tc.applied {
					t.Errorf("got %v (%v), applied %v; want %v, applied %v", code, err, applied, tc.code, tc.applied)
				}
				if _, err := put(other, time.Second); err != nil {
					t.Errorf("a put of another client: got error %v, want none", err)
				}
			})
		})
	}
}

// The same on a stream: keepalives that arrive keep the lease, whatever becomes
// of their answers. There is a latency, as clientv3 repeats a keepalive at once
// that gets Unavailable.
func TestVerdictsOnKeepAlives(t *testing.T) {
	latency := func(string, proto.Message) time.Duration { return 10 * time.Millisecond }
	for name, tc := range map[string]struct {
		verdict Verdict
		answers bool
		kept    bool
	}{
		"serve":  {Serve, true, true},
		"refuse": {Refuse, false, false},
		"break":  {Break, false, true},
		"drop":   {Drop, false, false},
		"lose":   {Lose, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, etcdOptions{Latency: latency}, func(t *testing.T, s *Server, _ *Link, c *clientv3.Client) {
				lease, err := c.Grant(t.Context(), 2)
				if err != nil {
					t.Fatal(err)
				}
				s.Fault(func(call Call) Verdict {
					if _, keepAlive := call.Request.(*pb.LeaseKeepAliveRequest); keepAlive {
						return tc.verdict
					}
					return Serve
				})
				for range 4 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, err := c.KeepAliveOnce(ctx, lease.ID)
					<-ctx.Done()
					cancel()
					if answered := err == nil; answered != tc.answers {
						t.Errorf("a keepalive is answered: got %v (%v), want %v", answered, err, tc.answers)
					}
				}
				info, err := c.TimeToLive(t.Context(), lease.ID)
				if err != nil {
					t.Fatal(err)
				}
				if kept := info.TTL >= 0; kept != tc.kept {
					t.Errorf("after 4 s the lease is there: got %v (TTL %d), want %v", kept, info.TTL, tc.kept)
				}
			})
		})
	}
}

func TestHoldWatches(t *testing.T) {
	in(t, etcdOptions{}, func(t *testing.T, _ *Server, l *Link, c *clientv3.Client) {
		watch := c.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
		<-watch
		l.HoldWatches()
		time.AfterFunc(time.Minute, l.ReleaseWatches)
		held := time.Now()
		if took, err := put(c, time.Second); err != nil || took != 0 {
			t.Errorf("a put while watches are held took %v, error %v; want 0s, no error", took, err)
		}
		if resp := <-watch; len(resp.Events) != 1 || time.Since(held) != time.Minute {
			t.Errorf("the watch got %d events after %v, want 1 after 1m0s", len(resp.Events), time.Since(held))
		}
	})
}
