package rpc

import (
	"context"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	grpcmd "google.golang.org/grpc/metadata"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// adminService answers operators, on every node.
type adminService struct {
	pb.UnimplementedAdminServiceServer
	front
	open       *openConns
	waiting    *hostPlaces // of calls that wait for a sequence
	streaming  *hostPlaces // of streams of events
	uploading  *hostPlaces // of state files that are sent to this node
	dumping    *hostPlaces // of dumps of ranges
	copying    *hostPlaces // of backups
	refounding *hostPlaces // of orders to found the journal anew, with or without a file
}

// here begins an answer about this node: with the term it serves in, or else
// that of the newest commit it has applied.
func (s *adminService) here() *pb.ResponseHeader {
	if m, err := s.Gate.Master(); err == nil {
		return s.header(m.Term)
	}
	if store := s.Node.Store(); store != nil {
		return s.header(store.Position().Term)
	}
	return s.header(0)
}

func (s *adminService) store() (*metadata.Store, error) {
	store := s.Node.Store()
	if store == nil {
		return nil, errs.New(errs.Unavailable, "", "this node holds no state yet: it waits for a snapshot or for the first primary; Status says why it is not promotable")
	}
	return store, nil
}

func (s *adminService) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	status, err := s.Node.Status(ctx)
	if err != nil {
		return nil, err
	}
	status.Header = s.here()
	return status, nil
}

func (s *adminService) Digest(ctx context.Context, r *pb.DigestRequest) (*pb.DigestResponse, error) {
	giveBack, err := s.waiting.take(ctx)
	if err != nil {
		return nil, err
	}
	defer giveBack()
	seq, digest, err := s.Node.Digest(ctx, metadata.Seq(r.GetSequence()))
	return &pb.DigestResponse{Header: s.here(), Sequence: uint64(seq), Digest: digest.String()}, err
}

func (s *adminService) Handover(ctx context.Context, r *pb.HandoverRequest) (*pb.HandoverResponse, error) {
	if r.GetTerm() == 0 {
		return nil, errs.New(errs.InvalidParams, "", "the term is required: the one that is to end, as Status shows it in its header")
	}
	term, err := termOf(r)
	if err != nil {
		return nil, err
	}
	done, err := s.Node.Handover(ctx, term, r.GetTargetNodeId())
	if err != nil {
		return nil, err
	}
	done.Header = s.here()
	return done, nil
}

func (s *adminService) StartEmpty(ctx context.Context, r *pb.StartEmptyRequest) (*pb.StartEmptyResponse, error) {
	term, err := termOf(r)
	if err != nil {
		return nil, err
	}
	begun, err := s.Node.StartEmpty(ctx, term, r.GetNoWriters())
	return &pb.StartEmptyResponse{Header: s.header(begun)}, err
}

func (s *adminService) History(ctx context.Context, _ *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	history, err := s.Node.History(ctx)
	if err != nil {
		return nil, err
	}
	history.Header = s.here()
	return history, nil
}

func (s *adminService) Forget(ctx context.Context, r *pb.ForgetRequest) (*pb.ForgetResponse, error) {
	if r.GetNodeId() == "" {
		return nil, errs.New(errs.InvalidParams, "", "the node's name is required")
	}
	return &pb.ForgetResponse{Header: s.here()}, s.Node.Forget(ctx, r.GetNodeId())
}

// joinToken is the header with the secret of a node that joins: a request would be logged.
const joinToken = "join-token"

// WithJoinToken returns a context for AddMember.
func WithJoinToken(ctx context.Context, token string) context.Context {
	return grpcmd.AppendToOutgoingContext(ctx, joinToken, token)
}

func (s *adminService) AddMember(ctx context.Context, r *pb.AddMemberRequest) (*pb.AddMemberResponse, error) {
	// Before anything is added: the joining node itself can check only what it is answered.
	if its := r.GetClusterId(); its != "" {
		if err := checkCluster(s.ClusterID, its, r.GetName()); err != nil {
			return nil, err
		}
	}
	token := ""
	if values := grpcmd.ValueFromIncomingContext(ctx, joinToken); len(values) > 0 {
		token = values[0]
	}
	all, err := s.Node.AddMember(ctx, token, r.GetName(), r.GetPeerUrl())
	return &pb.AddMemberResponse{Header: s.here(), InitialCluster: all}, err
}

func (s *adminService) RemoveMember(ctx context.Context, r *pb.RemoveMemberRequest) (*pb.RemoveMemberResponse, error) {
	if r.GetName() == "" {
		return nil, errs.New(errs.InvalidParams, "", "the member's name is required")
	}
	return &pb.RemoveMemberResponse{Header: s.here()}, s.Node.RemoveMember(ctx, r.GetName(), r.GetReplace())
}

func (s *adminService) PauseTakeover(ctx context.Context, r *pb.PauseTakeoverRequest) (*pb.PauseTakeoverResponse, error) {
	const most = uint64(math.MaxInt64 / int64(time.Millisecond))
	d := time.Duration(min(r.GetForMs(), most)) * time.Millisecond
	return &pb.PauseTakeoverResponse{Header: s.here()}, s.Node.PauseTakeover(ctx, d)
}

func termOf(r interface{ GetTerm() uint64 }) (metadata.Term, error) {
	if r.GetTerm() > metadata.MaxTerm {
		return 0, errs.New(errs.InvalidParams, "", "term %d is above the last possible one, %d", r.GetTerm(), metadata.MaxTerm)
	}
	return metadata.Term(r.GetTerm()), nil
}

func (s *adminService) Events(r *pb.EventsRequest, stream grpc.ServerStreamingServer[pb.EventsResponse]) error {
	giveBack, err := s.streaming.take(stream.Context())
	if err != nil {
		return err
	}
	defer giveBack()
	ctx := service.From(stream.Context(), callerFor(stream.Context()))
	header, sent := s.here(), uint64(0)
	for event, err := range s.Node.Events(ctx, metadata.Seq(r.GetFromSequence()), r.GetFollow()) {
		if err != nil {
			return err
		}
		event.Header = header
		if err := stream.Send(event); err != nil {
			return err
		}
		if sent++; sent == r.GetLimit() {
			return nil
		}
	}
	return stream.Context().Err()
}

func (s *adminService) ListSegments(_ context.Context, r *pb.ListSegmentsRequest) (*pb.ListSegmentsResponse, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	resp, left := &pb.ListSegmentsResponse{Header: s.here()}, s.answerBytes()
	segments := store.EachSegment()
	if r.GetName() != "" {
		segments = store.SegmentsNamed(r.GetName())
	}
	for seg := range segments {
		if left -= infoBytes + len(seg.Name) + len(seg.Endpoint) + len(seg.Protocol) + len(seg.HostID); left < 0 {
			return nil, errs.New(errs.InvalidParams, "", "the segments take more than the %d bytes of an answer; ask for those of one name, or raise --max-message-bytes", s.answerBytes())
		}
		resp.Segments = append(resp.Segments, &pb.SegmentInfo{
			Segment: segmentOf(&seg.Spec), ClientId: seg.Client.String(),
			CapacityBytes: seg.Capacity, UsedBytes: seg.Busy, QuarantinedBytes: seg.Quarantined, Status: seg.Status().String(),
		})
	}
	return resp, nil
}

func (s *adminService) ListKeys(ctx context.Context, r *pb.ListKeysRequest) (*pb.ListKeysResponse, error) {
	page, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	keys, next, err := s.Scans.Keys(service.From(ctx, callerFor(ctx)), store, s.tenantOf(r), r.GetRegex(), !r.GetIncludeUnreadable(), page)
	resp := &pb.ListKeysResponse{Header: s.here(), Keys: keys, NextPageToken: next}
	if r.GetLeased() {
		s.keepLeased(store, s.tenantOf(r), resp)
	}
	return resp, err
}

func (s *adminService) keepLeased(store *metadata.Store, tenant string, page *pb.ListKeysResponse) {
	now := s.Gate.ClusterTime(store)
	page.Keys = slices.DeleteFunc(page.GetKeys(), func(key string) bool {
		o, err := store.Inspect(tenant, key)
		if err != nil || o.LeaseEnds <= now {
			return true
		}
		page.LeaseRemainingMs = append(page.LeaseRemainingMs, uint64(o.LeaseEnds-now))
		return false
	})
}

func (s *adminService) QueryKey(_ context.Context, r *pb.QueryKeyRequest) (*pb.QueryKeyResponse, error) {
	if n := len(r.GetKey()); n == 0 || n > pb.MaxKeyBytes {
		return nil, errs.New(errs.InvalidKey, "", "the key has %d bytes; give 1 to %d", n, pb.MaxKeyBytes)
	}
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	o, err := store.Inspect(s.tenantOf(r), r.GetKey())
	if err != nil {
		return nil, err
	}
	now := s.Gate.ClusterTime(store)
	blocks := store.Blocks(s.tenantOf(r), r.GetKey(), now)
	return &pb.QueryKeyResponse{
		Header:           s.here(),
		Object:           one(o.ID, o.Size, o.Checksum, o.Replicas),
		ClientId:         o.Client.String(),
		GroupId:          o.Group,
		DataType:         uint32(o.DataType),
		HardPin:          o.HardPin,
		SoftPin:          o.SoftPin,
		LeaseRemainingMs: uint64(max(0, o.LeaseEnds-now)),
		AgeMs:            uint64(max(0, now-o.PutStart)),
		BlocksRemoval:    blocks.Removal,
		BlocksEviction:   blocks.Eviction,
		Transfer:         blocks.Transfer,
	}, nil
}
