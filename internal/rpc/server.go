// Package rpc is the gRPC front end: the services of the public contract, with
// health and reflection, on one port of every node.
//
// It translates requests into calls of package service, or of what the node offers to
// its operators, and what these return into answers and statuses. Before that it checks
// the caller's role, and bounds what each peer may have of connections, frames and bytes.
// It must never decide what a call means, or know how a node is wired.
package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/stats"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/internal/service/kvevents"
)

// Bounds of a connection. There may be tens of thousands of connections, most
// of them idle but for a ping each second, and they live as long as their
// clients: none is closed for its age.
const (
	// maxStreams is how many calls one connection may have under way; further
	// ones wait in the client.
	maxStreams = 1024
	// maxHeaders is what the headers of a call may have, and 32 bytes for each of them. What
	// clients send besides a token, of 8 KiB at most, has less than 2 KiB: names of
	// the call and the host, a time limit and the context of a trace.
	maxHeaders = 16 << 10
	// A connection without traffic is probed after probeAfter, and closed if
	// probeTimeout goes by without an answer: its host is gone.
	probeAfter   = time.Minute
	probeTimeout = 20 * time.Second
	// Of operators' calls in a line, maxOperators are answered at once, and maxInLine may be
	// under way or wait; an eighth of these is for peers with no more than fewInLine.
	// maxDigests may wait for a sequence, and maxEvents may follow events.
	maxOperators = 16
	maxInLine    = 512
	fewInLine    = 16
	maxDigests   = 64
	maxEvents    = 64
	// maxUploads are state files that are sent to this node, maxDumps lists of ranges that
	// it sends, each of which takes the memory of one part.
	maxUploads = 2
	maxDumps   = 2
	// maxBackups are state files that this node sends, maxRefounds orders to found the journal
	// anew that may wait, for their file or for other nodes.
	maxBackups  = 2
	maxRefounds = 8
	// maxSubscribers may follow KV events.
	maxSubscribers = 256
	// maxWatches may follow the health, and maxReflections ask what there is to call.
	maxWatches     = 1024
	maxReflections = 64
	// An eighth of the calls that are counted by peer is for peers with no more than fewCalls.
	fewCalls = 64
	// leastBytes is the least of Limits.Bytes by default; an eighth of it is for hosts with
	// no more than fewBytes.
	leastBytes = 128 << 20
	fewBytes   = 1 << 20
	// Few reads of more than manyKeys keys are answered at once: the answer may be a thousand
	// times as large as the request, and has at least leastEntry bytes for a key that is there.
	manyKeys   = 256
	leastEntry = 32
	// keyBytes is what a key of a request takes in memory besides its bytes: a string's
	// header, and what its allocation is rounded up by.
	keyBytes = 24
	// maxRefusals are logged in a minute, and as many orders that changed nothing, of each kind.
	maxRefusals = 100
	// minPingInterval is how often a client may probe, idle or not.
	minPingInterval = 5 * time.Second
	// handshakeTimeout bounds what comes before the first call.
	handshakeTimeout = 10 * time.Second
)

// minSendBytes is the least that an answer may have. Snapshots, dumps and tasks
// to copy come in parts of about 1 MiB, with something around each.
const minSendBytes = 2 << 20

// Limits bound what callers can take up. A zero field means its default.
type Limits struct {
	// MessageBytes is the largest message in either direction, by default
	// pb.DefaultMaxMessageBytes; answers may have minSendBytes in any case. Past
	// it gRPC answers RESOURCE_EXHAUSTED.
	MessageBytes int
	// Deadline is given to calls that have none, so that nothing waits for
	// ever: 30 s by default. Streams end with their caller, or with the server.
	Deadline time.Duration
	// LongestDeadline bounds the deadlines that calls ask for: 10 minutes by default, longer
	// than any call takes that must not be repeated. Calls that wait for a digest may have any
	// deadline: their places are counted.
	LongestDeadline time.Duration
	// Calls is how many calls of ObjectService and ClientService may be under way,
	// 16,384 by default: the journal's queue has a bound of its own, this one is for calls
	// that wait for room in it. Past it, and past half of it for one peer, the answer is
	// UNAVAILABLE_IN_CURRENT_STATUS. Ping does not count, so that clients can always show
	// that they live.
	Calls int64
	// Snapshots is how many snapshots may be sent at once, 4 by default: each
	// takes the memory of one part, and the lock of the store part by part. One
	// address gets half of them at most. When all are taken, registered nodes have
	// as many more.
	Snapshots int
	// Bytes is a budget for each of three kinds: requests that are not finished, or are large
	// and not answered; calls that are not over; and answers of largeAnswer and more that are
	// not sent. One host gets half of each. By default it is leastBytes, or eight of the
	// largest messages if that is more.
	Bytes int64
	// Send bounds how long a message of a stream may take to be read, or to come: 20 s by
	// default.
	Send time.Duration
	// Rate is how many bytes of a backup, a dump, a snapshot or an upload must go in each
	// second of waiting for the peer, on average after the first Send: 64 KiB by default.
	Rate int64
	// EventRate is how many bytes of a stream of events, or of KV events, must go in each
	// second of waiting for the peer, on average after the first Send: 4 KiB by default.
	EventRate int64
}

func (l Limits) withDefaults() Limits {
	l.MessageBytes, l.Deadline = cmp.Or(l.MessageBytes, pb.DefaultMaxMessageBytes), cmp.Or(l.Deadline, 30*time.Second)
	l.LongestDeadline = cmp.Or(l.LongestDeadline, 10*time.Minute)
	l.Calls, l.Snapshots, l.Send = cmp.Or(l.Calls, 16<<10), cmp.Or(l.Snapshots, 4), cmp.Or(l.Send, 20*time.Second)
	l.Rate, l.EventRate = cmp.Or(l.Rate, 64<<10), cmp.Or(l.EventRate, 4<<10)
	l.Bytes = cmp.Or(l.Bytes, max(leastBytes, 8*int64(l.MessageBytes)))
	return l
}

// An Observer hears of every call that has ended, streams included, on the call's
// own goroutine.
type Observer interface {
	Call(ctx context.Context, method string, code codes.Code, took time.Duration)
	// Slowed hears of a connection that is not read for a while, since it sends more than its
	// calls need, or is closed for that.
	Slowed(closed bool)
}

// Config is what a Server works with.
type Config struct {
	ClusterID string
	NodeID    string
	Gate      *service.Gate
	Node      Node
	Snapshots SnapshotSource // nil on a node that never has followers
	// Registered reports whether a node of an id is registered in etcd, at a host (see
	// share.Host); nil if no node is known. It returns at once.
	Registered func(id, host string) bool
	Clock      clock.Clock // measures how long calls take; nil for this machine's
	Log        zerolog.Logger
	Observer   Observer // may be nil
	// Tracer records calls; nil for none.
	Tracer   stats.Handler
	Limits   Limits
	Tenants  service.Tenants
	Scans    *service.Scans // nil for no bound
	KVEvents *kvevents.Feed // nil without --enable_kv_events
	// Credentials are of connections; nil for plain text.
	Credentials credentials.TransportCredentials
	// Callers tells who callers are; nil if everybody may make every call.
	Callers *access.Callers
	// Admit counts a connection for the identity whose certificate was shown over it, until leave
	// is called, and reports whether there is room; if not, the connection is closed. Nodes have
	// any number. nil for no bound.
	Admit func(identity string, from net.Addr) (leave func(), admitted bool)
	// ClientRegex lets clients call RemoveByRegex, where callers have roles.
	ClientRegex bool
}

// A Server answers gRPC calls on any number of listeners.
type Server struct {
	Config
	grpc        *grpc.Server
	conns       accepted
	admin       *adminService
	unary       []grpc.UnaryServerInterceptor  // around each call, the outermost one first
	streamed    []grpc.StreamServerInterceptor // likewise, around each stream
	permissions map[string]permission
	peersLog    zerolog.Logger         // of what many peers may cause
	refusals    *access.FewLines       // of calls whose callers lack the role
	idle, begun *access.FewLines       // of orders that changed nothing, and of those that begin
	unsure      *access.FewLines       // of orders that may have changed something
	sent        *access.FewLines       // of orders that sent some of the state, and changed nothing
	open        *share.Budget          // bytes of calls that are not over
	arriving    *share.Budget          // bytes of requests that are not finished, or large and not answered
	unread      *share.Budget          // bytes of large answers that are not sent
	calls       *callsUnderWay         // as far as Limits.Calls counts them
	streams     map[string]*hostPlaces // of gRPC's own services, by method
	judged      *line                  // calls by which others judge this node
	operators   *line                  // the other calls of operators
	ending      context.Context        // ends when the server begins to stop
	end         context.CancelFunc     // of ending
}

// NewServer returns a server with all services; it answers once Serve is
// called.
func NewServer(c Config) *Server {
	c.Limits = c.Limits.withDefaults()
	if c.Clock == nil {
		c.Clock = clock.Boot()
	}
	s := &Server{Config: c, judged: newLine(), operators: newLine(), calls: newCallsUnderWay(c.Limits.Calls), permissions: permissions()}
	if c.ClientRegex {
		s.permissions[pb.ObjectService_RemoveByRegex_FullMethodName] = permission{roles: access.Client | access.Operator, order: true}
	}
	reflections := newHostPlaces("streams of the reflection service are open", maxReflections)
	s.streams = map[string]*hostPlaces{
		healthpb.Health_Watch_FullMethodName:                                   newHostPlaces("watches of the health are open", maxWatches),
		reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName:      reflections,
		reflectionalphapb.ServerReflection_ServerReflectionInfo_FullMethodName: reflections,
	}
	s.sent, s.refusals = access.NewFewLines(c.Log, maxRefusals), access.NewFewLines(c.Log, maxRefusals)
	s.peersLog = c.Log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	s.idle, s.begun, s.unsure = access.NewFewLines(c.Log, maxRefusals), access.NewFewLines(c.Log, maxRefusals), access.NewFewLines(c.Log, maxRefusals)
	s.ending, s.end = context.WithCancel(context.Background())
	bytes := share.NewRule("bytes", "", c.Limits.Bytes, 0.5, fewBytes)
	s.open, s.arriving, s.unread = share.NewBudget(bytes), share.NewBudget(bytes), share.NewBudget(bytes)
	if c.Credentials == nil {
		c.Credentials = insecure.NewCredentials()
	}
	s.unary = []grpc.UnaryServerInterceptor{s.finishUnary, s.authorizeUnary, recovery.UnaryServerInterceptor(), s.admitUnary}
	s.streamed = []grpc.StreamServerInterceptor{s.finishStream, s.authorizeStream, s.cutStalled, recovery.StreamServerInterceptor(), s.endStream}
	open := new(openConns)
	options := []grpc.ServerOption{
		grpc.Creds(counting{c.Credentials, newHolders(s.open), newHolders(s.arriving), s.logUnfinished, open, c.Callers, c.Admit, s.newPacer()}),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxRecvMsgSize(c.Limits.MessageBytes),
		grpc.MaxSendMsgSize(max(c.Limits.MessageBytes, minSendBytes)),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		// Calls run on goroutines whose stacks have grown already; on new ones when those
		// are busy.
		grpc.NumStreamWorkers(uint32(runtime.GOMAXPROCS(0))),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: probeAfter, Timeout: probeTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(s.unary...),
		grpc.ChainStreamInterceptor(s.streamed...),
	}
	if c.Tracer != nil {
		options = append(options, grpc.StatsHandler(c.Tracer))
	}
	s.grpc = grpc.NewServer(options...)
	f := front{Config: &s.Config}
	pb.RegisterObjectServiceServer(s.grpc, &objectService{front: f, following: newHostPlaces("subscribers to KV events are there", maxSubscribers), batches: newBatches(), waiting: share.NewBudget(bytes), unread: s.unread})
	pb.RegisterClientServiceServer(s.grpc, &clientService{front: f, unread: s.unread})
	s.admin = &adminService{front: f, open: open, waiting: newHostPlaces("digests are owed", maxDigests), streaming: newHostPlaces("streams of events are open", maxEvents), uploading: newHostPlaces("state files are being sent to this node", maxUploads), dumping: newHostPlaces("dumps of ranges are being sent", maxDumps), copying: newHostPlaces("backups are being sent", maxBackups), refounding: newHostPlaces("orders to found the journal anew are under way", maxRefounds)}
	pb.RegisterAdminServiceServer(s.grpc, s.admin)
	pb.RegisterSnapshotServiceServer(s.grpc, &snapshotService{front: f, sending: newHostPlaces("snapshots are being sent", int64(c.Limits.Snapshots)), kept: share.NewBudget(share.Rule{Total: int64(c.Limits.Snapshots), Peer: 1, Few: 1}), lines: access.NewFewLines(c.Log, maxRefusals)})
	healthpb.RegisterHealthServer(s.grpc, &health{gate: c.Gate})
	reflection.Register(s.grpc)
	return s
}

func (s *Server) logUnfinished(peer net.Addr) {
	s.peersLog.Warn().Stringer("peer", peer).Msg("closed a connection: its host has more of calls that are not finished than it may, and this one has the most of them")
}

// Serve answers calls that come through a listener until Stop is called, and
// then returns nil. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(s.conns.listener(l))
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving gRPC at %v: %w", l.Addr(), err)
	}
	return nil
}

// Stop takes no more calls, ends the streams, and waits for the other calls
// under way. When the context ends first it cuts them off and returns its
// error.
func (s *Server) Stop(ctx context.Context) error {
	s.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.conns.close()
		s.grpc.Stop()
		return fmt.Errorf("stopping gRPC: calls were cut off: %w", context.Cause(ctx))
	}
}
