package rpc

import (
	"context"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/metadata"
)

// SnapshotFormat is the format of a snapshot's parts that this program sends
// and reads (metadata.Store.AppendSnapshotPart).
const SnapshotFormat = 1

// A SnapshotSource begins snapshots of the state in which this node serves.
type SnapshotSource interface {
	// BeginSnapshot takes the first part. Errors: NotLeader if the node does not
	// serve.
	BeginSnapshot(ctx context.Context) (SnapshotBegin, error)
}

// A SnapshotBegin is a snapshot of which the first part is taken.
type SnapshotBegin struct {
	Term  metadata.Term
	Store *metadata.Store
	Fence func(context.Context) error // nil while the node serves in this term
	First []byte                      // part 0
	Seq   metadata.Seq                // at which it stands
	// Revision of etcd at which Seq was committed; 0 without a journal, or for
	// sequence 0.
	Revision int64
	// Head is the value of the journal's head there; empty if there is none.
	Head string
}

// snapshotService sends the state to nodes that follow.
type snapshotService struct {
	pb.UnimplementedSnapshotServiceServer
	front
	sending *hostPlaces
	kept    *share.Budget // places for registered nodes, one for each, when all others are taken
	lines   *access.FewLines
}

func (s *snapshotService) StreamSnapshot(r *pb.StreamSnapshotRequest, stream grpc.ServerStreamingServer[pb.StreamSnapshotResponse]) error {
	if err := s.check(r); err != nil {
		return err
	}
	giveBack, err := s.place(stream.Context(), r.GetNodeId())
	if err != nil {
		return err
	}
	defer giveBack()
	begin, err := s.Snapshots.BeginSnapshot(stream.Context())
	if err != nil {
		return err
	}
	out := snapshotStream{stream: stream, begin: &begin, header: s.header(begin.Term)}
	host := hostOf(stream.Context())
	if err := out.run(); err != nil {
		s.lines.InfoOf(host).Err(err).Str("to", r.GetNodeId()).Int("parts", out.parts).Uint64("bytes", out.bytes).Msg("a snapshot was cut")
		return err
	}
	s.lines.InfoOf(host).Str("to", r.GetNodeId()).Uint64("sequence", uint64(begin.Seq)).Uint64("bytes", out.bytes).Msg("sent a snapshot")
	return nil
}

// place takes a place for a snapshot. When all are taken, perhaps by strangers, nodes that
// are registered have further ones.
func (s *snapshotService) place(ctx context.Context, id string) (giveBack func(), err error) {
	giveBack, err = s.sending.take(ctx)
	if err == nil || s.Registered == nil || !s.Registered(id, hostOf(ctx)) {
		return giveBack, err
	}
	if taken, _, _ := s.kept.Take(id, 1); !taken {
		return nil, err
	}
	return func() { s.kept.GiveBack(id, 1) }, nil
}

func hostOf(ctx context.Context) string {
	if from, ok := peer.FromContext(ctx); ok {
		return share.Host(from.Addr)
	}
	return ""
}

// hostPlaces bounds how many calls of a kind are answered at once. One host gets at most
// half of the places, and so leaves others as many. So does one identity, from however many
// hosts it calls, by a certificate or a token; but not nodes.
type hostPlaces struct {
	kind       string
	taken      *share.Budget // by host
	identified *share.Budget // the same, by who calls, where callers have roles
}

func newHostPlaces(kind string, most int64) *hostPlaces {
	rule := share.Rule{Total: most, Peer: max(1, most/2), Few: most}
	return &hostPlaces{kind, share.NewBudget(rule), share.NewBudget(rule)}
}

// take takes a place for the host of a call, if it may have one more.
func (p *hostPlaces) take(ctx context.Context) (giveBack func(), err error) {
	host := hostOf(ctx)
	taken, total, own := p.taken.Take(host, 1)
	if !taken {
		return nil, errs.New(errs.Unavailable, "", "%d %s, %d of them to your host; there can be %d, and %d to a host; try again", total, p.kind, own, p.taken.Total, p.taken.Peer)
	}
	who := callerOf(ctx)
	if who.Name == "" || who.Role == access.Node {
		return func() { p.taken.GiveBack(host, 1) }, nil
	}
	if taken, total, own = p.identified.Take(who.Name, 1); !taken {
		p.taken.GiveBack(host, 1)
		return nil, errs.New(errs.Unavailable, "", "%d %s, %d of them to %.100q; there can be %d to one identity; try again", total, p.kind, own, who.Name, p.taken.Peer)
	}
	return func() {
		p.identified.GiveBack(who.Name, 1)
		p.taken.GiveBack(host, 1)
	}, nil
}

// checkCluster refuses a node of another cluster.
func checkCluster(own, its, node string) error {
	if own == its {
		return nil
	}
	return errs.New(errs.InvalidParams, "", "this node belongs to cluster %q, node %.64q asks for cluster %.64q: give both the same --cluster_id, or let them have different addresses",
		own, node, its)
}

func (s *snapshotService) check(r *pb.StreamSnapshotRequest) error {
	if err := checkCluster(s.ClusterID, r.GetClusterId(), r.GetNodeId()); err != nil {
		return err
	}
	switch {
	case !slices.Contains(r.GetFormats(), SnapshotFormat):
		const shown = 16 // of a list that has any length
		return errs.New(errs.InvalidVersion, "", "this node sends snapshots of format %d, node %.64q reads %v: upgrade the older one",
			SnapshotFormat, r.GetNodeId(), r.GetFormats()[:min(shown, len(r.GetFormats()))])
	case s.Snapshots == nil:
		return errs.New(errs.NotSupported, "", "this node runs without HA and sends no snapshots")
	}
	return nil
}

// A snapshotStream sends one snapshot. It has one part in memory; the next one
// is taken when gRPC has room for it.
type snapshotStream struct {
	stream grpc.ServerStreamingServer[pb.StreamSnapshotResponse]
	begin  *SnapshotBegin
	header *pb.ResponseHeader
	sum    xxh3.Hasher
	parts  int // sent whole
	bytes  uint64
}

func (s *snapshotStream) run() error {
	err := s.send(&pb.StreamSnapshotResponse{Content: &pb.StreamSnapshotResponse_Start{Start: &pb.SnapshotStart{
		Format: SnapshotFormat, StartSequence: uint64(s.begin.Seq), StartRevision: s.begin.Revision, Parts: metadata.SnapshotParts,
		StartHead: []byte(s.begin.Head),
	}}})
	if err != nil {
		return err
	}
	at := metadata.Position{Seq: s.begin.Seq, Term: s.begin.Term}
	for part := s.begin.First; ; {
		if at.Term != s.begin.Term {
			return errs.New(errs.NotLeader, "", "term %d ended while its snapshot was sent", s.begin.Term)
		}
		if err := s.sendPart(part); err != nil {
			return err
		}
		if s.parts == metadata.SnapshotParts {
			break
		}
		// A new slice each time: gRPC may hold on to what it was given.
		part, at = s.begin.Store.AppendSnapshotPart(make([]byte, 0, len(part)), s.parts)
	}
	return s.send(&pb.StreamSnapshotResponse{Content: &pb.StreamSnapshotResponse_End{End: &pb.SnapshotEnd{
		EndSequence: uint64(at.Seq), Bytes: s.bytes, Checksum: s.sum.Sum64(),
	}}})
}

// sendPart sends the next part in chunks.
func (s *snapshotStream) sendPart(part []byte) error {
	for rest, last := part, false; !last; {
		n := min(len(rest), pb.MaxSnapshotChunkBytes)
		last = n == len(rest)
		chunk := &pb.SnapshotChunk{Part: uint32(s.parts), Data: rest[:n], Last: last}
		if err := s.send(&pb.StreamSnapshotResponse{Content: &pb.StreamSnapshotResponse_Chunk{Chunk: chunk}}); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if _, err := s.sum.Write(part); err != nil {
		return fmt.Errorf("summing up a part: %w", err)
	}
	s.bytes += uint64(len(part))
	s.parts++
	return nil
}

// send sends a message as long as the term lasts.
func (s *snapshotStream) send(m *pb.StreamSnapshotResponse) error {
	if err := s.begin.Fence(s.stream.Context()); err != nil {
		return err
	}
	if err := s.stream.Context().Err(); err != nil {
		return err
	}
	m.Header = s.header
	return s.stream.Send(m)
}
