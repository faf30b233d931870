package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/internal/clock"
)

// The etcd of this package is one member in virtual time: the real
// server, with its storage, leases, watches and compaction, inside a
// testing/synctest bubble. The real clientv3 is in the loop as well, with its
// retries and its watches that begin anew. Between the two there is no network:
// interceptors hand each message over, after as much virtual time as the test
// likes.
//
//	etcd := newEtcd(t, etcdOptions{})
//	client, err := etcd.Link("node-a").Client()
//
// Each Link is one client's connection. Links can be cut, stalled and delayed;
// requests and answers can be lost; the etcd can go down, and come back with its
// data, without, or with a backup.
//
// With a latency of its own for each message the same test plays again to the
// nanosecond, whatever the scheduler does: the server is done with a message
// before the next one arrives. Three things of etcd would depend on the
// scheduler or on chance, and are taken from it. Lease ids are counted here, as
// etcd's own count its reads too. Leases that run out at one tick are revoked one
// after another, as etcd would do it with a goroutine for each. And the server is
// up as late as it can take to elect itself. One is left: when a watch is idle for
// ten virtual minutes, how much later it gets a progress notification.

// etcdOptions are the settings of a Server. The zero value is an etcd as it comes.
type etcdOptions struct {
	// QuotaBytes caps the database; past it etcd raises NOSPACE. Default 2 GiB.
	QuotaBytes int64
	// Latency is how long a message of a client is under way: a request, then
	// the answer to that request, or an answer on a stream; nil for no time at
	// all. With a distinct one for each, no two arrive at one instant of virtual
	// time, and their order does not depend on the scheduler.
	Latency func(client string, message proto.Message) time.Duration
}

// A Server is an etcd of one member. Its methods may be called from any
// goroutine, but those that take the etcd down or bring it up from the test's
// own only. They fail the test if they cannot do what they are for.
type Server struct {
	t      testing.TB
	opts   etcdOptions
	clock  clock.Clock
	dir    string
	tasks  sync.WaitGroup // streams, and requests whose client has given up
	leases leases

	mu       sync.Mutex // guards all below; never held while something is waited for
	etcd     *etcdserver.EtcdServer
	services etcdServices
	stop     context.CancelFunc // ends what runs beside etcd
	down     bool
	clusters int // how many there have been
	fault    func(Call) Verdict
	links    []*Link
}

// newEtcd starts a server that ends with the test, which must run in a synctest
// bubble.
func newEtcd(t testing.TB, opts etcdOptions) *Server {
	t.Helper()
	prepare()
	s := &Server{t: t, opts: opts, clock: clock.Runtime(), dir: t.TempDir(), clusters: 1, down: true}
	s.leases.now = s.clock
	t.Cleanup(s.close)
	s.start()
	return s
}

// close ends the server and all connections to it.
func (s *Server) close() {
	if !s.down {
		s.Down()
	}
	s.tasks.Wait()
}

// Ticks of the member. Its election takes it one of them or two, by chance. So it
// is up after more than that, when it first looks for leases that have run out.
const (
	tick          = 100 * time.Millisecond
	electionTicks = 2
	startTime     = expiryTick
)

const member = "sim"

var memberURLs = types.MustNewURLs([]string{"http://127.0.0.1:0"}) // where nobody listens

func (s *Server) dataDir() string { return filepath.Join(s.dir, "etcd") }
func (s *Server) token() string   { return fmt.Sprint(member, s.clusters) }

func (s *Server) config() config.ServerConfig {
	defaults := embed.NewConfig()
	return config.ServerConfig{
		Name: member, ClientURLs: memberURLs, PeerURLs: memberURLs, DataDir: s.dataDir(),
		InitialPeerURLsMap: types.URLsMap{member: memberURLs}, InitialClusterToken: s.token(), NewCluster: true,
		TickMs: uint(tick.Milliseconds()), ElectionTicks: electionTicks, PreVote: true,
		SnapshotCount: defaults.SnapshotCount, SnapshotCatchUpEntries: defaults.SnapshotCatchUpEntries,
		MaxTxnOps: defaults.MaxTxnOps, MaxRequestBytes: defaults.MaxRequestBytes, QuotaBackendBytes: s.opts.QuotaBytes,
		CompactionBatchLimit: defaults.CompactionBatchLimit, CompactionSleepInterval: defaults.CompactionSleepInterval,
		CompactHashCheckTime: defaults.CompactHashCheckTime, ServerFeatureGate: defaults.ServerFeatureGate, Metrics: defaults.Metrics,
		WarningApplyDuration: time.Minute, WarningUnaryRequestDuration: time.Minute,
		AuthToken: defaults.AuthToken, BcryptCost: defaults.BcryptCost, V2Deprecation: config.V2DeprDefault,
		UnsafeNoFsync: true, Logger: zap.NewNop(),
	}
}

// start starts the server on its data, and returns when it is up.
func (s *Server) start() {
	s.t.Helper()
	began := s.clock()
	etcd, err := etcdserver.NewServer(s.config())
	if err != nil {
		s.t.Fatalf("sim: etcd: start a server on %s: got error %v, want none", s.dataDir(), err)
	}
	etcd.Start()
	<-etcd.ReadyNotify()
	time.Sleep(began + startTime - s.clock())
	if err := s.leases.recover(etcd); err != nil {
		s.t.Fatalf("sim: etcd: list the leases: got error %v, want none", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.tasks.Go(func() { s.leases.run(ctx, etcd) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.etcd, s.services, s.stop, s.down = etcd, newServices(etcd), stop, false
}

// Down stops the etcd: connections break and new ones are refused. Its data
// stays.
func (s *Server) Down() {
	s.mu.Lock()
	s.down = true
	etcd, links := s.etcd, s.links
	s.mu.Unlock()
	s.stop()
	for _, l := range links {
		l.serverDown(true)
	}
	etcd.HardStop()
}

// Up starts the etcd again on the data that there is. Every lease has its full
// TTL again.
func (s *Server) Up() {
	s.t.Helper()
	s.start()
	s.mu.Lock()
	links := s.links
	s.mu.Unlock()
	for _, l := range links {
		l.serverDown(false)
	}
}

// Wipe deletes all data of an etcd that is down. It comes up as another, empty
// cluster.
func (s *Server) Wipe() {
	s.t.Helper()
	if err := os.RemoveAll(s.dataDir()); err != nil {
		s.t.Fatalf("sim: etcd: wipe the data: got error %v, want none", err)
	}
	s.clusters++
}

// A Backup is a snapshot of an etcd's data.
type Backup string

// Backup returns what "etcdctl snapshot save" saves.
func (s *Server) Backup() Backup {
	s.t.Helper()
	file, err := os.CreateTemp(s.dir, "backup")
	if err != nil {
		s.t.Fatalf("sim: etcd: a file for a backup: got error %v, want none", err)
	}
	defer func() { _ = file.Close() }()
	data := s.running().Backend().Snapshot()
	defer func() { _ = data.Close() }()
	if _, err := data.WriteTo(file); err != nil {
		s.t.Fatalf("sim: etcd: save a backup: got error %v, want none", err)
	}
	return Backup(file.Name())
}

// Restore replaces the data of an etcd that is down as "etcdutl snapshot restore"
// does. It comes up as another cluster, with the revision and the leases of the
// backup.
func (s *Server) Restore(b Backup) {
	s.t.Helper()
	s.Wipe()
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: string(b), SkipHashCheck: true, OutputDataDir: s.dataDir(), Name: member,
		PeerURLs: memberURLs.StringSlice(), InitialCluster: member + "=" + memberURLs.String(), InitialClusterToken: s.token(),
	})
	if err != nil {
		s.t.Fatalf("sim: etcd: restore %s: got error %v, want none", b, err)
	}
}

func (s *Server) running() *etcdserver.EtcdServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.etcd
}

// Revision returns the revision of the last write.
func (s *Server) Revision() int64 { return s.running().KV().Rev() }

// Compact forgets all history up to the last write.
func (s *Server) Compact() error {
	_, err := s.running().Compact(context.Background(), &pb.CompactionRequest{Revision: s.Revision()})
	return err
}
