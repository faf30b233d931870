package rpc

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// maxClients bounds the clients of one answer.
const maxClients = 10_000

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
	for _, seg := range store.Segments() {
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
	resp.Clients = resp.Clients[:min(len(resp.Clients), maxClients)]
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
			JobId: jobID(d.ID), Status: d.Status.String(), Segments: d.Segments, AgeMs: uint64(max(0, now-d.Created)),
		})
	}
	return resp, nil
}

// jobID writes the id of a job as upstream's HTTP API does.
func jobID(id metadata.TaskID) string {
	return fmt.Sprintf("%d-%d", binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:]))
}
