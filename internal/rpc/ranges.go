package rpc

import (
	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// maxRunBytes bounds the keys in one message of a dump, of which each may have
// 4,096 bytes.
const maxRunBytes = 1 << 20

// DumpRanges sends a copy of all ranges. Taking it holds up commits, and it is
// all in memory, so there is one dump at a time.
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
	select {
	case s.dumping <- struct{}{}:
		defer func() { <-s.dumping }()
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
	segments, at := store.Ranges(only)
	if len(segments) == 0 && r.GetSegmentId() != "" {
		return errs.New(errs.SegmentNotFound, "", "no segment %v is mounted", only)
	}
	header := s.here()
	for i := range segments {
		seg, ranges, first := segmentOf(&segments[i].Spec), segments[i].Ranges, true
		for ; first || len(ranges) > 0; first = false {
			run := nextRun(ranges)
			ranges = ranges[len(run):]
			resp := &pb.DumpRangesResponse{Header: header, Sequence: uint64(at.Seq), Segment: seg, Ranges: make([]*pb.Range, len(run))}
			for k := range run {
				resp.Ranges[k] = rangeMessage(&run[k])
			}
			if err := stream.Send(resp); err != nil {
				return err
			}
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
