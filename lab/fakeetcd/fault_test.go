package fakeetcd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in runs a test in a bubble, with a server and a link to it.
func in(t *testing.T, opts Options, test func(t *testing.T, s *Server, l *Link, c *clientv3.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New(opts)
		t.Cleanup(s.Close)
		l := s.Link("client")
		c, err := l.Client()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		test(t, s, l, c)
	})
}

// put returns how long a put takes, and its error.
func put(c *clientv3.Client, patience time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begun := time.Now()
	_, err := c.Put(ctx, "k", "")
	return time.Since(begun), err
}

func TestDelay(t *testing.T) {
	in(t, Options{}, func(t *testing.T, _ *Server, l *Link, c *clientv3.Client) {
		if took, err := put(c, time.Second); err != nil || took != 0 {
			t.Fatalf("a put takes %v, %v", took, err)
		}
		l.Delay(100*time.Millisecond, 300*time.Millisecond)
		if took, err := put(c, time.Second); err != nil || took != 400*time.Millisecond {
			t.Errorf("with 100 ms there and 300 ms back a put takes %v, %v", took, err)
		}
	})
}

func TestStall(t *testing.T) {
	in(t, Options{}, func(t *testing.T, s *Server, l *Link, c *clientv3.Client) {
		if _, err := put(c, time.Second); err != nil {
			t.Fatal(err)
		}
		before := s.Revision()
		l.Stall()
		time.AfterFunc(time.Second, l.Resume)
		if _, err := put(c, 500*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a put over a stalled link: %v", err)
		}
		if got := s.Revision(); got != before {
			t.Errorf("it arrived: revision %d", got)
		}
		if took, err := put(c, time.Second); err != nil || took != 500*time.Millisecond {
			t.Errorf("a put that the end of the stall lets through takes %v, %v", took, err)
		}
	})
}

// A client that has given up does not call its request back; a cut loses it.
func TestWhatIsUnderWay(t *testing.T) {
	in(t, Options{}, func(t *testing.T, s *Server, l *Link, c *clientv3.Client) {
		l.Delay(200*time.Millisecond, 0)
		for _, cut := range []bool{false, true} {
			before := s.Revision()
			if _, err := put(c, 100*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) || s.Revision() != before {
				t.Fatalf("a put that takes longer than its client waits: %v, revision %d behind %d", err, s.Revision(), before)
			}
			if cut {
				l.Cut()
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if arrived := s.Revision() > before; arrived == cut {
				t.Errorf("cut: %v, it arrives: %v", cut, arrived)
			}
		}
	})
}

// Messages that were held back arrive one by one, each after its latency.
func TestLatency(t *testing.T) {
	latency := func(_ string, m proto.Message) time.Duration {
		if _, isPut := m.(*pb.PutRequest); isPut {
			return 3 * time.Millisecond
		}
		return 0
	}
	in(t, Options{Latency: latency}, func(t *testing.T, s *Server, l *Link, c *clientv3.Client) {
		if took, err := put(c, time.Second); err != nil || took != 6*time.Millisecond {
			t.Errorf("a put takes %v, %v", took, err)
		}
		before := s.Revision()
		l.Stall()
		_, _ = put(c, time.Second)
		l.Resume()
		time.Sleep(2 * time.Millisecond)
		if s.Revision() != before {
			t.Error("it arrives at once")
		}
		time.Sleep(2 * time.Millisecond)
		if s.Revision() == before {
			t.Error("it does not arrive")
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
			t.Errorf("%v after it broke: %v, want %v", since, got, want)
		}
	}
}

func TestCutAndDown(t *testing.T) {
	in(t, Options{}, func(t *testing.T, s *Server, l *Link, c *clientv3.Client) {
		for name, fault := range map[string]struct{ begin, end func() }{"cut": {l.Cut, l.Heal}, "down": {s.Down, s.Up}} {
			if _, err := put(c, 5*time.Second); err != nil {
				t.Fatalf("before %s: %v", name, err)
			}
			fault.begin()
			if _, err := put(c, time.Second); err == nil {
				t.Errorf("%s: a put gets through", name)
			}
			fault.end()
			time.Sleep(time.Second) // the client's longest pause before it connects again
			if _, err := put(c, time.Second); err != nil {
				t.Errorf("after %s: %v", name, err)
			}
		}
	})
}

// Leases do not run out while etcd is down.
func TestLeasesWhileDown(t *testing.T) {
	in(t, Options{}, func(t *testing.T, s *Server, _ *Link, c *clientv3.Client) {
		lease, err := c.Grant(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		s.Down()
		time.Sleep(time.Minute)
		s.Up()
		time.Sleep(time.Second)
		if info, err := c.TimeToLive(t.Context(), lease.ID); err != nil || info.TTL != 1 {
			t.Errorf("a second after the outage: %+v, %v", info, err)
		}
	})
}

func TestVerdicts(t *testing.T) {
	in(t, Options{}, func(t *testing.T, s *Server, _ *Link, c *clientv3.Client) {
		for verdict, want := range map[Verdict]struct {
			code    codes.Code
			applied bool
		}{
			Serve:  {codes.OK, true},
			Refuse: {codes.Unavailable, false},
			Break:  {codes.Unavailable, true},
			Lose:   {codes.DeadlineExceeded, true},
		} {
			s.Fault(func(call Call) Verdict {
				if _, isPut := call.Request.(*pb.PutRequest); isPut && call.Client == "client" {
					return verdict
				}
				return Serve
			})
			before := s.Revision()
			_, err := put(c, time.Second)
			code := status.Code(err)
			if errors.Is(err, context.DeadlineExceeded) {
				code = codes.DeadlineExceeded
			}
			if applied := s.Revision() > before; code != want.code || applied != want.applied {
				t.Errorf("verdict %d: %v, applied: %v", verdict, err, applied)
			}
		}
	})
}

func TestProgressNotify(t *testing.T) {
	in(t, Options{ProgressEvery: time.Minute}, func(t *testing.T, _ *Server, _ *Link, c *clientv3.Client) {
		w := c.Watch(t.Context(), "nothing", clientv3.WithProgressNotify())
		begun := time.Now()
		if resp := <-w; !resp.IsProgressNotify() || time.Since(begun) > 2*time.Minute {
			t.Errorf("after %v: %+v", time.Since(begun), resp)
		}
	})
}
