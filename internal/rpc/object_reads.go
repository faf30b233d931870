package rpc

import (
	"context"
	"runtime"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

// objectService answers what clients ask about objects.
type objectService struct {
	pb.UnimplementedObjectServiceServer
	front
	following *hostPlaces   // has a place for each subscriber to KV events
	batches   *share.Budget // has a place for each read of many keys
	waiting   *share.Budget // bytes of such reads that have a place or wait for one
	unread    *share.Budget // bytes of large answers that are not sent
}

// newBatches returns the places of reads of many keys: one for each processor, so that
// short calls wait for few of them, and at most half of them for one peer.
func newBatches() *share.Budget {
	n := int64(runtime.GOMAXPROCS(0))
	return share.NewBudget(share.Rule{Total: n, Peer: max(1, n/2), Few: n})
}

// beginBatch waits until a read of so many keys may be answered, with least bytes for each.
// It refuses the read if the answer would find no room beside earlier ones that its host has
// not read: the keys would be looked up for nothing.
//
// The keys of reads that wait are in memory, whole: gRPC reads a request before its call
// begins. So their bytes are bounded, too.
func (s *objectService) beginBatch(ctx context.Context, keys []string, least int) (end func(), err error) {
	if len(keys) <= manyKeys {
		return func() {}, nil
	}
	host, bytes := hostOf(ctx), int64(0)
	for _, key := range keys {
		bytes += int64(len(key)) + keyBytes
	}
	if taken, all, own := s.waiting.Take(host, bytes); !taken {
		return nil, errs.New(errs.Unavailable, "", "reads of many keys of yours wait already, with %d bytes, of all %d; ask for less at once", own, all)
	}
	peer := callerFor(ctx).Peer
	if err := s.batches.Wait(ctx, peer, 1); err != nil {
		s.waiting.GiveBack(host, bytes)
		return nil, errs.Wrap(errs.Unavailable, "", err)
	}
	end = func() {
		s.batches.GiveBack(peer, 1)
		s.waiting.GiveBack(host, bytes)
	}
	if err := unreadRoom(s.unread, host, int64(len(keys)*least)); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func (s *objectService) ExistKey(ctx context.Context, r *pb.ExistKeyRequest) (*pb.ExistKeyResponse, error) {
	m := master(ctx)
	exists, err := m.ExistKey(ctx, s.tenantOf(r), r.GetKey())
	return &pb.ExistKeyResponse{Header: s.header(m.Term), Exists: exists}, err
}

func (s *objectService) BatchExistKey(ctx context.Context, r *pb.BatchExistKeyRequest) (*pb.BatchExistKeyResponse, error) {
	m := master(ctx)
	end, err := s.beginBatch(ctx, r.GetKeys(), 1)
	if err != nil {
		return nil, err
	}
	defer end()
	exists, failed, err := m.BatchExistKey(ctx, s.tenantOf(r), r.GetKeys())
	return &pb.BatchExistKeyResponse{
		Header: s.header(m.Term), Exists: exists, Errors: s.items("BatchExistKey", 0, failed),
	}, err
}

func (s *objectService) GetReplicaList(ctx context.Context, r *pb.GetReplicaListRequest) (*pb.GetReplicaListResponse, error) {
	m := master(ctx)
	list, err := m.GetReplicaList(ctx, s.tenantOf(r), r.GetKey())
	if err != nil {
		return nil, err
	}
	return &pb.GetReplicaListResponse{
		Header:     s.header(m.Term),
		LeaseTtlMs: uint64(list.LeaseTTL.Milliseconds()),
		Object:     one(list.ID, list.Size, list.Checksum, list.Replicas),
	}, nil
}

func (s *objectService) BatchGetReplicaList(ctx context.Context, r *pb.BatchGetReplicaListRequest) (*pb.BatchGetReplicaListResponse, error) {
	m := master(ctx)
	end, err := s.beginBatch(ctx, r.GetKeys(), leastEntry)
	if err != nil {
		return nil, err
	}
	defer end()
	room := s.room(ctx, s.unread)
	found, failed, err := m.BatchGetReplicaList(ctx, s.tenantOf(r), r.GetKeys(), room)
	if err != nil {
		return nil, err
	}
	build := newLists(found, func(l *metadata.ReplicaList) []metadata.Descriptor { return l.Replicas })
	resp := &pb.BatchGetReplicaListResponse{
		Header: s.header(m.Term), Objects: make([]*pb.ReplicaList, len(found)), Errors: s.items("BatchGetReplicaList", 0, failed),
	}
	for i := range found {
		if failed[i] != nil {
			resp.Objects[i] = build.fail()
			continue
		}
		list := &found[i]
		resp.LeaseTtlMs = uint64(list.LeaseTTL.Milliseconds()) // the same for all: a term has one TTL
		resp.Objects[i] = build.add(list.ID, list.Size, list.Checksum, list.Replicas)
	}
	return fits(room, resp)
}

func (s *objectService) GetReplicaListByRegex(ctx context.Context, r *pb.GetReplicaListByRegexRequest) (*pb.GetReplicaListByRegexResponse, error) {
	m := master(ctx)
	page, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	found, next, err := m.GetReplicaListByRegex(service.From(ctx, callerFor(ctx)), s.tenantOf(r), r.GetRegex(), page)
	if err != nil {
		return nil, err
	}
	build := newLists(found, func(l *service.KeyedList) []metadata.Descriptor { return l.Replicas })
	resp := &pb.GetReplicaListByRegexResponse{
		Header: s.header(m.Term), Objects: make([]*pb.KeyedReplicaList, len(found)), NextPageToken: next,
	}
	for i := range found {
		list := &found[i]
		resp.LeaseTtlMs = uint64(list.LeaseTTL.Milliseconds())
		resp.Objects[i] = &pb.KeyedReplicaList{Key: list.Key, Object: build.add(list.ID, list.Size, list.Checksum, list.Replicas)}
	}
	return resp, nil
}
