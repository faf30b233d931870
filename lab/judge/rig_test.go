package judge

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/lab/waittest"
	"github.com/understudy-store/understudy/promote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A member is a node in this process, and a way to ask it.
type member struct {
	*app.App
	t     *testing.T
	admin pb.AdminServiceClient
	stop  context.CancelFunc
	ended chan error
}

// run runs a node until the test ends, or end is called. Without etcd it is
// alone.
func run(t *testing.T, role promote.Role, id string, etcd []string, change ...func(*config.Config)) *member {
	t.Helper()
	c := config.Default(role)
	c.Node.ID, c.Node.DataDir = id, t.TempDir()
	c.Listen.RPCAddress, c.Listen.RPCPort, c.Listen.MetricsPort = "127.0.0.1", 0, 0
	c.HA.Enabled, c.HA.EtcdEndpoints = etcd != nil, etcd
	c.HA.SessionTTL, c.HA.FailoverAfter, c.HA.HandoverTimeout = 12*time.Second, 6*time.Second, 40*time.Second // a slow machine is no reason for another term
	c.HA.RefoundWait, c.Lease.TTL = 100*time.Millisecond, 500*time.Millisecond
	quotas := Config{NoEviction: true}
	c.Tenants.Enabled, c.Tenants.ConnectorURI = true, filepath.Join(c.Node.DataDir, "quotas.yaml")
	c.Storage.Offload, c.Storage.Promotion.On, c.Storage.Promotion.Threshold = true, true, 1
	if err := os.WriteFile(c.Tenants.ConnectorURI, []byte(quotas.Quotas()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&c)
	}
	a, err := app.New(c, "v-test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{App: a, t: t, stop: stop, ended: make(chan error, 1)}
	go func() { m.ended <- m.Run(ctx) }()
	t.Cleanup(m.end)
	m.admin = askAt(t, m.RPCAddress())
	return m
}

// askAt asks a node over gRPC.
func askAt(t *testing.T, address string) pb.AdminServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewAdminServiceClient(conn)
}

// end stops the node as SIGTERM would, and waits.
func (m *member) end() {
	m.stop()
	select {
	case err := <-m.ended:
		if m.ended <- nil; err != nil {
			m.t.Errorf("the end of a node: got error %v, want none", err)
		}
	case <-time.After(30 * time.Second):
		m.t.Error("a node after 30 s: got it running, want it ended")
	}
}

// until waits until a node's status is as wanted.
func (m *member) until(what string, cond func(*pb.StatusResponse) bool) {
	m.t.Helper()
	m.wait(what, func() bool {
		s, err := m.admin.Status(m.t.Context(), &pb.StatusRequest{})
		return err == nil && cond(s)
	})
}

func (m *member) serves() {
	m.t.Helper()
	m.until("the node serves", func(s *pb.StatusResponse) bool { return s.GetNode().GetRole() == pb.Role_ROLE_PRIMARY })
}

func (m *member) promotable() {
	m.t.Helper()
	m.until("the node could take over", func(s *pb.StatusResponse) bool { return s.GetNode().GetPromotable() })
}

func (m *member) wait(what string, cond func() bool) { m.t.Helper(); wait(m.t, what, cond) }

// wait waits until something is so.
func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	waittest.Until(t, time.Minute, what, cond)
}

// atWork waits until a load has made so many more calls.
func atWork(t *testing.T, l *Load, calls int) {
	t.Helper()
	until := len(l.recorded()) + calls
	wait(t, "the load works", func() bool { return len(l.recorded()) >= until })
}

// check judges a history without its load, nodes and etcd.
func check(ctx context.Context, history []Record, rules Rules) (Verdict, error) {
	v, t, _, err := judgeHistory(ctx, history, &rules)
	if err != nil {
		return Verdict{}, err
	}
	return t.verdict(v), nil
}
