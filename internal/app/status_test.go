package app

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// operatorWait is how long masterctl waits for the status of a node.
const operatorWait = 3 * time.Second

// While etcd does not answer, nodes say in time how they are, and no more than
// they know: who serves as long as it serves, and nothing of other nodes.
func TestStatusWithoutEtcd(t *testing.T) {
	t.Parallel()
	t.Run("silent", func(t *testing.T) {
		testStatusWithoutEtcd(t, func(c *etcdtest.Cluster) { c.Pause(0) }, func(c *etcdtest.Cluster) { c.Resume(0) })
	})
	t.Run("down", func(t *testing.T) {
		testStatusWithoutEtcd(t, func(c *etcdtest.Cluster) { c.Stop(0) }, func(c *etcdtest.Cluster) { c.Start(0) })
	})
}

func testStatusWithoutEtcd(t *testing.T, away, back func(*etcdtest.Cluster)) {
	cluster := etcdtest.Start(t)
	primary, standby := settings(config.Primary, "a", cluster.Endpoints()), settings(config.Standby, "b", cluster.Endpoints())
	primary.HA.SessionTTL, primary.HA.FailoverAfter = 12*time.Second, 12*time.Second // the primary serves on while it is asked
	a := run(t, primary)
	a.serves()
	b := run(t, standby)
	b.promotable()
	b.until("knows who serves", func(s *pb.StatusResponse) bool { return s.GetLeaderNodeId() == "a" })
	a.knows(1)
	away(cluster)
	defer back(cluster)

	answers := make([]*pb.StatusResponse, 2)
	var asks sync.WaitGroup
	for i, m := range []*member{a, b} {
		asks.Go(func() { answers[i] = m.inTime() })
	}
	asks.Wait()
	if s := answers[0]; s.GetNode().GetRole() != pb.Role_ROLE_PRIMARY || s.GetState().GetSequence() == 0 {
		t.Errorf("the primary: %v; want the role primary and a sequence above 0", s)
	}
	for _, s := range answers {
		warnings := strings.Join(s.GetWarnings(), "\n")
		if s.GetLeaderNodeId() != "a" || len(s.GetNodes()) > 0 ||
			!strings.Contains(warnings, "etcd does not answer") || strings.Contains(warnings, "no standby could take over") {
			t.Errorf("got %v, want the warning that etcd does not answer, alone", s)
		}
	}
	s := a.until("serves no more", func(s *pb.StatusResponse) bool { return s.GetNode().GetRole() != pb.Role_ROLE_PRIMARY })
	if s.GetLeaderNodeId() != "" || s.GetLeaderAddress() != "" {
		t.Errorf("got %v of a node that serves nobody, want no leader", s)
	}
}

// inTime returns a node's status, which must come in time for masterctl.
func (m *member) inTime() *pb.StatusResponse {
	ctx, cancel := context.WithTimeout(m.t.Context(), operatorWait)
	defer cancel()
	s, err := m.admin.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		m.t.Errorf("the status of %s: got %v, want an answer in time", m.cfg.Node.ID, err)
	}
	return s
}

// A sequence has one state, however fast sequences follow one another.
func TestStatusIsOfOneSequence(t *testing.T) {
	t.Parallel()
	for name, etcd := range map[string][]string{"primary": etcdtest.Start(t).Endpoints(), "lone": nil} {
		t.Run(name, func(t *testing.T) {
			a := run(t, settings(config.Primary, "a", etcd))
			a.serves()
			c := writer(t, client.Config{Addresses: []string{a.RPCAddress()}})
			var stop atomic.Bool
			var puts sync.WaitGroup
			puts.Go(func() {
				for !stop.Load() {
					put(t, c, "k")
					if err := c.Remove(t.Context(), "k", client.Removal{Force: true}); err != nil {
						t.Error(err)
					}
				}
			})
			var asks sync.WaitGroup
			for range 4 { // they get into each other's way
				asks.Go(func() { a.oneStateEach(400) })
			}
			asks.Wait()
			stop.Store(true)
			puts.Wait()
		})
	}
}

// oneStateEach asks for the status until a sequence is there. Each sequence must
// have one number of objects.
func (m *member) oneStateEach(until metadata.Seq) {
	objects := make(map[metadata.Seq]uint64)
	for seq := metadata.Seq(0); seq < until && !m.t.Failed(); {
		s, err := m.node.Status(m.t.Context())
		if err != nil {
			m.t.Error(err)
			return
		}
		n := s.GetState().GetObjects()
		seq = metadata.Seq(s.GetState().GetSequence())
		if before, known := objects[seq]; known && before != n || s.GetNode().GetAppliedSequence() != uint64(seq) {
			m.t.Errorf("at %d, or %d, there are %d objects, and %d; want one number of objects for one sequence", seq, s.GetNode().GetAppliedSequence(), before, n)
		}
		objects[seq] = n
	}
}

// A digest of later is waited for, also where commits are made.
func TestDigestOfLater(t *testing.T) {
	t.Parallel()
	for name, etcd := range map[string][]string{"primary": etcdtest.Start(t).Endpoints(), "lone": nil} {
		t.Run(name, func(t *testing.T) {
			a := run(t, settings(config.Primary, "a", etcd))
			at := a.serves().GetState().GetSequence()
			d, err := a.admin.Digest(t.Context(), &pb.DigestRequest{Sequence: at + 2})
			if err != nil || d.GetSequence() != at+2 || len(d.GetDigest()) != 16 {
				t.Errorf("Digest: got %v, %v; want that of sequence %d", d, err, at+2)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if d, err := a.admin.Digest(ctx, &pb.DigestRequest{Sequence: at + 1_000_000}); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("of one that does not come in time: %v, %v; want DeadlineExceeded", d, err)
			}
		})
	}
}

// The size of etcd is that of its largest member, whichever of them are up.
func TestSizeOfEtcd(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, etcdtest.WithNodes(3))
	etcd, ctx := cluster.Client(t), t.Context()
	var last int64
	for range 16 {
		resp, err := etcd.Put(ctx, "/fill", strings.Repeat("x", 256<<10))
		if err != nil {
			t.Fatal(err)
		}
		last = resp.Header.Revision
	}
	if _, err := etcd.Compact(ctx, last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	small := cluster.Endpoint(0)
	if _, err := etcd.Defragment(ctx, small); err != nil {
		t.Fatal(err)
	}
	st, err := etcd.Status(ctx, small)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Second
	app := &App{cfg: settings(config.Primary, "a", cluster.Endpoints()), clock: func() time.Duration { return now }}
	use := newEtcdUse(app, &etcdConn{journal: etcd, members: cluster.Endpoints()})
	larger := func(what string) {
		t.Helper()
		now += time.Second
		if size, quota := use.sizes(ctx); size < 4<<20 || int64(size) <= st.DbSize || int64(quota) != st.DbSizeQuota {
			t.Errorf("%s: %d bytes with a quota of %d, the smallest member has %d; want the largest member's, and the quota that they tell", what, size, quota, st.DbSize)
		}
	}
	larger("one member is small")
	if said := use.says(); len(said.versions) != 1 || said.versions[0] != st.Version || len(said.alarms) != 0 || said.longest < 0 {
		t.Errorf("the members answer: got %+v, want their version %s, and no alarm", said, st.Version)
	}
	use.size.Store(0)
	cluster.Stop(0)
	larger("the first is down")
	cluster.StopAll()
	larger("none answers any more")
	if said := use.says(); len(said.versions) != 0 {
		t.Errorf("none answers: got %+v, want nothing", said)
	}
}

// A node that is told to stop before its etcd answers ends in order.
func TestStopBeforeEtcdAnswers(t *testing.T) {
	etcd, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	c := settings(config.Primary, "a", []string{etcd.Addr().String()})
	a, err := New(c, "v-test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	conn, err := etcd.Accept() // it asks, and hears nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v, want no error", err)
	}
}

// A primary that stops without a standby does not say that it serves on.
func TestStopWithoutAStandby(t *testing.T) {
	t.Parallel()
	a := run(t, settings(config.Primary, "a", etcdtest.Start(t).Endpoints()))
	a.serves()
	a.end()
	if log := a.log.String(); strings.Contains(log, "serves on") || !strings.Contains(log, "no handover, this node stops all the same") {
		t.Errorf("got this log, want that it stops without a handover:\n%s", log)
	}
}

// Each role of a node has one on the wire.
func TestRolesOnTheWire(t *testing.T) {
	seen := make(map[pb.Role]bool)
	for _, role := range []promote.Role{
		promote.Standby, promote.Electing, promote.Promoting, promote.Primary, promote.HandingOver, promote.Fenced, promote.Stopping,
	} {
		seen[nodeMessage(promote.NodeInfo{Role: role}).GetRole()] = true
	}
	for number, name := range pb.Role_name {
		if role := pb.Role(number); seen[role] == (role == pb.Role_ROLE_UNSPECIFIED) {
			t.Errorf("%s: got %v, want a node's role for all but the unspecified one", name, seen[role])
		}
	}
}

// A standby says why it would not take over by itself, although it holds what it needs.
func TestTakeoverThatIsBlocked(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t)
	run(t, settings(config.Primary, "a", cluster.Endpoints())).serves()
	b := run(t, settings(config.Standby, "b", cluster.Endpoints()))
	if s := b.promotable(); s.GetTakeoverBlockedReason() != "" {
		t.Errorf("a healthy standby: got a takeover blocked because %q, want no reason", s.GetTakeoverBlockedReason())
	}
	blocked := func(why string) {
		t.Helper()
		s := b.until("is blocked", func(s *pb.StatusResponse) bool { return strings.Contains(s.GetTakeoverBlockedReason(), why) })
		if !s.GetNode().GetPromotable() {
			t.Errorf("a standby blocked by %q: got status %v, want it promotable: it holds what it needs", why, s)
		}
	}
	if _, err := b.admin.PauseTakeover(t.Context(), &pb.PauseTakeoverRequest{ForMs: 60_000}); err != nil {
		t.Fatal(err)
	}
	blocked("automatic takeover is paused")
	client := cluster.Client(t)
	members, err := client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alarm := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: members.Members[0].ID, Alarm: etcdserverpb.AlarmType_NOSPACE}
	maintenance := etcdserverpb.NewMaintenanceClient(client.ActiveConnection())
	if _, err := maintenance.Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	blocked("etcd is full (NOSPACE)")
	alarm.Action = etcdserverpb.AlarmRequest_DEACTIVATE
	if _, err := maintenance.Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	blocked("automatic takeover is paused")
	cluster.StopAll()
	blocked("etcd does not answer")
	_, ofHistory := b.admin.History(t.Context(), &pb.HistoryRequest{})
	_, ofForget := b.admin.Forget(t.Context(), &pb.ForgetRequest{NodeId: "x"})
	events, ofEvents := b.admin.Events(t.Context(), &pb.EventsRequest{})
	if ofEvents == nil {
		_, ofEvents = events.Recv()
	}
	_, ofPause := b.admin.PauseTakeover(t.Context(), &pb.PauseTakeoverRequest{ForMs: 60_000})
	for what, err := range map[string]error{"history": ofHistory, "forget": ofForget, "events": ofEvents, "pause": ofPause} {
		if kindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "etcd does not answer") {
			t.Errorf("%s: got %v, want that etcd does not answer", what, err)
		}
	}
	cluster.StartAll() // else nodes end slowly
	b.promotable()
}

// A node registers what it is, and a status shows all of it.
func TestNodeMessage(t *testing.T) {
	got := nodeMessage(promote.NodeInfo{
		ID: "a", Role: promote.Standby, RPC: "a:1", HTTP: "a:2", Version: "1.2.3", Applied: 7, Lag: 2, LagMillis: 1500,
		Promotable: true, Why: "w", Formats: [2]int{1, 2},
	})
	want := &pb.Node{
		NodeId: "a", Role: pb.Role_ROLE_STANDBY, RpcAddress: "a:1", HttpAddress: "a:2", Version: "1.2.3", AppliedSequence: 7,
		LagEntries: 2, LagMs: 1500, Promotable: true, NotPromotableReason: "w", Formats: []uint32{1, 2},
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestSettingWarnings(t *testing.T) {
	for name, row := range map[string]struct{ mine, theirs, want string }{
		"alike":         {`{"x":"1"}`, `{"x":"1"}`, ""},
		"defaults":      {`{}`, `{}`, ""},
		"older primary": {`{"x":"1"}`, "", ""},
		"differ": {`{"x":"1","y":"2"}`, `{"x":"3","z":"4"}`, "if this node takes over from a, settings change: x is 1 here, 3 there; " +
			"y is 2 here, the default there; z is the default here, 4 there; give all nodes the same"},
	} {
		a, b := promote.NodeInfo{ID: "a", Settings: row.theirs}, promote.NodeInfo{ID: "b", Settings: row.mine}
		s := promote.Status{Self: b, Leader: promote.Leader{NodeID: "a"}}
		if got := strings.Join(settingWarnings(s, []promote.NodeInfo{a, b}), ""); got != row.want {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
		if s.Self = a; settingWarnings(s, []promote.NodeInfo{a, b}) != nil {
			t.Errorf("%s: the primary warns of settings, want no warning: they are its own", name)
		}
	}
}
