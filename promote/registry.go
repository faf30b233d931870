package promote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

// A NodeInfo is what a node says of itself under nodes/.
type NodeInfo struct {
	ID         string       `json:"node_id"`
	Role       Role         `json:"role"`
	RPC        string       `json:"rpc_address"`
	HTTP       string       `json:"http_address"`
	Version    string       `json:"version"`
	Applied    metadata.Seq `json:"applied_sequence"`
	Lag        uint64       `json:"lag_entries"`
	LagMillis  int64        `json:"lag_ms"`
	Promotable bool         `json:"promotable"`
	Why        string       `json:"not_promotable_because,omitempty"`
	Lost       string       `json:"journal_lost,omitempty"` // why, on a node that holds a complete state of it
	Stalled    bool         `json:"stalled,omitempty"`      // it holds a complete state, and its watch of etcd brings nothing of what follows
	Foreign    bool         `json:"foreign,omitempty"`      // Lost: another journal stands in etcd, which has nothing to do with that state
	Formats    [2]int       `json:"formats"`                // of the journal: oldest and newest it reads
	// LastTerm is the last term that the node remembers, also if etcd has gone back since.
	LastTerm metadata.Term `json:"last_term,omitempty"`
	// Saved is where the node's newest state file leads, if the journal still goes on
	// from there.
	Saved metadata.Seq `json:"saved_sequence,omitempty"`
	// Needs are the places from which the node also needs the journal, while it writes a
	// state file or loads a snapshot.
	Needs [2]place `json:"needs,omitzero"`
	// Restorable says that after a restart the node could go on from its newest state file.
	Restorable bool `json:"restorable,omitempty"`
	// Instance is the random id of the node's state directory.
	Instance string `json:"instance,omitempty"`
	// MayHold is why the node may hold a state though it holds none so far: it is awaited
	// as if it were away.
	MayHold string `json:"may_hold,omitempty"`

	// Settings are those that should be alike on all nodes, where they are not the default:
	// a JSON object. Older versions leave it out.
	Settings string `json:"settings,omitempty"`

	// MakesSpace says that etcd, or a member of it, is embedded in this node, which compacts it and makes space.
	MakesSpace bool `json:"makes_space,omitempty"`
	// EtcdFull says that the etcd which is embedded in this node is nearly full.
	EtcdFull bool `json:"etcd_full,omitempty"`

	Rules metadata.Rules `json:"rules,omitempty"` // the newest it knows; older versions leave it out

	Counts Counts `json:"counts,omitzero"` // of an elected node; older versions leave them out
}

// holdsState reports whether a node holds a complete state, of the journal in etcd or of one
// that is lost, up to date or not: nobody starts empty beside it.
func (i NodeInfo) holdsState() bool { return i.Promotable || i.Lost != "" || i.Stalled }

// A registry keeps this node's own key, on a lease of its own.
type registry struct {
	client  *clientv3.Client
	layout  journal.Layout
	clock   clock.Clock
	ttl     time.Duration
	log     zerolog.Logger
	self    func(ctx context.Context) NodeInfo
	noSpace func() // called when etcd is full
	// recordsLive is how long records live: a full etcd may have space again when they have
	// expired. A node that makes space itself does not wait for that.
	recordsLive time.Duration
	makesSpace  bool
	capability  func() (role Role, promotable bool) // a change of it is registered at once
	began       bool                                // run has begun: keys with the node's id may be from this process
	sharer      string                              // the node that has this one's address, as the last attempt saw; for register alone
}

// register waits until the node's key is free and creates it. A key that an earlier process
// of this node left behind expires with its lease. One that stays belongs to another node
// with the same id, unless it has no lease. Nor may another node have this one's address:
// who looks for one of them would reach the other. While etcd is full, register waits until the
// records in it have expired.
func (r *registry) register(ctx context.Context) (*Session, error) {
	deadline := r.clock() + r.ttl + registerGrace
	for logged := false; ; {
		s, err := r.try(ctx)
		full := errors.Is(err, rpctypes.ErrNoSpace)
		late := (errors.Is(err, rpctypes.ErrLeaseNotFound) || etcdclient.Silent(err)) && r.clock() <= deadline+registerStalls // this machine, or etcd, stalled
		switch {
		case s != nil || err != nil && !full && !late:
			return s, err
		case late:
		case full && r.makesSpace:
			r.noSpace()
			return nil, err
		case full && r.clock() > deadline+r.recordsLive:
			return nil, fmt.Errorf("etcd is full, and nobody made space: compact it, defragment it and disarm its alarm, and raise its quota: %w", err)
		case full:
			r.noSpace()
		case r.clock() > deadline && r.sharer != "":
			return nil, fmt.Errorf("node %q advertises the address of this node, %s: give each node an --advertise-address at which it alone is reached, or stop the other one",
				r.sharer, r.self(ctx).RPC)
		case r.clock() > deadline && r.deleteStray(ctx):
		case r.clock() > deadline:
			return nil, fmt.Errorf("another node with the id %q is running (key %s): give each node its own --node-id, or stop the other one",
				r.self(ctx).ID, r.layout.Node(r.self(ctx).ID))
		case !logged && r.sharer != "":
			logged = true
			r.log.Warn().Str("other", r.sharer).Dur("at_most", r.ttl+registerGrace).Msg("another node advertises this node's address; waiting until its key in etcd expires")
		case !logged:
			logged = true
			r.log.Info().Dur("at_most", r.ttl+registerGrace).Msg("waiting until the key that this node left in etcd before its restart expires")
		}
		if err := clock.Sleep(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// deleteStray deletes this node's key if it has no lease, and reports whether the key is
// gone. A node always writes its own key on a lease, so somebody else wrote this one.
func (r *registry) deleteStray(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	key := r.layout.Node(r.self(ctx).ID)
	resp, err := r.client.Txn(ctx).If(clientv3.Compare(clientv3.LeaseValue(key), "=", 0)).Then(clientv3.OpDelete(key)).Commit()
	if err != nil || !resp.Succeeded {
		return false
	}
	if resp.Responses[0].GetResponseDeleteRange().Deleted == 0 {
		return true // it has just gone
	}
	r.log.Warn().Str("key", key).Msg("deleted this node's key in etcd, which somebody else wrote: it had no lease")
	return true
}

// registerGrace is how much longer than its TTL a stale key may take to go:
// etcd looks for expired leases twice a second.
const registerGrace = 2 * time.Second

// registerStalls is how much longer a node tries while etcd does not answer, or its lease
// expires each time before its key is there, for example on an overloaded machine.
const registerStalls = time.Minute

func (r *registry) try(ctx context.Context) (*Session, error) {
	self := r.self(ctx)
	if err := r.findSharer(ctx, self); err != nil || r.sharer != "" {
		return nil, err
	}
	s, err := openSession(ctx, r.client, r.clock, r.ttl, nil)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(self)
	if err != nil {
		return nil, err
	}
	attempt, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	key := r.layout.Node(self.ID)
	put := clientv3.OpPut(key, string(value), clientv3.WithLease(s.lease))
	resp, err := r.client.Txn(attempt).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(put).Else(clientv3.OpGet(key), clientv3.OpGet(r.layout.Leader())).Commit()
	if err == nil && !resp.Succeeded {
		resp, err = r.inherit(attempt, self, put, resp)
	}
	if err == nil && resp.Succeeded {
		err = r.findSharer(ctx, self) // again: two nodes may register at once
	}
	if err != nil {
		s.close(ctx)
		return nil, fmt.Errorf("registering this node: %w", err)
	}
	if !resp.Succeeded || r.sharer != "" {
		s.close(ctx)
		return nil, nil
	}
	return s, nil
}

// findSharer notes which other node has registered this node's address, before this node
// registered if it has. A key without a lease does not count: no node wrote it.
func (r *registry) findSharer(ctx context.Context, self NodeInfo) error {
	r.sharer = ""
	kvs, err := listKeys(ctx, r.client, "nodes", nodesOp(r.layout))
	own := int64(math.MaxInt64)
	for _, kv := range kvs {
		if string(kv.Key) == r.layout.Node(self.ID) {
			own = kv.CreateRevision
		}
	}
	for _, kv := range kvs {
		var o NodeInfo
		if json.Unmarshal(kv.Value, &o) == nil && o.ID != self.ID && o.RPC != "" && o.RPC == self.RPC &&
			string(kv.Key) == r.layout.Node(o.ID) && kv.Lease != 0 && kv.CreateRevision < own {
			r.sharer = o.ID
		}
	}
	return err
}

// inherit takes over the keys that this node left in etcd before its restart. The former
// process has ended: this one has the lock of their state directory. At another address the
// directory may be a copy, beside which the original runs: its keys expire if it does not.
// Once run has begun, a key of the node may come from an attempt of this process whose answer
// was lost, and the leader key from its own term: that one stays.
func (r *registry) inherit(ctx context.Context, self NodeInfo, put clientv3.Op, found *clientv3.TxnResponse) (*clientv3.TxnResponse, error) {
	nodes, leaders := found.Responses[0].GetResponseRange().Kvs, found.Responses[1].GetResponseRange().Kvs
	former := nodesOf(nodes)
	if len(former) != 1 || self.Instance == "" || former[0].Instance != self.Instance || former[0].RPC != self.RPC {
		return found, nil
	}
	compares := []clientv3.Cmp{clientv3.Compare(clientv3.Value(r.layout.Node(self.ID)), "=", string(nodes[0].Value))}
	ops := []clientv3.Op{put}
	var l Leader
	if !r.began && len(leaders) == 1 && json.Unmarshal(leaders[0].Value, &l) == nil && l.NodeID == self.ID {
		compares = append(compares, clientv3.Compare(clientv3.Value(r.layout.Leader()), "=", string(leaders[0].Value)))
		ops = append(ops, r.layout.DeleteLeader()...)
	}
	resp, err := r.client.Txn(ctx).If(compares...).Then(ops...).Commit()
	if err == nil && resp.Succeeded && !r.began {
		r.log.Info().Msg("took over the keys that this node left in etcd before its restart")
	}
	return resp, err
}

// run keeps the key up to date until the context ends; after a lost session, or without
// one, it registers anew.
func (r *registry) run(ctx context.Context, s *Session) error {
	r.began = true
	for {
		if s != nil {
			err := r.keep(ctx, s)
			if ctx.Err() != nil {
				s.close(context.WithoutCancel(ctx))
				return ctx.Err()
			}
			r.log.Warn().Err(err).Msg("this node's registration was lost, registering again")
		}
		for {
			var err error
			if s, err = r.register(ctx); err == nil {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.log.Warn().Err(err).Msg("registering this node failed, it will be tried again")
			if err := clock.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
}

// keep updates the key each second, and at once when the role changes or whether this node
// is promotable, and keeps the session alive.
func (r *registry) keep(ctx context.Context, s *Session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(s.keepAlive(ctx)) }() // a lost session also ends an update under way
	tick := time.NewTicker(registerEvery / 20)
	defer tick.Stop()
	var last NodeInfo
	looked := r.clock()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		role, promotable := r.capability()
		if role == last.Role && promotable == last.Promotable && r.clock()-looked < registerEvery {
			continue
		}
		looked = r.clock()
		self := r.self(ctx)
		if self == last {
			continue
		}
		if err := s.put(ctx, r.layout.Node(self.ID), self); err == nil {
			last = self
		}
	}
}

// registerEvery is how often a node that goes on as before updates its key.
const registerEvery = time.Second

// allRead reports whether every node reads a format of the journal.
func allRead(nodes []NodeInfo, format int) bool {
	return !slices.ContainsFunc(nodes, func(n NodeInfo) bool { return n.Formats[1] < format })
}

// listNodes returns the registered nodes by id. What cannot be read is left
// out.
func listNodes(ctx context.Context, client *clientv3.Client, layout journal.Layout) ([]NodeInfo, error) {
	kvs, err := listKeys(ctx, client, "the nodes", nodesOp(layout))
	return nodesOf(kvs), err
}

// listKeys asks etcd for the keys of a range; what names them in an error.
func listKeys(ctx context.Context, client *clientv3.Client, what string, keys clientv3.Op) ([]*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, journal.AttemptTimeout)
	defer cancel()
	resp, err := client.Do(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", what, err)
	}
	return resp.Get().Kvs, nil
}

// nodesOp reads what nodesOf decodes.
func nodesOp(layout journal.Layout) clientv3.Op {
	return clientv3.OpGet(layout.Nodes(), clientv3.WithPrefix(), clientv3.WithLimit(1000))
}

// nodesOf returns the nodes that are registered, by id. A key without a lease is no registration:
// no node writes one.
func nodesOf(kvs []*mvccpb.KeyValue) (nodes []NodeInfo) {
	for _, kv := range kvs {
		var n NodeInfo
		if kv.Lease != 0 && json.Unmarshal(kv.Value, &n) == nil {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b NodeInfo) int { return strings.Compare(a.ID, b.ID) })
	return nodes
}
