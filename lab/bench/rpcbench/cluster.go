package rpcbench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/lab/procs"
	"github.com/understudy-store/understudy/lab/rig"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

// What is mounted and put. Segments are only numbers, and so large that nothing
// is ever evicted.
const (
	segmentBytes = 64 << 30
	objectBytes  = 4 << 10
)

// owner is the client that mounts and puts.
var owner = segment.ClientID{1}

// A cluster is the master that is measured, and in HA mode its etcd and a
// standby.
type cluster struct {
	ha      bool
	etcd    *procs.Process
	master  *rig.Node
	standby *rig.Node
}

func startCluster(ctx context.Context, dir string, ha bool, segments int) (c *cluster, err error) {
	c = &cluster{ha: ha}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return c, err
	}
	mode := "--enable_ha=false"
	if ha {
		if c.etcd, err = rig.StartEtcd(ctx, dir, "etcd", "--listen=127.0.0.1:0", "--data-dir="+filepath.Join(dir, "etcd", "data")); err != nil {
			return c, err
		}
		mode = "--etcd_endpoints=" + strings.Join(c.etcd.Etcd, ",")
	}
	if c.master, err = startNode(ctx, dir, "master", config.Primary, mode); err != nil {
		return c, err
	}
	if _, err = c.master.Until(ctx, "serves", rig.Serves); err != nil {
		return c, err
	}
	if ha {
		if c.standby, err = startNode(ctx, dir, "standby", config.Standby, mode); err != nil {
			return c, err
		}
		if _, err = c.standby.Until(ctx, "could take over", rig.Promotable); err != nil {
			return c, err
		}
	}
	return c, c.mount(ctx, segments)
}

func startNode(ctx context.Context, dir, name string, role promote.Role, mode string) (*rig.Node, error) {
	return rig.StartNode(ctx, dir, name, role, "", mode,
		"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--node-id="+name, "--cluster_id=bench",
		"--data-dir="+filepath.Join(dir, name, "data"), "--journal-compact=on", "--log-format=json",
		"--client_ttl=24h") // nobody pings
}

func (c *cluster) stop() {
	for _, n := range []*rig.Node{c.master, c.standby} {
		if n != nil {
			n.Close()
		}
	}
	if c.etcd != nil {
		c.etcd.Kill()
	}
}

// mount mounts segments, each of a name of its own.
func (c *cluster) mount(ctx context.Context, segments int) error {
	clients := pb.NewClientServiceClient(c.master.Conn)
	for i := range segments {
		var id uuid.UUID
		binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
		name := fmt.Sprintf("host-%05d:12345", i)
		if _, err := clients.MountSegment(ctx, &pb.MountSegmentRequest{
			ClientId: uuid.UUID(owner).String(), RequestId: uint64(i) + 1,
			Segment: &pb.Segment{Id: id.String(), Name: name, Endpoint: name, Protocol: "tcp", Base: 1 << 40, Size: segmentBytes},
		}); err != nil {
			return fmt.Errorf("mounting a segment: %w", err)
		}
	}
	return nil
}

// fillBatch is how many objects are put or removed at a time where that is not
// measured.
const fillBatch = 1000

// fill puts the objects that are read. It returns their keys in random order:
// any run of them is a random choice.
func (c *cluster) fill(ctx context.Context, objects int) ([]string, error) {
	caller, err := newGRPC(ctx, c.master.RPC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = caller.Close() }()
	pool := make([]string, objects)
	for i := range pool {
		pool[i] = keyOf(uint64(i))
	}
	for from := 0; from < objects; from += fillBatch {
		if err := put(caller, pool[from:min(from+fillBatch, objects)]); err != nil {
			return nil, err
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(objects, func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	return pool, nil
}

func put(c caller, keys []string) error {
	if err := c.putStart(keys); err != nil {
		return err
	}
	return c.putEnd(keys)
}
