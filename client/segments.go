package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
)

// A Segment is memory that a client lends to the store.
type Segment struct {
	ID       uuid.UUID // of this mount, made by the client and never used for another
	Name     string    // the host's; replicas of an object lie on distinct names
	Base     uint64    // address of the first byte, not 0
	Size     uint64    // bytes, at least 1
	Endpoint string    // where the bytes are reached
	Protocol string    // transfer protocol, for example "rdma"
	HostID   string    // stable identity of the host; may be empty
}

func (s *Segment) message() *pb.Segment {
	return &pb.Segment{
		Id: s.ID.String(), Name: s.Name, Base: s.Base, Size: s.Size, Endpoint: s.Endpoint, Protocol: s.Protocol, HostId: s.HostID,
	}
}

// overlaps reports whether two segments are, in part, the same memory.
func (s *Segment) overlaps(o *Segment) bool {
	return s.Endpoint == o.Endpoint && s.Base < o.Base+o.Size && o.Base < s.Base+s.Size
}

// replacedBy reports whether mounting another segment unmounts this one.
func (s *Segment) replacedBy(o *Segment) bool { return s.ID == o.ID || s.overlaps(o) }

// mounts remembers what a client has mounted.
type mounts struct {
	busy    chan struct{} // held during a call that mounts or unmounts: one at a time
	pinging sync.Once

	mu   sync.Mutex // guards all below; a leaf
	list []Segment  // in the order of their mounts
	disk *bool      // whether the SSD takes objects; nil if none is mounted
}

// add remembers a segment, and forgets those that its mount has unmounted.
func (m *mounts) add(s Segment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = slices.DeleteFunc(m.list, func(old Segment) bool { return old.replacedBy(&s) })
	m.list = append(m.list, s)
}

func (m *mounts) remove(id uuid.UUID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = slices.DeleteFunc(m.list, func(s Segment) bool { return s.ID == id })
}

func (m *mounts) all() []Segment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.list)
}

// setDisk remembers an SSD, and whether it takes objects.
func (m *mounts) setDisk(offloading bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk = &offloading
}

// localDisk returns whether an SSD is mounted, and takes objects.
func (m *mounts) localDisk() (offloading, mounted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.disk == nil {
		return false, false
	}
	return *m.disk, true
}

// alone runs f while no other call mounts or unmounts.
func (c *Client) alone(ctx context.Context, op operation, f func(context.Context) error) error {
	ctx, cancel := c.withDeadline(ctx)
	defer cancel()
	select {
	case c.mounts.busy <- struct{}{}:
		defer func() { <-c.mounts.busy }()
		return f(ctx)
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
	detail := "other segments are being mounted or unmounted; nothing was changed"
	if op.name == opUnmountSegment.name {
		detail += ", and a mount under way may still mount this one: repeat the unmount"
	}
	return &errs.Error{Kind: errs.Unavailable, Op: op.name, Err: c.ended(ctx), Detail: detail}
}

// MountSegment lends memory to the store until UnmountSegment. From the first one on,
// this client pings the server, and mounts its segments again when the server has
// forgotten them. It is no error if the segment is already mounted with the same
// properties. The mount unmounts segments on the same memory.
//
// Errors: SegmentExists for an id that is mounted elsewhere. After Unresolved the segment
// may be mounted, but this client does not keep it mounted: mount it again, or unmount
// it.
func (c *Client) MountSegment(ctx context.Context, s Segment) error {
	return c.alone(ctx, opMountSegment, func(ctx context.Context) error {
		entered, err := c.claims.enter(c, s)
		if err != nil {
			return err
		}
		resp, _, err := ask[pb.MountSegmentResponse](ctx, c, opMountSegment, &pb.MountSegmentRequest{
			ClientId: c.config.ClientID.String(), RequestId: newRequestID(), Segment: s.message(), InstanceId: c.instance,
		}, nil)
		if err != nil {
			if entered && notApplied(err) {
				c.claims.refuse(c, s)
			}
			return err
		}
		c.mounts.add(s)
		c.claims.unmounted(c, resp.MemoryHeldMs, func(o Segment) bool { return o != s && o.replacedBy(&s) })
		c.startPinging()
		return nil
	})
}

// UnmountSegment takes memory back: its replicas are unreadable at once. An
// unknown segment is no error. Whatever comes of the call, the client does not
// mount the segment again; but a mount that is under way may, so repeat a call that
// failed.
func (c *Client) UnmountSegment(ctx context.Context, id uuid.UUID) error {
	c.mounts.remove(id) // also if this call does not get its turn
	return c.alone(ctx, opUnmountSegment, func(ctx context.Context) error {
		c.mounts.remove(id)
		resp, _, err := ask[pb.UnmountSegmentResponse](ctx, c, opUnmountSegment, &pb.UnmountSegmentRequest{
			ClientId: c.config.ClientID.String(), RequestId: newRequestID(), SegmentId: id.String(),
		}, nil)
		if err == nil {
			c.claims.unmounted(c, resp.MemoryHeldMs, func(o Segment) bool { return o.ID == id })
		}
		return err
	})
}

// ReMountSegment mounts all segments that MountSegment has mounted again. A
// client does that by itself when a ping says so. With none it makes the client
// known to the server.
func (c *Client) ReMountSegment(ctx context.Context) error {
	return c.alone(ctx, opReMountSegment, func(ctx context.Context) error {
		list := c.mounts.all()
		req := &pb.ReMountSegmentRequest{
			ClientId: c.config.ClientID.String(), RequestId: newRequestID(), InstanceId: c.instance,
		}
		for i := range list {
			req.Segments = append(req.Segments, list[i].message())
		}
		_, _, err := ask[pb.ReMountSegmentResponse](ctx, c, opReMountSegment, req, nil)
		if c.config.Observer != nil {
			c.config.Observer.Remounted(len(list), err)
		}
		return err
	})
}

// A Liveness is what the server knows of a client.
type Liveness struct {
	NeedRemount bool          // it does not know the client: call ReMountSegment
	TTL         time.Duration // how long a client may be silent
}

// Ping starts the client's TTL at the server anew. Clients with mounted segments
// do so by themselves.
func (c *Client) Ping(ctx context.Context) (Liveness, error) {
	resp, _, err := ask[pb.PingResponse](ctx, c, opPing, &pb.PingRequest{ClientId: c.config.ClientID.String()}, nil)
	return Liveness{resp.GetStatus() == pb.ClientStatus_CLIENT_STATUS_NEED_REMOUNT, duration(resp.GetClientTtlMs())}, err
}

func (c *Client) startPinging() {
	c.mounts.pinging.Do(func() { c.spawn(c.keepPinging) })
}

// keepPinging keeps the client's segments and SSD mounted until the context
// ends.
func (c *Client) keepPinging(ctx context.Context) {
	forgotten := false
	_ = clock.Every(ctx, c.config.PingInterval, func() error {
		if _, disk := c.mounts.localDisk(); len(c.mounts.all()) == 0 && !disk {
			return nil
		}
		alive, err := c.Ping(ctx)
		if err == nil && (alive.NeedRemount || forgotten) {
			// If only one of the two was mounted, the next ping does not ask for the other.
			err = c.remount(ctx)
			forgotten = err != nil
		}
		if err != nil && ctx.Err() == nil {
			c.config.Log.Debug("the segments may be forgotten, trying again", "error", err)
		}
		return nil
	})
}

// remount mounts all that the server may have forgotten.
func (c *Client) remount(ctx context.Context) error {
	if err := c.ReMountSegment(ctx); err != nil {
		return err
	}
	if offloading, mounted := c.mounts.localDisk(); mounted {
		return c.MountLocalDiskSegment(ctx, offloading)
	}
	return nil
}
