package rpc

import (
	"time"

	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service/kvevents"
	"github.com/understudy-store/understudy/metadata"
)

// quietTime is how long a subscriber gets no events before it gets its position alone.
const quietTime = 500 * time.Millisecond

func (s *objectService) KvEvents(r *pb.KvEventsRequest, stream grpc.ServerStreamingServer[pb.KvEventsResponse]) error {
	if _, err := s.Gate.Master(); err != nil {
		return err
	}
	if s.Config.KVEvents == nil {
		return errs.New(errs.NotSupported, "", "this node keeps no KV events: start all nodes with --enable_kv_events")
	}
	giveBack, err := s.following.take(stream.Context())
	if err != nil {
		return err
	}
	defer giveBack()
	after := kvevents.Checkpoint{History: r.GetAfter().GetHistory(), Seq: metadata.Seq(r.GetAfter().GetSequence())}
	if term, err := termOf(r.GetAfter()); err == nil { // a term that there cannot be is in no journal
		after.Term = term
	}
	sub := s.Config.KVEvents.Subscribe(after)
	defer sub.Close()
	for {
		m, err := s.Gate.Master()
		if err != nil {
			return err
		}
		batch, err := sub.Next(stream.Context(), quietTime)
		if err == nil {
			err = m.Fence(stream.Context()) // otherwise subscribers of a node that is cut off would stay with it
		}
		if err != nil {
			return err
		}
		through := positionOf(batch.Through)
		if batch.Resync {
			through = new(pb.KvPosition) // replaces the earlier position, which another node may still know
		}
		if err := stream.Send(&pb.KvEventsResponse{
			Header: s.header(m.Term), Resync: batch.Resync, Events: kvEventsOf(batch.Events), Through: through,
		}); err != nil {
			return err
		}
	}
}

func positionOf(p kvevents.Checkpoint) *pb.KvPosition {
	if p == (kvevents.Checkpoint{}) {
		return nil
	}
	return &pb.KvPosition{History: p.History, Term: uint64(p.Term), Sequence: uint64(p.Seq)}
}

func kvEventsOf(changes []metadata.MediaChange) []*pb.KvEvent {
	events := make([]*pb.KvEvent, len(changes))
	for i := range changes {
		of := &changes[i]
		e := &pb.KvEvent{Tenant: of.Tenant, Key: of.Key, GroupId: of.Group, ObjectId: uint64(of.ID), Size: of.Size, Type: pb.KvEventType_KV_EVENT_TYPE_REMOVED}
		switch {
		case of.After&^of.Before != 0:
			e.Type = pb.KvEventType_KV_EVENT_TYPE_STORED
		case of.Evicted:
			e.Type = pb.KvEventType_KV_EVENT_TYPE_EVICTED
		}
		e.InMemory, e.OnDisk = of.After&metadata.InMemory != 0, of.After&metadata.OnDisk != 0
		events[i] = e
	}
	return events
}
