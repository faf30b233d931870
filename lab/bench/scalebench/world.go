package scalebench

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/lab/bench/caller"
	"github.com/understudy-store/understudy/lab/cluster"
)

// A kind is a kind of objects; each kind is removed in another way.
type kind struct {
	prefix  string // of 24 bytes: a key has 40
	objects int
}

// A world is the cluster that is measured.
type world struct {
	*cluster.Cluster
	*Options
	clock   clock.Clock
	primary *cluster.Node
	probes  *probes

	stays  kind // eight tenths; some of them are evicted in the end
	leaves kind // a tenth; removed by a pattern
	large  kind // a tenth, on a segment of its own; removed by its unmount
}

const (
	segments     = 32 // for the objects that stay
	fullness     = 0.93
	callers      = 8
	largeSegment = "large:1"
	leaveSegment = "leaves:1"
	spareSegment = "spare:1"
	// defaultLease is longer than the removal of a tenth of the objects may take. So the memory
	// of all of them leaves quarantine at one moment: the end of the guard after a takeover.
	defaultLease = 20 * time.Second
)

// startWorld starts the nodes, and mounts memory for the objects. With all segments, used
// memory is well below the eviction watermark; without the spare segment and that of the
// objects that leave, it is above.
func startWorld(ctx context.Context, dir string, o *Options) (*world, error) {
	w := &world{
		Options: o, clock: clock.Boot(),
		leaves: kind{"leave-7b/layer-00/block-", o.Objects / 10}, large: kind{"large-7b/layer-00/block-", o.Objects / 10},
	}
	w.stays = kind{"model-7b/layer-00/block-", o.Objects - w.leaves.objects - w.large.objects}
	cfg := cluster.Config{
		Dir: dir, ID: "scale", Names: []string{"a"}, LeaseTTL: cmp.Or(o.lease, defaultLease), Patience: 10 * time.Minute,
		// No client pings. State files are saved only when a task measures that.
		Args: []string{"--client_ttl=24h", "--pprof", "--state-save-interval=1h"},
	}
	if o.HA {
		cfg.Etcd, cfg.Names = 1, append(cfg.Names, "b")
	}
	var err error
	if w.Cluster, err = cluster.Start(ctx, cfg); err != nil {
		return nil, err
	}
	w.primary = w.Nodes[0]
	need := func(objects int) uint64 { return uint64(objects+2*fillBatch) * caller.ObjectBytes }
	sizes := map[string]uint64{
		largeSegment: need(w.large.objects) * 5 / 4, leaveSegment: need(w.leaves.objects) * 5 / 4, spareSegment: need(o.Objects) / 2,
	}
	for i := range segments {
		sizes[segmentName(i)] = uint64(float64(need(w.stays.objects)/segments) / fullness)
	}
	for name, size := range sizes {
		if err := w.mount(ctx, name, size); err != nil {
			w.stop()
			return nil, fmt.Errorf("mounting %s: %w", name, err)
		}
	}
	return w, nil
}

func (w *world) stop() {
	if w.probes != nil {
		w.probes.close()
	}
	w.Stop()
}

func segmentName(i int) string { return fmt.Sprintf("host-%05d:1", i) }

func segmentID(name string) string { return uuid.NewSHA1(uuid.Nil, []byte(name)).String() }

var ownerID = uuid.UUID(caller.Owner).String()

func (w *world) mount(ctx context.Context, name string, size uint64) error {
	_, err := pb.NewClientServiceClient(w.primary.Conn).MountSegment(ctx, &pb.MountSegmentRequest{
		ClientId: ownerID, RequestId: binary.BigEndian.Uint64([]byte(segmentID(name))),
		Segment: &pb.Segment{Id: segmentID(name), Name: name, Endpoint: name, Protocol: "tcp", Base: 1 << 40, Size: size &^ 4095},
	})
	return err
}

func (w *world) unmount(ctx context.Context, name string) error {
	_, err := pb.NewClientServiceClient(w.primary.Conn).UnmountSegment(ctx, &pb.UnmountSegmentRequest{ClientId: ownerID, SegmentId: segmentID(name)})
	return err
}

// key returns the key of an object: digits like those of a hash.
func (k kind) key(i int) string {
	return caller.Key(k.prefix, bits.ReverseBytes64(uint64(i)*0x9E3779B97F4A7C15)) // one to one
}

func (k kind) keys(list []string, from, to int) []string {
	list = list[:0]
	for ; from < to; from++ {
		list = append(list, k.key(from))
	}
	return list
}

// fillBatch is how many objects are put at a time.
const fillBatch = 512

// fill puts all objects, each kind on its segments.
func (w *world) fill(ctx context.Context) error {
	all := make([]string, segments)
	for i := range all {
		all[i] = segmentName(i)
	}
	for _, k := range []struct {
		kind
		on func(batch int) []string
	}{
		{w.stays, func(batch int) []string { return slices.Concat(all[batch%segments:], all[:batch%segments]) }},
		{w.leaves, func(int) []string { return []string{leaveSegment} }},
		{w.large, func(int) []string { return []string{largeSegment} }},
	} {
		if err := w.inBatches(ctx, k.objects, func(c caller.Caller, batch, from, to int, keys []string) error {
			keys = k.keys(keys, from, to)
			c.Prefer(k.on(batch))
			if err := c.PutStart(keys); err != nil {
				return err
			}
			return c.PutEnd(keys)
		}); err != nil {
			return err
		}
	}
	return nil
}

// inBatches lets several callers process batches of object numbers. Each caller has a slice of
// its own for keys.
func (w *world) inBatches(ctx context.Context, objects int, do func(c caller.Caller, batch, from, to int, keys []string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for first := range callers {
		g.Go(func() error {
			c, err := caller.Dial(ctx, caller.Mooncake, w.primary.RPC)
			if err != nil {
				return err
			}
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			defer func() { _ = c.Close() }()
			keys := make([]string, 0, fillBatch)
			for batch := first; batch*fillBatch < objects; batch += callers {
				from := batch * fillBatch
				if err := do(c, batch, from, min(from+fillBatch, objects), keys); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// settle waits until the standby has what the primary has.
func (w *world) settle(ctx context.Context) error {
	if !w.HA {
		return nil
	}
	if err := w.Settled(ctx); err != nil {
		return err
	}
	for _, n := range w.Standbys(w.primary) {
		if err := n.UntilCaughtUp(ctx, w.primary); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) until(ctx context.Context, what string, wanted func(*pb.StateStatus) bool) error {
	_, err := w.primary.Until(ctx, what, func(s *pb.StatusResponse) bool { return wanted(s.GetState()) })
	return err
}

func (w *world) state(ctx context.Context) (*pb.StateStatus, error) {
	s, err := w.primary.Status(ctx)
	return s.GetState(), err
}
