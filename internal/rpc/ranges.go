package rpc

import (
	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// maxRunBytes bounds the keys in one message of a dump, of which each may have
// metadata.MaxKeyBytes.
const maxRunBytes = 1 << 20

// DumpRanges sends the ranges part by part, so that no commit waits for a copy of all of
// them, and memory never holds all of them.
func (s *adminService) DumpRanges(r *pb.DumpRangesRequest, stream grpc.ServerStreamingServer[pb.DumpRangesResponse]) error {
	var only segment.ID
	if r.GetSegmentId() != "" {
		var err error
		if only, err = segmentID("segment_id", r.GetSegmentId()); err != nil {
			return err
		}
	}
	store, err := s.store()
	if err != nil {
		return err
	}
	giveBack, err := s.dumping.take(stream.Context())
	if err != nil {
		return err
	}
	defer giveBack()
	dump := rangesDump{stream, s.here()}
	if err := dump.begin(store, only); err != nil {
		return err
	}
	for segments, at := range store.Ranges(only) {
		for i := range segments {
			if err := dump.send(&segments[i], at); err != nil {
				return err
			}
		}
	}
	return nil
}

// A rangesDump is a dump under way.
type rangesDump struct {
	stream grpc.ServerStreamingServer[pb.DumpRangesResponse]
	header *pb.ResponseHeader
}

// begin sends the segments, without ranges.
func (d rangesDump) begin(store *metadata.Store, only segment.ID) error {
	at, found := store.Position(), only == (segment.ID{})
	for seg := range store.EachSegment() {
		if only != (segment.ID{}) && only != seg.ID {
			continue
		}
		found = true
		if err := d.stream.Send(&pb.DumpRangesResponse{Header: d.header, Sequence: uint64(at.Seq), Segment: segmentOf(&seg.Spec)}); err != nil {
			return err
		}
	}
	if !found {
		return errs.New(errs.SegmentNotFound, "", "no segment %v is mounted", only)
	}
	return nil
}

func (d rangesDump) send(list *metadata.SegmentRanges, at metadata.Position) error {
	seg := segmentOf(&list.Spec)
	for ranges := list.Ranges; len(ranges) > 0; {
		run := nextRun(ranges)
		ranges = ranges[len(run):]
		resp := &pb.DumpRangesResponse{Header: d.header, Sequence: uint64(at.Seq), Segment: seg, Ranges: make([]*pb.Range, len(run))}
		for i := range run {
			resp.Ranges[i] = rangeMessage(&run[i])
		}
		if err := d.stream.Send(resp); err != nil {
			return err
		}
	}
	return nil
}

// nextRun returns the ranges that fit one message.
func nextRun(ranges []metadata.BusyRange) []metadata.BusyRange {
	n, bytes := 0, 0
	for n < len(ranges) && n < pb.MaxDumpRanges && bytes < maxRunBytes {
		bytes += len(ranges[n].Key) + len(ranges[n].Tenant)
		n++
	}
	return ranges[:n]
}

func rangeMessage(r *metadata.BusyRange) *pb.Range {
	return &pb.Range{
		State:  pb.RangeState(r.State), // the numbers are the same
		Offset: r.Offset, Length: r.Length, ObjectId: uint64(r.ID), Tenant: r.Tenant, Key: r.Key, UntilClusterTimeMs: int64(r.Until),
	}
}
