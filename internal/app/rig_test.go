package app

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/promote"
)

// TestMain sees to it that nodes of this process leave nothing behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// A patient run waits for the connections over which a new member of etcd asks the others:
// it leaves them, and the listener at their other end gives them up after
// rafthttp.ConnReadTimeout, 5 s.
type patient struct{ *testing.M }

func (p patient) Run() int {
	status := p.M.Run()
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end) && goleak.Find() != nil; {
	}
	return status
}

// A member is a node in this process, and a way to ask it.
type member struct {
	*App
	t     *testing.T
	admin pb.AdminServiceClient
	log   *waittest.Buffer
	stop  context.CancelFunc
	ended chan error
}

// settings are those of a node on free ports. Its term outlasts a stall of a slow machine.
func settings(role promote.Role, id string, etcd []string) config.Config {
	c := config.Default(role)
	c.Node.ID = id
	c.Listen.RPCAddress, c.Listen.RPCPort, c.Listen.MetricsPort = "127.0.0.1", 0, 0
	c.HA.Enabled, c.HA.EtcdEndpoints = etcd != nil, etcd
	c.HA.SessionTTL, c.HA.FailoverAfter = 10*time.Second, 5*time.Second
	c.HA.RefoundWait, c.HA.HandoverTimeout = 100*time.Millisecond, 20*time.Second
	c.Lease.TTL = time.Second
	return c
}

// run runs a node until the test ends, or end is called.
func run(t *testing.T, c config.Config) *member {
	t.Helper()
	m := &member{t: t, log: new(waittest.Buffer), ended: make(chan error, 1)}
	if c.Node.DataDir == config.Default(config.Primary).Node.DataDir {
		c.Node.DataDir = t.TempDir()
	}
	var err error
	if m.App, err = New(c, "v-test", zerolog.New(m.log)); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	go func() { m.ended <- m.Run(ctx) }()
	t.Cleanup(m.end)
	secrecy := insecure.NewCredentials()
	if m.certs != nil {
		secrecy = credentials.NewTLS(m.certs.Client())
	}
	conn, err := grpc.NewClient(m.RPCAddress(), grpc.WithTransportCredentials(secrecy))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m.admin = pb.NewAdminServiceClient(conn)
	return m
}

// end stops the node as SIGTERM would, and waits.
func (m *member) end() {
	m.stop()
	select {
	case err := <-m.ended:
		if m.ended <- nil; err != nil {
			m.t.Errorf("node %s ended: got %v, want no error", m.cfg.Node.ID, err)
		}
	case <-time.After(time.Minute):
		m.t.Errorf("node %s: got no end within a minute of the stop, want one", m.cfg.Node.ID)
	}
}

// until waits until a node's status is as wanted.
func (m *member) until(what string, cond func(*pb.StatusResponse) bool) *pb.StatusResponse {
	m.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := m.admin.Status(m.t.Context(), &pb.StatusRequest{})
		if err == nil && cond(s) {
			return s
		}
		select {
		case <-deadline:
			m.t.Fatalf("node %s after a minute: got status %v, error %v, want that it %s\n%s", m.cfg.Node.ID, s, err, what, m.log)
		case <-tick.C:
		}
	}
}

// serves waits until a node is the primary and takes calls, which is a moment later.
func (m *member) serves() *pb.StatusResponse {
	m.t.Helper()
	return m.until("serves", func(s *pb.StatusResponse) bool {
		return s.GetNode().GetRole() == pb.Role_ROLE_PRIMARY
	})
}

func (m *member) promotable() *pb.StatusResponse {
	m.t.Helper()
	return m.until("could take over", func(s *pb.StatusResponse) bool { return s.GetNode().GetPromotable() })
}

// knows waits until a node sees others that could take over in etcd.
func (m *member) knows(promotable int) {
	m.t.Helper()
	m.until(fmt.Sprintf("knows %d promotable others", promotable), func(s *pb.StatusResponse) bool {
		n := 0
		for _, other := range s.GetNodes() {
			if other.GetPromotable() && other.GetNodeId() != m.cfg.Node.ID {
				n++
			}
		}
		return n == promotable
	})
}

// same demands that nodes have one digest at the sequence of the first.
func same(t *testing.T, first *member, others ...*member) {
	t.Helper()
	a, err := first.admin.Digest(t.Context(), &pb.DigestRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		b, err := other.admin.Digest(t.Context(), &pb.DigestRequest{Sequence: a.GetSequence()})
		if err != nil {
			t.Fatal(err)
		}
		if a.GetDigest() != b.GetDigest() {
			t.Errorf("at %d: %s has digest %s, %s has %s; want one (promise S: same state)", a.GetSequence(), first.cfg.Node.ID, a.GetDigest(), other.cfg.Node.ID, b.GetDigest())
		}
	}
}

// writer returns a client with memory mounted, closed with the test.
func writer(t *testing.T, c client.Config) *client.Client {
	t.Helper()
	cl, err := client.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	mount(t, cl)
	return cl
}

func mount(t *testing.T, c *client.Client) uuid.UUID {
	t.Helper()
	id := uuid.New()
	err := c.MountSegment(t.Context(), client.Segment{ID: id, Name: "host-" + id.String()[:4], Base: 1 << 32, Size: 1 << 20, Endpoint: id.String() + ":1"})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func put(t *testing.T, c *client.Client, key string) client.Reservation {
	t.Helper()
	r, err := c.PutStart(t.Context(), client.PutItem{Key: key, Size: 100}, client.PutConfig{})
	if err == nil {
		err = c.PutEnd(t.Context(), r.Ref(), client.SelectAll)
	}
	if err != nil {
		t.Fatalf("put %s: got %v, want no error", key, err)
	}
	return r
}
