package rpcbench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/lab/bench/caller"
	"github.com/understudy-store/understudy/lab/cluster"
)

// segmentBytes is the size of each mounted segment. Nothing allocates that memory, and it
// is so large that nothing is ever evicted.
const segmentBytes = 64 << 30

// A target is the master that is measured, and in HA mode its etcd and a
// standby.
type target struct {
	*cluster.Cluster
	mode   Mode
	master *cluster.Node
	beside *target // the target that it is compared with; nil for none
}

// startTarget starts a target. Its nodes run program; empty means this one.
func startTarget(ctx context.Context, dir string, ha Mode, segments int, program string) (*target, error) {
	cfg := cluster.Config{
		Dir: dir, ID: "bench", Names: []string{"master"}, Program: program,
		Args: []string{"--client_ttl=24h"}, // nobody pings
	}
	if ha != Off {
		cfg.Etcd, cfg.Embedded = 1, ha != On
	}
	if ha == On || ha == Own {
		cfg.Names = append(cfg.Names, "standby")
	}
	c, err := cluster.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	t := &target{Cluster: c, mode: ha, master: c.Nodes[0]}
	if err := t.mount(ctx, segments); err != nil {
		t.Stop()
		return nil, err
	}
	return t, nil
}

// mount mounts segments, each of a name of its own.
func (t *target) mount(ctx context.Context, segments int) error {
	clients := pb.NewClientServiceClient(t.master.Conn)
	for i := range segments {
		var id uuid.UUID
		binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
		name := fmt.Sprintf("host-%05d:12345", i)
		if _, err := clients.MountSegment(ctx, &pb.MountSegmentRequest{
			ClientId: uuid.UUID(caller.Owner).String(), RequestId: uint64(i) + 1,
			Segment: &pb.Segment{Id: id.String(), Name: name, Endpoint: name, Protocol: "tcp", Base: 1 << 40, Size: segmentBytes},
		}); err != nil {
			return fmt.Errorf("mounting a segment: %w", err)
		}
	}
	return nil
}

// fillBatch is how many objects are put or removed at a time outside of measurements.
const fillBatch = 1000

// fill puts the objects that are read. It returns their keys in random order:
// any run of them is a random choice.
func (t *target) fill(ctx context.Context, objects int) ([]string, error) {
	c, err := caller.Dial(ctx, GRPC, t.master.RPC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	pool := make([]string, objects)
	for i := range pool {
		pool[i] = keyOf(uint64(i))
	}
	for from := 0; from < objects; from += fillBatch {
		if err := put(c, pool[from:min(from+fillBatch, objects)]); err != nil {
			return nil, err
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(objects, func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	return pool, nil
}

func put(c caller.Caller, keys []string) error {
	if err := c.PutStart(keys); err != nil {
		return err
	}
	return c.PutEnd(keys)
}
