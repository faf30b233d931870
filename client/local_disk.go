package client

import (
	"context"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// The calls of clients that keep objects on their own SSDs. Servers answer
// errs.NotSupported to all of them so far.

// MountLocalDiskSegment offers this client's SSD to the store. enableOffloading
// says whether it takes objects now.
func (c *Client) MountLocalDiskSegment(ctx context.Context, enableOffloading bool) error {
	_, _, err := ask[pb.MountLocalDiskSegmentResponse](ctx, c, opMountLocalDiskSegment, &pb.MountLocalDiskSegmentRequest{
		ClientId: c.config.ClientID.String(), RequestId: newRequestID(), EnableOffloading: enableOffloading,
	}, nil)
	return err
}

// An OffloadTask is an object to copy to an SSD.
type OffloadTask struct {
	Tenant string
	Key    string
	Size   uint64 // bytes
}

// OffloadObjectHeartbeat takes the objects that this client is to copy to its
// SSD. Each is handed out once, so an answer that is lost is Unresolved.
func (c *Client) OffloadObjectHeartbeat(ctx context.Context, enableOffloading bool) ([]OffloadTask, error) {
	resp, _, err := ask[pb.OffloadObjectHeartbeatResponse](ctx, c, opOffloadObjectHeartbeat, &pb.OffloadObjectHeartbeatRequest{
		ClientId: c.config.ClientID.String(), RequestId: newRequestID(), EnableOffloading: enableOffloading,
	}, nil)
	if err != nil {
		return nil, err
	}
	var tasks []OffloadTask
	for _, t := range resp.GetTasks() {
		tasks = append(tasks, OffloadTask{t.GetTenant(), t.GetKey(), t.GetSize()})
	}
	return tasks, nil
}

// An OffloadedObject is an object that was copied to an SSD, or could not be.
type OffloadedObject struct {
	Task     OffloadTask
	Refused  bool   // it was not copied; what follows is unused then
	Bucket   uint64 // the file that holds it, by the client's own numbering
	Offset   uint64 // where it begins there
	KeySize  uint64 // bytes of its key there
	DataSize uint64 // bytes of its data there
	Endpoint string // where it is reached
}

// NotifyOffloadSuccess tells of 1 to 10,000 objects that were copied.
func (c *Client) NotifyOffloadSuccess(ctx context.Context, objects []OffloadedObject) error {
	req := &pb.NotifyOffloadSuccessRequest{ClientId: c.config.ClientID.String(), RequestId: newRequestID()}
	for _, o := range objects {
		req.Objects = append(req.Objects, &pb.OffloadedObject{
			Task:    &pb.OffloadTask{Tenant: o.Task.Tenant, Key: o.Task.Key, Size: o.Task.Size},
			Refused: o.Refused, Bucket: o.Bucket, Offset: o.Offset, KeySize: o.KeySize, DataSize: o.DataSize, Endpoint: o.Endpoint,
		})
	}
	_, _, err := ask[pb.NotifyOffloadSuccessResponse](ctx, c, opNotifyOffloadSuccess, req, nil)
	return err
}
