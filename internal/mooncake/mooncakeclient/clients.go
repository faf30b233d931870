package mooncakeclient

import (
	"math"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/segment"
)

// serviceReady asks for the master's view too, whose version it gives as the term.
func serviceReady(a *attempt, _ *pb.ServiceReadyRequest, p *pb.ServiceReadyResponse) error {
	version, err := ask(a, a.generation.ServiceReady)
	if p.ServerVersion, p.ContractRevision = "Mooncake "+version, pb.ContractRevision; err != nil {
		return err
	}
	a.args.Client = segment.ClientID(a.client)
	view, err := ask(a, a.generation.Ping)
	a.view = uint64(view.View)
	return err
}

func ping(a *attempt, _ *pb.PingRequest, p *pb.PingResponse) error {
	r, err := ask(a, a.generation.Ping)
	if p.Status = pb.ClientStatus_CLIENT_STATUS_OK; r.Status != mooncake.ClientOK {
		p.Status = pb.ClientStatus_CLIENT_STATUS_NEED_REMOUNT
	}
	return err
}

func (a *attempt) specOf(s *pb.Segment) (segment.Spec, error) {
	id, err := idOf[segment.ID]("id of a segment", s.GetId())
	if err == nil && s.GetHostId() != "" && !a.generation.Fields.HostIDs {
		err = a.lacksField("the host of a segment (host_id)")
	}
	return segment.Spec{
		ID: id, Name: s.GetName(), Base: s.GetBase(), Size: s.GetSize(), Endpoint: s.GetEndpoint(), Protocol: s.GetProtocol(),
		HostID: s.GetHostId(), Client: a.args.Client,
	}, err
}

func mountSegment(a *attempt, q *pb.MountSegmentRequest, _ *pb.MountSegmentResponse) (err error) {
	if a.args.Segment, err = a.specOf(q.GetSegment()); err != nil {
		return err
	}
	_, err = ask(a, a.generation.MountSegment)
	return err
}

func reMountSegment(a *attempt, q *pb.ReMountSegmentRequest, _ *pb.ReMountSegmentResponse) error {
	for _, s := range q.GetSegments() {
		spec, err := a.specOf(s)
		if err != nil {
			return err
		}
		a.args.Segments = append(a.args.Segments, spec)
	}
	_, err := ask(a, a.generation.ReMountSegment)
	return err
}

func unmountSegment(a *attempt, q *pb.UnmountSegmentRequest, _ *pb.UnmountSegmentResponse) (err error) {
	if a.args.SegmentID, err = idOf[segment.ID]("segment_id", q.GetSegmentId()); err != nil {
		return err
	}
	_, err = ask(a, a.generation.UnmountSegment)
	return err
}

func batchQueryIP(a *attempt, q *pb.BatchQueryIpRequest, p *pb.BatchQueryIpResponse) error {
	for _, text := range q.GetClientIds() {
		id, err := idOf[segment.ClientID]("client id", text)
		if err != nil {
			return err
		}
		a.args.Clients = append(a.args.Clients, id)
	}
	found, err := ask(a, a.generation.BatchQueryIP)
	for _, c := range found {
		p.Clients = append(p.Clients, &pb.ClientIps{ClientId: uuid.UUID(c.Client).String(), Ips: c.Addresses})
	}
	return err
}

func getFsdir(a *attempt, _ *pb.GetFsdirRequest, p *pb.GetFsdirResponse) (err error) {
	p.Fsdir, err = ask(a, a.generation.GetFsdir)
	return err
}

func getStorageConfig(a *attempt, _ *pb.GetStorageConfigRequest, p *pb.GetStorageConfigResponse) error {
	c, err := ask(a, a.generation.GetStorageConfig)
	p.Fsdir, p.EnableDiskEviction, p.QuotaBytes = c.Fsdir, c.DiskEviction, c.QuotaBytes
	return err
}

func offloadObjectHeartbeat(a *attempt, _ *pb.OffloadObjectHeartbeatRequest, p *pb.OffloadObjectHeartbeatResponse) error {
	tasks, err := ask(a, a.generation.OffloadObjectHeartbeat)
	for _, t := range tasks {
		p.Tasks = append(p.Tasks, &pb.OffloadTask{Tenant: t.Tenant, Key: t.Key, Size: uint64(t.Size)})
	}
	return err
}

// notifyOffloadSuccess names a copy that was refused by negative sizes: older
// generations have none beside the key.
func notifyOffloadSuccess(a *attempt, q *pb.NotifyOffloadSuccessRequest, _ *pb.NotifyOffloadSuccessResponse) error {
	for _, o := range q.GetObjects() {
		if err := a.ownTenant(o.GetTask(), a.generation.Fields.Tenants); err != nil {
			return err
		}
		task := mooncake.OffloadTask{Tenant: tenantOf(o.GetTask()), Key: o.GetTask().GetKey(), Size: int64(o.GetTask().GetSize())}
		if max(o.GetTask().GetSize(), o.GetBucket(), o.GetOffset(), o.GetKeySize(), o.GetDataSize()) > math.MaxInt64 {
			return errs.New(errs.InvalidParams, "", "a number of object %q is above 2^63-1, which Mooncake cannot say", task.Key)
		}
		object := mooncake.OffloadedObject{
			Bucket: int64(o.GetBucket()), Offset: int64(o.GetOffset()), KeySize: int64(o.GetKeySize()), DataSize: int64(o.GetDataSize()), Endpoint: o.GetEndpoint(),
		}
		if o.GetRefused() {
			task.Size, object.DataSize = -1, -1
		}
		a.args.Tasks, a.args.Objects = append(a.args.Tasks, task), append(a.args.Objects, object)
	}
	_, err := ask(a, a.generation.NotifyOffloadSuccess)
	return err
}
