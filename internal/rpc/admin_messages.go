package rpc

import (
	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/metadata"
)

func statusMessage(header *pb.ResponseHeader, s *Status) *pb.StatusResponse {
	resp := &pb.StatusResponse{
		Header:        header,
		Node:          nodeMessage(&s.Node),
		LeaderNodeId:  s.LeaderNodeID,
		LeaderAddress: s.LeaderAddress,
		State: &pb.StateStatus{
			Term:             uint64(s.State.Term),
			Sequence:         uint64(s.State.Seq),
			ClusterTimeMs:    int64(s.State.Time),
			Digest:           s.State.Digest.String(),
			StartedEmpty:     s.State.StartedEmpty,
			Objects:          uint64(s.State.Objects),
			Segments:         uint64(s.State.Segments),
			CapacityBytes:    s.State.Capacity,
			UsedBytes:        s.State.Busy,
			QuarantinedBytes: s.State.Quarantined,
			Evicted:          uint64(s.State.Evicted),
		},
		Warnings: s.Warnings,
	}
	for i := range s.Nodes {
		resp.Nodes = append(resp.Nodes, nodeMessage(&s.Nodes[i]))
	}
	if j := s.Journal; j != nil {
		resp.Journal = &pb.JournalStatus{
			CommittedSequence:  uint64(j.Committed),
			HeadTerm:           uint64(j.HeadTerm),
			SnapshotLoads:      j.SnapshotLoads,
			LastSnapshotReason: j.LastSnapshotReason,
			EtcdBytes:          j.EtcdBytes,
			EtcdQuotaBytes:     j.EtcdQuotaBytes,
		}
	}
	return resp
}

func nodeMessage(n *NodeInfo) *pb.Node {
	return &pb.Node{
		NodeId:              n.ID,
		Role:                roleMessage(n.Role),
		RpcAddress:          n.RPC,
		HttpAddress:         n.HTTP,
		Version:             n.Version,
		AppliedSequence:     uint64(n.Applied),
		LagEntries:          n.LagEntries,
		LagMs:               uint64(max(0, n.LagTime.Milliseconds())),
		Promotable:          n.Promotable,
		NotPromotableReason: n.NotPromotable,
		Formats:             n.Formats,
	}
}

func roleMessage(r Role) pb.Role {
	switch r {
	case RoleStandby:
		return pb.Role_ROLE_STANDBY
	case RoleElecting:
		return pb.Role_ROLE_ELECTING
	case RolePromoting:
		return pb.Role_ROLE_PROMOTING
	case RolePrimary:
		return pb.Role_ROLE_PRIMARY
	case RoleHandingOver:
		return pb.Role_ROLE_HANDING_OVER
	case RoleFenced:
		return pb.Role_ROLE_FENCED
	case RoleStopping:
		return pb.Role_ROLE_STOPPING
	default:
		return pb.Role_ROLE_UNSPECIFIED
	}
}

func eventMessage(header *pb.ResponseHeader, e *Event) *pb.EventsResponse {
	return &pb.EventsResponse{
		Header:        header,
		Term:          uint64(e.Term),
		Sequence:      uint64(e.Seq),
		ClusterTimeMs: int64(e.Time),
		Stream:        streamMessage(e.Stream),
		Type:          e.Type,
		Text:          e.Text,
		Json:          e.JSON,
	}
}

func streamMessage(s metadata.Stream) pb.EventStream {
	switch s {
	case metadata.LeaseRenewals:
		return pb.EventStream_EVENT_STREAM_LEASE_RENEWALS
	case metadata.ObjectEvents:
		return pb.EventStream_EVENT_STREAM_OBJECT_EVENTS
	case metadata.DeleteEvents:
		return pb.EventStream_EVENT_STREAM_DELETE_EVENTS
	default:
		return pb.EventStream_EVENT_STREAM_UNSPECIFIED
	}
}

func rangeMessage(r *metadata.BusyRange) *pb.Range {
	m := &pb.Range{
		Offset: r.Offset, Length: r.Length, ObjectId: uint64(r.ID), Tenant: r.Tenant, Key: r.Key, UntilClusterTimeMs: int64(r.Until),
	}
	switch r.State {
	case metadata.RangeLive:
		m.State = pb.RangeState_RANGE_STATE_LIVE
	case metadata.RangeReserved:
		m.State = pb.RangeState_RANGE_STATE_RESERVED
	case metadata.RangeQuarantined:
		m.State = pb.RangeState_RANGE_STATE_QUARANTINED
	}
	return m
}
