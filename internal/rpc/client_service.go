package rpc

import (
	"context"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// clientService answers what clients say of themselves.
type clientService struct {
	pb.UnimplementedClientServiceServer
	front
	unread *share.Budget // bytes of large answers that are not sent
}

func (s *clientService) ServiceReady(ctx context.Context, r *pb.ServiceReadyRequest) (*pb.ServiceReadyResponse, error) {
	m := master(ctx)
	// A newer client than this server uses the lower revision of the two; there
	// was none before 1.
	if r.GetContractRevision() == 0 {
		return nil, errs.New(errs.InvalidVersion, "", "contract_revision is 0; send the one the client was built with, 1 to %d or newer", pb.ContractRevision)
	}
	s.Log.Debug().Str("client_version", r.GetClientVersion()).Uint32("contract_revision", r.GetContractRevision()).Msg("handshake")
	return &pb.ServiceReadyResponse{Header: s.header(m.Term), ServerVersion: m.Version, ContractRevision: pb.ContractRevision}, m.Fence(ctx)
}

func (s *clientService) Ping(ctx context.Context, r *pb.PingRequest) (*pb.PingResponse, error) {
	m := master(ctx)
	client, err := clientOf(r)
	if err != nil {
		return nil, err
	}
	known, err := m.Ping(service.From(ctx, callerFor(ctx)), client)
	if err != nil {
		return nil, err
	}
	resp := &pb.PingResponse{
		Header: s.header(m.Term), Status: pb.ClientStatus_CLIENT_STATUS_NEED_REMOUNT, ClientTtlMs: uint64(m.Liveness.TTL().Milliseconds()),
	}
	if known {
		resp.Status = pb.ClientStatus_CLIENT_STATUS_OK
	}
	return resp, nil
}

func (s *clientService) MountSegment(ctx context.Context, r *pb.MountSegmentRequest) (*pb.MountSegmentResponse, error) {
	m := master(ctx)
	client, err := clientOf(r)
	if err != nil {
		return nil, err
	}
	spec, err := specOf(client, r.GetInstanceId(), r.GetSegment())
	if err != nil {
		return nil, err
	}
	if err := m.MountSegment(service.From(ctx, callerFor(ctx)), spec); err != nil {
		return nil, err
	}
	return &pb.MountSegmentResponse{Header: s.header(m.Term), MemoryHeldMs: heldMs(m)}, nil
}

func (s *clientService) ReMountSegment(ctx context.Context, r *pb.ReMountSegmentRequest) (*pb.ReMountSegmentResponse, error) {
	m := master(ctx)
	client, err := clientOf(r)
	if err != nil {
		return nil, err
	}
	if n := len(r.GetSegments()); n > pb.MaxReMounts {
		return nil, errs.New(errs.InvalidParams, "", "segments has %d entries, at most %d are possible", n, pb.MaxReMounts)
	}
	specs := make([]segment.Spec, len(r.GetSegments()))
	for i, seg := range r.GetSegments() {
		if specs[i], err = specOf(client, r.GetInstanceId(), seg); err != nil {
			return nil, err
		}
	}
	return &pb.ReMountSegmentResponse{Header: s.header(m.Term)}, m.ReMountSegment(service.From(ctx, callerFor(ctx)), client, specs)
}

func (s *clientService) UnmountSegment(ctx context.Context, r *pb.UnmountSegmentRequest) (*pb.UnmountSegmentResponse, error) {
	m := master(ctx)
	client, err := clientOf(r)
	if err != nil {
		return nil, err
	}
	id, err := segmentID("segment_id", r.GetSegmentId())
	if err != nil {
		return nil, err
	}
	by := service.Unmount{Client: client, OwnOnly: callerOf(ctx).Role == access.Client}
	err = m.UnmountSegment(service.From(ctx, callerFor(ctx)), id, &by)
	noteChange(ctx, by.Changed(err))
	if taken, foreign := by.Taken(); taken != nil {
		note := noteOf(ctx)
		if note.bytes = &taken.Bytes; foreign {
			note.owner = taken.Owner.String()
		}
	}
	if err != nil {
		return nil, err
	}
	return &pb.UnmountSegmentResponse{Header: s.header(m.Term), MemoryHeldMs: heldMs(m)}, nil
}

// heldMs is for how long others may be at work in unmounted memory. One part in 500 is for
// the caller's clock, as each may be off by 1/1000 (promise C). Under the first rules, while
// an older node is there, the state keeps no claims: nil, as this is not known.
func heldMs(m *service.Master) *uint64 {
	if m.Store.Rules() == metadata.FirstRules {
		return nil
	}
	held := m.Store.ClaimsHeldFor().Milliseconds()
	return new(uint64(held + (held+499)/500))
}

func (s *clientService) BatchQueryIp(ctx context.Context, r *pb.BatchQueryIpRequest) (*pb.BatchQueryIpResponse, error) {
	m := master(ctx)
	clients := make([]segment.ClientID, len(r.GetClientIds()))
	for i, text := range r.GetClientIds() {
		id, err := uuidOf("client_ids", text)
		if err != nil {
			return nil, err
		}
		clients[i] = segment.ClientID(id)
	}
	found, err := m.BatchQueryIp(ctx, clients)
	if err != nil {
		return nil, err
	}
	resp, room, bytes := &pb.BatchQueryIpResponse{Header: s.header(m.Term)}, s.room(ctx, s.unread), 0
	for _, client := range clients { // some may be there many times
		ips, ok := found[client]
		if !ok {
			continue
		}
		bytes += service.EntryBytes
		for _, ip := range ips {
			bytes += 2 + len(ip)
		}
		if err := room.Room(bytes); err != nil {
			return nil, err
		}
		resp.Clients = append(resp.Clients, &pb.ClientIps{ClientId: client.String(), Ips: ips})
	}
	return fits(room, resp)
}

func (s *clientService) GetFsdir(ctx context.Context, _ *pb.GetFsdirRequest) (*pb.GetFsdirResponse, error) {
	m := master(ctx)
	return &pb.GetFsdirResponse{Header: s.header(m.Term), Fsdir: m.Fsdir()}, m.Fence(ctx)
}

// GetStorageConfig says what clients are to do with files, as Mooncake's front does.
func (s *clientService) GetStorageConfig(ctx context.Context, _ *pb.GetStorageConfigRequest) (*pb.GetStorageConfigResponse, error) {
	m := master(ctx)
	return &pb.GetStorageConfigResponse{
		Header: s.header(m.Term), Fsdir: m.Fsdir(), EnableDiskEviction: m.DiskEviction, QuotaBytes: m.DiskQuota,
	}, m.Fence(ctx)
}

// specOf reads a segment; the service checks the rest.
func specOf(client segment.ClientID, instance uint64, seg *pb.Segment) (segment.Spec, error) {
	if seg == nil {
		return segment.Spec{}, errs.New(errs.InvalidParams, "", "segment is not set; say which memory to mount")
	}
	id, err := segmentID("segment.id", seg.GetId())
	return segment.Spec{
		ID: id, Name: seg.GetName(), Base: seg.GetBase(), Size: seg.GetSize(),
		Endpoint: seg.GetEndpoint(), Protocol: seg.GetProtocol(), HostID: seg.GetHostId(), Client: client, Instance: instance,
	}, err
}

func segmentOf(spec *segment.Spec) *pb.Segment {
	return &pb.Segment{
		Id: spec.ID.String(), Name: spec.Name, Base: spec.Base, Size: spec.Size,
		Endpoint: spec.Endpoint, Protocol: spec.Protocol, HostId: spec.HostID,
	}
}
