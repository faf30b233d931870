package rpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"sync/atomic"
	"time"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
)

// Around every call, from the outside in: finish turns its error into a
// status, logs and reports it; a panic becomes an error; admit refuses what no
// service should see and gives the call a deadline, or endStream an end.

// errEnding ends the streams of a server that stops.
var errEnding = errs.New(errs.Unavailable, "", "this node is stopping; ask another one")

func (s *Server) finishUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	started := s.Clock()
	resp, err := handler(ctx, req)
	if err == nil {
		resp, err = budgeted(ctx, s.unread, resp)
	}
	return resp, s.finish(ctx, info.FullMethod, requestID(req), started, err)
}

func (s *Server) finishStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	started := s.Clock()
	err := handler(srv, stream)
	return s.finish(stream.Context(), info.FullMethod, 0, started, err)
}

func (s *Server) finish(ctx context.Context, method string, request uint64, started time.Duration, err error) error {
	if err != nil {
		err = s.statusOf(method, request, err)
	}
	took, code := s.Clock()-started, status.Code(err)
	if s.Observer != nil {
		s.Observer.Call(ctx, method, code, took)
	}
	s.Log.Debug().Str("method", method).Uint64("request_id", request).Stringer("code", code).Dur("took", took).Msg("call")
	return err
}

// statusOf translates a service's error. What has a status already comes from
// gRPC itself, or from one of its own services; a status inside another error
// is somebody else's, etcd's for example.
func (s *Server) statusOf(method string, request uint64, err error) error {
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return err
	}
	if errs.KindOf(err) == errs.Internal {
		s.logDefect(method, request, err)
	}
	return rpcerr.Status(err, path.Base(method), s.source(err)).Err()
}

// logDefect is the one place where a defect that a call has met is logged.
func (s *Server) logDefect(method string, request uint64, err error) {
	line := s.Log.Error().Str("method", method).Uint64("request_id", request)
	if p, ok := errors.AsType[*recovery.PanicError](err); ok {
		line.Str("panic", fmt.Sprint(p.Panic)).Str("stack", string(p.Stack)).Msg("a call panicked")
		return
	}
	line.Err(err).Msg("a call failed by a defect of this program")
}

// source says who answers an error: in the term in which this node serves, or, if
// it does not, with the newest term and the leader that it knows.
func (s *Server) source(err error) rpcerr.Source {
	src, hint := rpcerr.Source{ClusterID: s.ClusterID, NodeID: s.NodeID}, s.Gate.Hint()
	m, _ := s.Gate.Master()
	if m != nil {
		src.Term = uint64(m.Term)
	}
	notLeader := errs.KindOf(err) == errs.NotLeader
	if notLeader || m == nil {
		src.Term = max(src.Term, hint.Term)
	}
	if notLeader {
		src.Leader = hint.RPC
	}
	return src
}

// admitUnary passes a call on with a deadline, and one of a client with the
// master of the term in which this node serves.
func (s *Server) admitUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := checkRequest(req); err != nil {
		return nil, err
	}
	if within := s.limit(ctx, info.FullMethod); within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	if !isClients(info.FullMethod) {
		return s.answerOperator(ctx, req, info, handler)
	}
	if info.FullMethod != pb.ClientService_Ping_FullMethodName { // a busy server must not let its clients expire
		giveBack, err := s.calls.take(ctx)
		if err != nil {
			return nil, err
		}
		defer giveBack()
	}
	m, err := s.Gate.Master()
	if err != nil {
		return nil, err
	}
	return handler(&masterContext{ctx, m}, req)
}

// limit returns the time within which a call must end; 0 if its own deadline is near enough.
func (s *Server) limit(ctx context.Context, method string) time.Duration {
	switch deadline, ok := ctx.Deadline(); {
	case !ok:
		return s.Limits.Deadline
	case method == pb.AdminService_Digest_FullMethodName: // waits, and has places of its own
		return 0
	case deadline.After(clock.Deadline(s.Limits.LongestDeadline)):
		return s.Limits.LongestDeadline
	}
	return 0
}

// callsUnderWay bounds clients' calls. A quarter is for whoever comes first, and costs an
// atomic addition; beyond that, peers are counted, so that one has at most half of all.
type callsUnderWay struct {
	most  int64
	first atomic.Int64
	more  *share.Budget
}

func newCallsUnderWay(most int64) *callsUnderWay {
	more := most - most/4
	return &callsUnderWay{most: most, more: share.NewBudget(share.Rule{Total: more, Peer: max(1, most/4), Few: min(fewCalls, more/16)})}
}

// take counts a call, if there may be one more.
func (c *callsUnderWay) take(ctx context.Context) (giveBack func(), err error) {
	if c.first.Add(1) <= c.most/4 {
		return func() { c.first.Add(-1) }, nil
	}
	c.first.Add(-1)
	peer := callerFor(ctx).Peer
	if taken, all, own := c.more.Take(peer, 1); !taken {
		return nil, errs.New(errs.Unavailable, "", "%d calls are under way, %d or more of them yours; there can be %d, and half of them of one peer; nothing was changed, try again", all+c.most/4, own, c.most)
	}
	return func() { c.more.GiveBack(peer, 1) }, nil
}

// A line bounds the calls of operators: few are answered at once, the others wait. One
// peer may have at most half of either, and waiting calls take turns by peer.
type line struct {
	length *share.Budget // calls under way, with those that wait
	places *share.Budget
}

func newLine() *line {
	return &line{
		length: share.NewBudget(share.NewRule("calls", "", maxInLine, 0.5, fewInLine)),
		places: share.NewBudget(share.NewRule("calls", "", maxOperators, 0.5, 1)),
	}
}

// answer answers a call when it is its turn.
func (l *line) answer(ctx context.Context, req any, handler grpc.UnaryHandler) (any, error) {
	peer := callerFor(ctx).Peer
	taken, all, own := l.length.Take(peer, 1)
	if !taken {
		return nil, errs.New(errs.Unavailable, "", "%d calls of operators are under way, %d of them yours; there can be %d, and %d of one peer; try again", all, own, l.length.Total, l.length.Peer)
	}
	defer l.length.GiveBack(peer, 1)
	if err := l.places.Wait(ctx, peer, 1); err != nil {
		return nil, errs.Wrap(errs.Unavailable, "", err)
	}
	defer l.places.GiveBack(peer, 1)
	return handler(ctx, req)
}

// answerOperator answers a call of AdminService, or of gRPC's own services. Status, by
// which other nodes decide whose state counts, and health checks have a line of their own,
// so they never wait behind calls that wait for etcd or look at all objects.
func (s *Server) answerOperator(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	switch info.FullMethod {
	case pb.AdminService_Digest_FullMethodName: // waits, and has places of its own
		return handler(ctx, req)
	case pb.AdminService_Status_FullMethodName, healthpb.Health_Check_FullMethodName:
		return s.judged.answer(ctx, req, handler)
	}
	return s.operators.answer(ctx, req, handler)
}

// isClients reports whether a method is one that clients call: of ObjectService
// or ClientService.
func isClients(method string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service == pb.ObjectService_ServiceDesc.ServiceName || service == pb.ClientService_ServiceDesc.ServiceName
}

type masterKey struct{}

// A masterContext is the context of a client's call.
type masterContext struct {
	context.Context
	master *service.Master
}

func (c *masterContext) Value(key any) any {
	switch key.(type) {
	case masterKey:
		return c.master
	case share.PeerKey: // few calls are asked
		return callerFor(c.Context).Peer
	}
	return c.Context.Value(key)
}

// master returns the Master that answers a client's call: one for the whole call,
// so that all of its answer is of one term.
func master(ctx context.Context) *service.Master {
	return ctx.Value(masterKey{}).(*service.Master) // admitUnary has set it
}

// endStream bounds the streams of gRPC's own services, and ends every stream when the server
// begins to stop: one that follows something would hold up the stop for as long as its caller
// likes.
func (s *Server) endStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	if places := s.streams[info.FullMethod]; places != nil {
		giveBack, err := places.take(ctx)
		if err != nil {
			return err
		}
		defer giveBack()
	}
	stop := context.AfterFunc(s.ending, func() { cancel(errEnding) })
	defer stop()
	err := handler(srv, &middleware.WrappedServerStream{ServerStream: stream, WrappedContext: ctx})
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errEnding) {
		return errEnding
	}
	return err
}

// checkRequest refuses what the contract rules out for every request.
func checkRequest(req any) error {
	if r, ok := req.(interface{ GetTenant() string }); ok && len(r.GetTenant()) > pb.MaxTenantBytes {
		return errs.New(errs.InvalidParams, "", "the tenant's name has %d bytes, at most %d are possible", len(r.GetTenant()), pb.MaxTenantBytes)
	}
	if requestID(req) > math.MaxInt64 {
		return errs.New(errs.InvalidParams, "", "request_id is above 2^63 - 1; draw it from 1 to that, or leave it out")
	}
	if n := itemsOf(req); n > pb.MaxBatchItems {
		return errs.New(errs.InvalidParams, "", "the batch has %d items, at most %d are possible; split it", n, pb.MaxBatchItems)
	}
	return nil
}

// itemsOf returns how many items a batch has, 0 for another message.
func itemsOf(req any) int {
	switch r := req.(type) {
	case interface{ GetKeys() []string }:
		return len(r.GetKeys())
	case *pb.BatchPutStartRequest:
		return len(r.GetItems())
	case *pb.BatchPutEndRequest:
		return len(r.GetItems())
	case *pb.BatchPutRevokeRequest:
		return len(r.GetItems())
	case *pb.BatchQueryIpRequest:
		return len(r.GetClientIds())
	case *pb.NotifyOffloadSuccessRequest:
		return len(r.GetObjects())
	}
	return 0
}

func requestID(req any) uint64 {
	if r, ok := req.(interface{ GetRequestId() uint64 }); ok {
		return r.GetRequestId()
	}
	return 0
}
