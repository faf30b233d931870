package rpc

import (
	"context"
	"crypto/tls"
	"fmt"
	"path"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/rs/zerolog"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/service"
)

// A permission is who may make a call, where callers have roles.
type permission struct {
	roles access.Roles
	open  bool // to everybody
	order bool // it is logged, with who gave it
}

// permissions has every call. One that it lacks is refused. A viewer may make the calls of
// AdminService that change nothing, but Backup, which hands out the whole state, and those of
// which a node makes few at once, which nodes and operators need: a handover waits for a Digest.
func permissions() map[string]permission {
	const readers = access.Viewer | access.Operator
	all := map[string]permission{
		pb.AdminService_Status_FullMethodName:        {roles: access.All},
		pb.AdminService_Digest_FullMethodName:        {roles: access.Operator | access.Node},
		pb.AdminService_Handover_FullMethodName:      {roles: access.Operator, order: true},
		pb.AdminService_StartEmpty_FullMethodName:    {roles: access.Operator, order: true},
		pb.AdminService_Refound_FullMethodName:       {roles: access.Operator, order: true},
		pb.AdminService_Backup_FullMethodName:        {roles: access.Operator, order: true},
		pb.AdminService_Forget_FullMethodName:        {roles: access.Operator, order: true},
		pb.AdminService_AddMember_FullMethodName:     {roles: access.Node, order: true},
		pb.AdminService_RemoveMember_FullMethodName:  {roles: access.Operator, order: true},
		pb.AdminService_PauseTakeover_FullMethodName: {roles: access.Operator, order: true},
		pb.AdminService_History_FullMethodName:       {roles: readers},
		pb.AdminService_Events_FullMethodName:        {roles: readers},
		pb.AdminService_ListSegments_FullMethodName:  {roles: readers},
		pb.AdminService_ListKeys_FullMethodName:      {roles: readers},
		pb.AdminService_QueryKey_FullMethodName:      {roles: readers},
		pb.AdminService_DumpRanges_FullMethodName:    {roles: access.Operator},
		pb.AdminService_ListClients_FullMethodName:   {roles: readers},
		pb.AdminService_ListDrainJobs_FullMethodName: {roles: readers},

		pb.SnapshotService_StreamSnapshot_FullMethodName: {roles: access.Node, order: true},

		pb.ObjectService_RemoveByRegex_FullMethodName:  {roles: access.Operator, order: true},
		pb.ObjectService_RemoveAll_FullMethodName:      {roles: access.Operator, order: true},
		pb.ClientService_UnmountSegment_FullMethodName: {roles: access.Client | access.Operator, order: true},

		healthpb.Health_Check_FullMethodName:                                   {open: true},
		healthpb.Health_List_FullMethodName:                                    {open: true},
		healthpb.Health_Watch_FullMethodName:                                   {open: true},
		reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName:      {roles: access.Operator},
		reflectionalphapb.ServerReflection_ServerReflectionInfo_FullMethodName: {roles: access.Operator},
	}
	for _, method := range []string{
		pb.ObjectService_ExistKey_FullMethodName, pb.ObjectService_BatchExistKey_FullMethodName,
		pb.ObjectService_GetReplicaList_FullMethodName, pb.ObjectService_BatchGetReplicaList_FullMethodName,
		pb.ObjectService_GetReplicaListByRegex_FullMethodName, pb.ObjectService_KvEvents_FullMethodName,
		pb.ObjectService_PutStart_FullMethodName, pb.ObjectService_PutEnd_FullMethodName, pb.ObjectService_PutRevoke_FullMethodName,
		pb.ObjectService_BatchPutStart_FullMethodName, pb.ObjectService_BatchPutEnd_FullMethodName, pb.ObjectService_BatchPutRevoke_FullMethodName,
		pb.ObjectService_Remove_FullMethodName, pb.ObjectService_BatchRemove_FullMethodName, pb.ObjectService_BatchReplicaClear_FullMethodName,
		pb.ClientService_ServiceReady_FullMethodName, pb.ClientService_Ping_FullMethodName,
		pb.ClientService_MountSegment_FullMethodName, pb.ClientService_ReMountSegment_FullMethodName,
		pb.ClientService_BatchQueryIp_FullMethodName, pb.ClientService_GetFsdir_FullMethodName, pb.ClientService_GetStorageConfig_FullMethodName,
		pb.ClientService_MountLocalDiskSegment_FullMethodName, pb.ClientService_OffloadObjectHeartbeat_FullMethodName,
		pb.ClientService_NotifyOffloadSuccess_FullMethodName,
	} {
		all[method] = permission{roles: access.Client | access.Operator}
	}
	return all
}

type callerKey struct{}

func callerOf(ctx context.Context) access.Identity {
	who, _ := ctx.Value(callerKey{}).(access.Identity)
	return who
}

// callerFor returns who a call counts for: the caller, or its host if that is not known.
func callerFor(ctx context.Context) service.Caller {
	if who := callerOf(ctx); who.Name != "" {
		return service.Caller{Peer: who.Name, Identified: true}
	}
	return service.Caller{Peer: hostOf(ctx)}
}

// authorizeUnary passes on calls that their callers may make, and logs orders.
func (s *Server) authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	p := s.permissions[info.FullMethod]
	if s.Callers == nil && !p.order {
		return handler(ctx, req)
	}
	who, err := s.admits(ctx, p, info.FullMethod)
	if r, ok := req.(interface{ GetClientId() string }); ok && err == nil {
		err = who.CheckClient(r.GetClientId())
	}
	if err != nil {
		s.auditRefusal(ctx, who, info.FullMethod, err)
		return nil, err
	}
	ctx = context.WithValue(ctx, callerKey{}, who)
	if !p.order {
		return handler(ctx, req)
	}
	note := new(orderNote)
	resp, err = handler(context.WithValue(ctx, orderKey{}, note), req)
	s.auditOrder(ctx, audited{who: who, method: info.FullMethod, req: req, resp: resp, err: err, owner: note.owner, bytes: note.bytes}, note)
	return resp, err
}

// An orderNote carries what the call of an order reports to the audit.
type orderNote struct {
	known   bool    // whether it changed something is known from changed, and not from the error
	changed bool    // it changed something, or may have
	sent    bool    // it sent some of the state
	owner   string  // of what it took from another client; empty if it did not
	bytes   *uint64 // of the objects on a segment that it took away; nil for none
}

type orderKey struct{}

func noteOf(ctx context.Context) *orderNote {
	if note, ok := ctx.Value(orderKey{}).(*orderNote); ok {
		return note
	}
	return new(orderNote)
}

// noteChange notes whether an order changed something, or may have.
func noteChange(ctx context.Context, changed bool) {
	note := noteOf(ctx)
	note.known, note.changed = true, changed
}

// auditOrder logs an order: one that changed something in any case. It logs only some of the
// others, since a caller may give them without end. Those that sent some of the state, those of
// which it is not known whether they changed something, and the rest leave lines to each other.
func (s *Server) auditOrder(ctx context.Context, c audited, note *orderNote) {
	var log infoLog = fewLinesOf{s.idle, callerFor(ctx).Peer}
	switch {
	case note.sent:
		log = fewLinesOf{s.sent, callerFor(ctx).Peer}
	case note.changed, !note.known && c.err == nil:
		log = &s.Log
	case errs.KindOf(c.err) == errs.Unresolved:
		log = fewLinesOf{s.unsure, callerFor(ctx).Peer}
	}
	s.audit(ctx, log, orderGiven, c)
}

// An infoLog is where an audit's lines go.
type infoLog interface{ Info() *zerolog.Event }

// A fewLinesOf is the part of a log that a peer has.
type fewLinesOf struct {
	log  *access.FewLines
	peer string
}

func (l fewLinesOf) Info() *zerolog.Event { return l.log.InfoOf(l.peer) }

// authorizeStream is authorizeUnary for streams.
func (s *Server) authorizeStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	p := s.permissions[info.FullMethod]
	who, err := s.admits(stream.Context(), p, info.FullMethod)
	if err != nil {
		s.auditRefusal(stream.Context(), who, info.FullMethod, err)
		return err
	}
	ctx := context.WithValue(stream.Context(), callerKey{}, who)
	stream = &middleware.WrappedServerStream{ServerStream: stream, WrappedContext: ctx}
	if !p.order {
		return handler(srv, stream)
	}
	order := &orderStream{ServerStream: stream}
	order.begins = func(request any) {
		s.audit(ctx, fewLinesOf{s.begun, callerFor(ctx).Peer}, orderBegins, audited{who: who, method: info.FullMethod, req: request})
	}
	err = handler(srv, order)
	s.auditOrder(ctx, audited{who: who, method: info.FullMethod, req: order.request.Load(), err: err}, &orderNote{sent: order.sent.Load()})
	return err
}

// An orderStream logs an order when its request is there: the order may take long, and its
// end is never logged if this node ends first.
type orderStream struct {
	grpc.ServerStream
	begins  func(request any)
	request atomic.Value // the first message, without the bytes of a file; nil until it is there
	sent    atomic.Bool  // bytes of a snapshot or a backup went to the caller, who may have read them
}

func (s *orderStream) SendMsg(m any) error {
	switch r := m.(type) {
	case *pb.StreamSnapshotResponse:
		s.sent.CompareAndSwap(false, len(r.GetChunk().GetData()) > 0 || r.GetEnd() != nil)
	case *pb.BackupResponse:
		s.sent.CompareAndSwap(false, len(r.GetData()) > 0)
	}
	return s.ServerStream.SendMsg(m)
}

func (s *orderStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.request.Load() == nil {
		if r, ok := m.(*pb.RefoundRequest); ok {
			m = &pb.RefoundRequest{GiveUp: r.GetGiveUp(), FromFile: r.GetFromFile(), FileBytes: r.GetFileBytes(), FileHead: r.GetFileHead()}
		}
		s.request.Store(m)
		s.begins(m)
	}
	return err
}

// admits returns who makes a call, or why it must not.
func (s *Server) admits(ctx context.Context, p permission, method string) (who access.Identity, err error) {
	if s.Callers == nil || p.open {
		return who, nil
	}
	var state *tls.ConnectionState
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok {
			state = &info.State
		}
	}
	authorization := ""
	if values := metadata.ValueFromIncomingContext(ctx, "authorization"); len(values) > 0 {
		authorization = values[0]
	}
	if who, err = s.Callers.Identify(state, authorization); err != nil {
		return who, err
	}
	return who, who.Check(p.roles, path.Base(method))
}

// What the audit says of orders. An order over a stream gets both lines.
const (
	orderBegins = "an order begins"
	orderGiven  = "an order was given"
)

// An audited call is one that is logged: whose it was, and what became of it.
type audited struct {
	who    access.Identity
	method string
	req    any // nil if nothing of it is logged
	resp   any
	err    error
	owner  string  // of what it took from another client; empty for none
	bytes  *uint64 // of objects in the memory that it took away; nil for none
}

func (s *Server) audit(ctx context.Context, log infoLog, what string, c audited) {
	line := log.Info()
	if line == nil { // it is left out
		return
	}
	line.Str("part", "audit").Str("order", path.Base(c.method))
	if from, ok := peer.FromContext(ctx); ok {
		line.Stringer("peer", from.Addr)
	}
	if s.Callers != nil {
		line.Str("identity", c.who.Name).Stringer("role", c.who.Role)
	}
	if c.req != nil {
		line.Str("request", fmt.Sprintf("%.300v", c.req))
	}
	if done, ok := c.resp.(interface{ GetRemoved() uint64 }); ok {
		line.Uint64("objects", done.GetRemoved())
	}
	if c.bytes != nil {
		line.Uint64("bytes", *c.bytes)
	}
	if c.owner != "" {
		line.Str("owner", c.owner)
	}
	if what == orderBegins {
		line.Msg(what)
		return
	}
	result := "OK"
	if c.err != nil {
		result = errs.KindOf(c.err).String()
	}
	line.Str("result", result).Msg(what)
}

// auditRefusal logs a call, an order or not, for which its caller lacks the role. Strangers
// may make any number of them, so it logs only some, half of them for one peer at most, and
// nothing of their requests.
func (s *Server) auditRefusal(ctx context.Context, who access.Identity, method string, err error) {
	s.audit(ctx, fewLinesOf{s.refusals, callerFor(ctx).Peer}, "a call was refused", audited{who: who, method: method, err: err})
}
