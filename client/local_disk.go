package client

import (
	"context"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// The calls of clients that keep objects on their own SSDs.

// MountLocalDiskSegment offers this client's SSD to the store, until the client is closed
// and expires. enableOffloading says whether the client takes objects now; another call
// of this, or OffloadObjectHeartbeat, changes that. From the first call on, this client
// pings the server, and mounts its SSD again when the server has forgotten it.
//
// Errors: OffloadDisabled unless the server runs with --enable_offload.
func (c *Client) MountLocalDiskSegment(ctx context.Context, enableOffloading bool) error {
	return c.alone(ctx, opMountLocalDiskSegment, func(ctx context.Context) error {
		_, _, err := ask[pb.MountLocalDiskSegmentResponse](ctx, c, opMountLocalDiskSegment, &pb.MountLocalDiskSegmentRequest{
			ClientId: c.config.ClientID.String(), RequestId: newRequestID(), EnableOffloading: enableOffloading,
		}, nil)
		if err != nil {
			return err
		}
		c.mounts.setDisk(enableOffloading)
		c.startPinging()
		return nil
	})
}

// An OffloadTask is an object to copy to an SSD.
type OffloadTask struct {
	Tenant string
	Key    string
	Size   uint64 // bytes
}

// OffloadObjectHeartbeat says whether this client takes objects, and returns those that
// it is to copy to its SSD. Each is handed out once in a server's term, so an answer that
// is lost is Unresolved. A long list comes in several calls.
//
// Errors: SegmentNotFound if the server has no SSD of this client.
func (c *Client) OffloadObjectHeartbeat(ctx context.Context, enableOffloading bool) ([]OffloadTask, error) {
	resp, _, err := ask[pb.OffloadObjectHeartbeatResponse](ctx, c, opOffloadObjectHeartbeat, &pb.OffloadObjectHeartbeatRequest{
		ClientId: c.config.ClientID.String(), RequestId: newRequestID(), EnableOffloading: enableOffloading,
	}, nil)
	if err != nil {
		return nil, err
	}
	if _, mounted := c.mounts.localDisk(); mounted {
		c.mounts.setDisk(enableOffloading)
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

// NotifyOffloadSuccess reports 1 to 10,000 objects that were copied: readers find them on
// this client's SSD from then on. It leaves out an object that is gone, or was put anew
// meanwhile. Reporting a copy twice is no error.
//
// Errors: SegmentNotFound if the server has no SSD of this client; InvalidParams if a
// copy does not have the size of its object. Copies that are right count all the same.
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
