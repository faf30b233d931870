package rpc

import (
	"cmp"
	"context"
	"slices"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/segment"
)

// maxClients bounds the clients of one answer.
const maxClients = 10_000

// infoBytes is what a client or a segment takes of an answer at most, without its names.
const infoBytes = 256

// answerBytes is how many bytes an answer may have.
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
	byID := make(map[segment.ClientID]*pb.ClientInfo)
	info := func(id segment.ClientID) *pb.ClientInfo {
		c := byID[id]
		if c == nil {
			c = &pb.ClientInfo{ClientId: id.String()}
			byID[id] = c
		}
		return c
	}
	for seg := range store.EachSegment() {
		c := info(seg.Client)
		c.Segments = append(c.Segments, seg.Name)
		c.CapacityBytes += seg.Capacity
		c.UsedBytes += seg.Busy
	}
	for _, disk := range store.LocalDisks() {
		c := info(disk.Client)
		c.Ssd, c.SsdCapacityBytes = true, disk.Capacity
	}
	resp := &pb.ListClientsResponse{Header: s.here()}
	if m, err := s.Gate.Master(); err == nil {
		resp.ClientTtlMs = uint64(m.Liveness.TTL().Milliseconds())
		for id, left := range m.Liveness.Deadlines() {
			c := info(id)
			c.Watched, c.ExpiresInMs = true, left.Milliseconds()
		}
	}
	for _, c := range byID {
		resp.Clients = append(resp.Clients, c)
	}
	slices.SortFunc(resp.Clients, func(a, b *pb.ClientInfo) int { return cmp.Compare(a.GetClientId(), b.GetClientId()) })
	resp.Total = uint32(len(resp.Clients))
	resp.Clients = fit(resp.GetClients(), s.answerBytes())
	return resp, nil
}

func (s *adminService) ListDrainJobs(context.Context, *pb.ListDrainJobsRequest) (*pb.ListDrainJobsResponse, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	resp, now := &pb.ListDrainJobsResponse{Header: s.here()}, s.now(store)
	for _, d := range store.Drains() {
		resp.Jobs = append(resp.Jobs, &pb.DrainJob{
			JobId: service.Decimal(d.ID), Status: d.Status.String(), Segments: d.Segments, AgeMs: uint64(max(0, now-d.Created)),
		})
	}
	return resp, nil
}
