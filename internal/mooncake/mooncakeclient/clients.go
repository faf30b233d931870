package mooncakeclient

import (
	"math"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/segment"
)

// serviceReady asks for the master's view too, which it tells as its term.
func serviceReady(a *attempt, _ *pb.ServiceReadyRequest, p *pb.ServiceReadyResponse) error {
	var r mooncake.Result[string]
	if err := do(a, a.generation.ServiceReady, new(mooncake.None), &r); err != nil {
		return err
	}
	p.ServerVersion, p.ContractRevision = "Mooncake "+r.Value, pb.ContractRevision
	if r.Failure != 0 {
		return failed(r.Failure)
	}
	view, err := pinged(a, segment.ClientID(a.client))
	a.view = uint64(view.View)
	return err
}

func pinged(a *attempt, client segment.ClientID) (mooncake.PingResult, error) {
	var r mooncake.Result[mooncake.PingResult]
	if err := do(a, a.generation.Ping, &mooncake.ClientArgs{Client: client}, &r); err != nil {
		return mooncake.PingResult{}, err
	}
	return r.Value, failed(r.Failure)
}

func ping(a *attempt, q *pb.PingRequest, p *pb.PingResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	r, err := pinged(a, client)
	if p.Status = pb.ClientStatus_CLIENT_STATUS_OK; r.Status != mooncake.ClientOK {
		p.Status = pb.ClientStatus_CLIENT_STATUS_NEED_REMOUNT
	}
	return err
}

func (c *caller) specOf(client segment.ClientID, s *pb.Segment) (segment.Spec, error) {
	id, err := idOf[segment.ID]("id of a segment", s.GetId())
	if err == nil && s.GetHostId() != "" && !c.generation.Says.HostIDs {
		err = c.cannotSay("the host of a segment, which is host_id")
	}
	return segment.Spec{
		ID: id, Name: s.GetName(), Base: s.GetBase(), Size: s.GetSize(), Endpoint: s.GetEndpoint(), Protocol: s.GetProtocol(),
		HostID: s.GetHostId(), Client: client,
	}, err
}

func mountSegment(a *attempt, q *pb.MountSegmentRequest, _ *pb.MountSegmentResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	spec, err := a.specOf(client, q.GetSegment())
	if err != nil {
		return err
	}
	return done(a, a.generation.MountSegment, &mooncake.MountArgs{Segment: spec, Client: client})
}

func reMountSegment(a *attempt, q *pb.ReMountSegmentRequest, _ *pb.ReMountSegmentResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	args := mooncake.ReMountArgs{Client: client}
	for _, s := range q.GetSegments() {
		spec, err := a.specOf(client, s)
		if err != nil {
			return err
		}
		args.Segments = append(args.Segments, spec)
	}
	return done(a, a.generation.ReMountSegment, &args)
}

func unmountSegment(a *attempt, q *pb.UnmountSegmentRequest, _ *pb.UnmountSegmentResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	id, err := idOf[segment.ID]("segment_id", q.GetSegmentId())
	if err != nil {
		return err
	}
	return done(a, a.generation.UnmountSegment, &mooncake.UnmountArgs{Segment: id, Client: client})
}

func batchQueryIP(a *attempt, q *pb.BatchQueryIpRequest, p *pb.BatchQueryIpResponse) error {
	var args mooncake.ClientsArgs
	for _, text := range q.GetClientIds() {
		id, err := idOf[segment.ClientID]("client id", text)
		if err != nil {
			return err
		}
		args.Clients = append(args.Clients, id)
	}
	var r mooncake.Result[[]mooncake.ClientAddresses]
	if err := do(a, a.generation.BatchQueryIP, &args, &r); err != nil {
		return err
	}
	for _, c := range r.Value {
		p.Clients = append(p.Clients, &pb.ClientIps{ClientId: uuid.UUID(c.Client).String(), Ips: c.Addresses})
	}
	return failed(r.Failure)
}

func getFsdir(a *attempt, _ *pb.GetFsdirRequest, p *pb.GetFsdirResponse) error {
	var r mooncake.Result[string]
	if err := do(a, a.generation.GetFsdir, new(mooncake.None), &r); err != nil {
		return err
	}
	p.Fsdir = r.Value
	return failed(r.Failure)
}

func getStorageConfig(a *attempt, _ *pb.GetStorageConfigRequest, p *pb.GetStorageConfigResponse) error {
	var r mooncake.Result[mooncake.StorageConfig]
	if err := do(a, a.generation.GetStorageConfig, new(mooncake.None), &r); err != nil {
		return err
	}
	p.Fsdir, p.EnableDiskEviction, p.QuotaBytes = r.Value.Fsdir, r.Value.DiskEviction, r.Value.QuotaBytes
	return failed(r.Failure)
}

func mountLocalDisk(a *attempt, q *pb.MountLocalDiskSegmentRequest, _ *pb.MountLocalDiskSegmentResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	return done(a, a.generation.MountLocalDisk, &mooncake.LocalDiskArgs{Client: client, Offloading: q.GetEnableOffloading()})
}

func offloadObjectHeartbeat(a *attempt, q *pb.OffloadObjectHeartbeatRequest, p *pb.OffloadObjectHeartbeatResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	var r mooncake.Result[[]mooncake.OffloadTask]
	if err := do(a, a.generation.OffloadObjectHeartbeat, &mooncake.LocalDiskArgs{Client: client, Offloading: q.GetEnableOffloading()}, &r); err != nil {
		return err
	}
	for _, t := range r.Value {
		p.Tasks = append(p.Tasks, &pb.OffloadTask{Tenant: t.Tenant, Key: t.Key, Size: uint64(t.Size)})
	}
	return failed(r.Failure)
}

// notifyOffloadSuccess tells of a copy that was refused by a negative size.
func notifyOffloadSuccess(a *attempt, q *pb.NotifyOffloadSuccessRequest, _ *pb.NotifyOffloadSuccessResponse) error {
	client, err := idOf[segment.ClientID]("client_id", q.GetClientId())
	if err != nil {
		return err
	}
	args := mooncake.NotifyOffloadArgs{Client: client}
	for _, o := range q.GetObjects() {
		if err := a.ownTenant(o.GetTask(), a.generation.Says.Tenants); err != nil {
			return err
		}
		task := mooncake.OffloadTask{Tenant: tenantOf(o.GetTask()), Key: o.GetTask().GetKey(), Size: int64(o.GetTask().GetSize())}
		if max(o.GetTask().GetSize(), o.GetBucket(), o.GetOffset(), o.GetKeySize(), o.GetDataSize()) > math.MaxInt64 {
			return errs.New(errs.InvalidParams, "", "a number of object %q is above 2^63-1, which Mooncake cannot say", task.Key)
		}
		if o.GetRefused() {
			task.Size = -1
		}
		args.Tasks = append(args.Tasks, task)
		args.Objects = append(args.Objects, mooncake.OffloadedObject{
			Bucket: int64(o.GetBucket()), Offset: int64(o.GetOffset()), KeySize: int64(o.GetKeySize()), DataSize: int64(o.GetDataSize()), Endpoint: o.GetEndpoint(),
		})
	}
	return done(a, a.generation.NotifyOffloadSuccess, &args)
}
