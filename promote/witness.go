package promote

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
)

// A Witness is what a node that runs a member of etcd and holds no metadata says of itself.
// It stands under witnesses/, for people. Decisions look at nodes/ alone, so no election,
// format or wait for a state ever counts a witness.
type Witness struct {
	ID        string `json:"node_id"`
	HTTP      string `json:"http_address"`
	Version   string `json:"version"`
	EtcdBytes uint64 `json:"etcd_bytes"` // size of etcd's database there
	EtcdQuota uint64 `json:"etcd_quota_bytes"`
}

// A WitnessKey keeps a witness registered. Nobody else has its key: its id names a member
// of etcd, and that member's directory is locked.
type WitnessKey struct {
	Client *clientv3.Client
	Layout journal.Layout
	Clock  clock.Clock
	TTL    time.Duration // whole seconds, at least 2
	Log    zerolog.Logger
	Self   func(ctx context.Context) Witness
}

// Run keeps the key until the context ends. It tries again after an error, and logs an error
// that differs from the last one.
func (k WitnessKey) Run(ctx context.Context) error {
	said := ""
	for {
		err := k.keep(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if text := err.Error(); text != said {
			said = text
			k.Log.Warn().Err(err).Msg("this witness is not registered, it will be tried again")
		}
		if err := clock.Sleep(ctx, registerEvery); err != nil {
			return err
		}
	}
}

// keep registers on a session of its own, and updates the key whenever Self changes.
func (k WitnessKey) keep(ctx context.Context) error {
	s, err := openSession(ctx, k.Client, k.Clock, k.TTL, nil)
	if err != nil {
		return err
	}
	defer s.close(context.WithoutCancel(ctx))
	ctx, end := s.kept(ctx)
	defer end()
	for last := (Witness{}); ctx.Err() == nil; _ = clock.Sleep(ctx, registerEvery) {
		self := k.Self(ctx)
		if self == last {
			continue
		}
		if err := s.put(ctx, k.Layout.Witness(self.ID), self); err != nil {
			return fmt.Errorf("registering this witness: %w", err)
		}
		last = self
	}
	return context.Cause(ctx)
}

// Nodes returns the nodes that hold metadata, as a witness finds them registered.
func (k WitnessKey) Nodes(ctx context.Context) ([]NodeInfo, error) {
	return listNodes(ctx, k.Client, k.Layout)
}

// Witnesses returns those that are registered, by id. What cannot be read is left out.
func (n *Node) Witnesses(ctx context.Context) ([]Witness, error) {
	kvs, err := listKeys(ctx, n.Client, "the witnesses", clientv3.OpGet(n.Layout.Witnesses(), clientv3.WithPrefix(), clientv3.WithLimit(1000)))
	return witnessesOf(kvs), err
}

// witnessesOf reads the records of witnesses. What cannot be read is left out.
func witnessesOf(kvs []*mvccpb.KeyValue) (witnesses []Witness) {
	for _, kv := range kvs {
		var w Witness
		if json.Unmarshal(kv.Value, &w) == nil {
			witnesses = append(witnesses, w)
		}
	}
	return witnesses
}
