package rpc

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// maxClients bounds the clients of one answer.
const maxClients = 10_000

// infoBytes is the most that a client or a segment takes in an answer, without its names.
const infoBytes = 256

func (f *front) answerBytes() int { return max(f.Limits.MessageBytes, minSendBytes) }

// fit returns as many clients, with as many names of segments, as an answer takes.
func fit(clients []*pb.ClientInfo, bytes int) []*pb.ClientInfo {
	for i, c := range clients {
		if bytes -= infoBytes; i == maxClients || bytes < 0 {
			return clients[:i]
		}
		for j, name := range c.GetSegments() {
			if bytes -= len(name) + 8; bytes < 0 {
				c.Segments = c.GetSegments()[:j]
				return clients[:i+1]
			}
		}
	}
	return clients
}

func (s *adminService) ListClients(context.Context, *pb.ListClientsRequest) (*pb.ListClientsResponse, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	resp, deadlines := &pb.ListClientsResponse{Header: s.here()}, map[segment.ClientID]time.Duration(nil)
	if m, err := s.Gate.Master(); err == nil {
		resp.ClientTtlMs, deadlines = uint64(m.Liveness.TTL().Milliseconds()), m.Liveness.Deadlines()
	}
	disks := store.LocalDisks()
	first, total := firstClients(store, disks, deadlines)
	resp.Total = uint32(total)
	for seg := range store.EachSegment() {
		if c := first[seg.Client]; c != nil {
			c.Segments = append(c.Segments, seg.Name)
			c.CapacityBytes += seg.Capacity
			c.UsedBytes += seg.Busy
		}
	}
	for _, disk := range disks {
		if c := first[disk.Client]; c != nil {
			c.Ssd, c.SsdCapacityBytes = true, disk.Capacity
		}
	}
	for id, c := range first {
		if left, watched := deadlines[id]; watched {
			c.Watched, c.ExpiresInMs = true, left.Milliseconds()
		}
		resp.Clients = append(resp.Clients, c)
	}
	slices.SortFunc(resp.Clients, func(a, b *pb.ClientInfo) int { return cmp.Compare(a.GetClientId(), b.GetClientId()) })
	resp.Clients = fit(resp.GetClients(), s.answerBytes())
	return resp, nil
}

// firstClients returns the clients that an answer has room for, by their ids, and how many
// there are in all: there may be far more.
func firstClients(store *metadata.Store, disks []metadata.LocalDiskInfo, watched map[segment.ClientID]time.Duration) (first map[segment.ClientID]*pb.ClientInfo, total int) {
	ids := slices.AppendSeq(make([]segment.ClientID, 0, len(watched)), maps.Keys(watched))
	for seg := range store.EachSegment() {
		if n := len(ids); n == 0 || ids[n-1] != seg.Client {
			ids = append(ids, seg.Client)
		}
	}
	for _, disk := range disks {
		ids = append(ids, disk.Client)
	}
	slices.SortFunc(ids, func(a, b segment.ClientID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	first = make(map[segment.ClientID]*pb.ClientInfo)
	for _, id := range ids[:min(len(ids), maxClients)] {
		first[id] = &pb.ClientInfo{ClientId: id.String()}
	}
	return first, len(ids)
}

func (s *adminService) ListDrainJobs(context.Context, *pb.ListDrainJobsRequest) (*pb.ListDrainJobsResponse, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	resp, now := &pb.ListDrainJobsResponse{Header: s.here()}, s.Gate.ClusterTime(store)
	for _, d := range store.Drains() {
		resp.Jobs = append(resp.Jobs, &pb.DrainJob{
			JobId: service.Decimal(d.ID), Status: d.Status.String(), Segments: d.Segments, AgeMs: uint64(max(0, now-d.Created)),
		})
	}
	return resp, nil
}
