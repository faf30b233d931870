package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/promote/follower"
)

// A clusterNode is a node of a cluster with a journal.
type clusterNode struct {
	*promote.Node
	app    *App
	peers  *peers
	reader *journal.Reader
	etcd   *etcdUse
}

func newClusterNode(a *App, e *etcdConn) *clusterNode {
	cfg := a.cfg
	layout := journal.NewLayout(cfg.HA.EtcdPrefix, cfg.HA.ClusterID)
	layout.View = viewKey(cfg)
	peers := &peers{clusterID: cfg.HA.ClusterID, nodeID: cfg.Node.ID, log: a.log}
	n := promote.New(promote.Config{
		ID: cfg.Node.ID, RPC: cfg.Node.AdvertiseAddress, HTTP: cfg.Node.HTTPAddress, Version: a.version,
		ClusterID: cfg.HA.ClusterID, Layout: layout, Codec: service.Codec(), Client: e.journal, Sessions: e.sessions,
		Clock: a.clock, Log: a.log, SessionTTL: cfg.HA.SessionTTL, EventsTTL: cfg.Journal.EventsTTL,
		Params: a.params(), Cleanup: promote.Cleanup(cfg.HA.PromotionCleanup), SyncInterval: cfg.Lease.SyncInterval,
		QueueBytes: cfg.Journal.QueueBytes, MaxJournalBytes: cfg.Journal.MaxBytes,
		Compact:  cfg.Journal.Compact == config.CompactOn || cfg.Journal.Compact == config.CompactAuto && cfg.HA.Embedded(),
		OwnsEtcd: cfg.HA.Embedded(), HandoverTimeout: cfg.HA.HandoverTimeout,
		MayStartEmpty: cfg.Role == config.Primary, StartEmpty: cfg.HA.StartEmpty,
		Options:  a.options(),
		Follower: follower.Config{FullSyncInterval: cfg.Lease.FullSyncInterval, Counters: a.counters.leases},
		Journal:  newLateObserver(a), Peers: peers, Server: a, LeaderChanged: a.leaderChanged,
	})
	return &clusterNode{
		Node: n, app: a, peers: peers, reader: &journal.Reader{Client: e.journal, Layout: layout, Codec: service.Codec()},
		etcd: &etcdUse{client: e.journal, members: e.members, clock: a.clock, quota: cfg.HA.EtcdQuotaBytes, owned: cfg.HA.Embedded()},
	}
}

// lateObserver passes on to the metrics, which are made after the node.
type lateObserver struct {
	app     *App
	refused zerolog.Logger
}

func newLateObserver(a *App) lateObserver {
	// A full etcd refuses every commit: one line in a while is enough.
	return lateObserver{a, a.log.Sample(&zerolog.BurstSampler{Burst: 1, Period: 10 * time.Second})}
}

func (o lateObserver) Committed(changes, bytes int, log, apply time.Duration) {
	o.app.metrics.Committed(changes, bytes, log, apply)
}

func (o lateObserver) Refused(changes int, err error) {
	o.app.metrics.Refused(changes, err)
	o.refused.Warn().Err(err).Int("changes", changes).Msg("etcd refused a commit, its callers were told to try again")
}

func (n *clusterNode) run(ctx context.Context) error { return n.Run(ctx) }

func (n *clusterNode) promoteStatus() promote.Status { return n.Node.Status() }

// lookTimeout bounds what a status asks etcd. Who asks for a status waits little
// longer (masterctl 3 s), and wants to see this node also while etcd is away.
const lookTimeout = 2 * time.Second

// A view is what etcd says of the cluster.
type view struct {
	head              journal.Position
	nodes             []promote.NodeInfo
	headErr, nodesErr error
	size, quota       uint64 // of etcd's database
}

// look asks etcd for all that a status shows, at once.
func (n *clusterNode) look(ctx context.Context) view {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var v view
	var asks sync.WaitGroup
	asks.Go(func() { v.head, v.headErr = n.reader.Head(ctx) })
	asks.Go(func() { v.nodes, v.nodesErr = n.Nodes(ctx) })
	asks.Go(func() { v.size, v.quota = n.etcd.sizes(ctx) })
	asks.Wait()
	return v
}

// Status says how the node and its cluster are. It takes at most lookTimeout.
func (n *clusterNode) Status(ctx context.Context) (rpc.Status, error) {
	v := n.look(ctx)
	s := n.Node.Status() // after the wait for etcd: the role may have changed
	st := rpc.Status{
		Node:    nodeInfo(s.Self),
		State:   rpc.StateInfo{Position: s.Position, StartedEmpty: s.Empty},
		Journal: &rpc.JournalInfo{LastSnapshotReason: string(s.LastLoad), EtcdBytes: v.size, EtcdQuotaBytes: v.quota},
	}
	if store := n.Store(); store != nil {
		st.State.Position, st.State.Stats = store.Figures()
		st.Node.Applied = st.State.Position.Seq
	}
	for _, count := range s.Loads {
		st.Journal.SnapshotLoads += uint64(count)
	}
	// A node that is fenced or hands over still is the elected one, and serves nobody.
	if l := s.Leader; l.State == promote.Serving && (l.NodeID != n.ID || s.Self.Role == promote.Primary) {
		st.LeaderNodeID, st.LeaderAddress = l.NodeID, l.RPC
	}
	head := s.Head
	// etcd's word counts, unless this node has come further in the term meanwhile.
	if v.headErr == nil && v.head.Head.After(head) {
		head = v.head.Head
	}
	st.Journal.Committed, st.Journal.HeadTerm = head.Seq, head.Term
	if v.headErr == nil {
		st.Node.LagEntries, st.Node.LagTime = head.Lag(st.State.Position)
	}
	if v.nodesErr == nil {
		st.Nodes = n.nodeInfos(v.nodes, st.Node)
	}
	if err := cmp.Or(v.headErr, v.nodesErr); err != nil {
		st.Warnings = append(st.Warnings, "etcd does not answer: "+err.Error())
	}
	st.Warnings = append(st.Warnings, n.warnings(st, v.nodesErr == nil)...)
	return st, nil
}

// nodeInfos returns what the nodes registered, this one as it is now.
func (n *clusterNode) nodeInfos(nodes []promote.NodeInfo, self rpc.NodeInfo) []rpc.NodeInfo {
	list := make([]rpc.NodeInfo, 0, len(nodes))
	for _, other := range nodes {
		if other.ID == self.ID {
			list = append(list, self)
			continue
		}
		list = append(list, nodeInfo(other))
	}
	return list
}

// warnings says what an operator should know or do. Without an answer of etcd
// the other nodes are not known.
func (n *clusterNode) warnings(st rpc.Status, nodesKnown bool) (list []string) {
	cfg := n.app.cfg
	if st.State.StartedEmpty {
		list = append(list, "this term started empty: all that was cached before it is lost")
	}
	if !cfg.HA.Embedded() && cfg.Journal.Compact == config.CompactAuto {
		list = append(list, fmt.Sprintf("etcd is not embedded, so this cluster does not compact it: run etcd with "+
			"--auto-compaction-mode=periodic --auto-compaction-retention=%s, or set --journal-compact=on if nobody else needs its history",
			cfg.Journal.EventsTTL))
	}
	if st.Node.Role == rpc.RoleStandby && !st.Node.Promotable {
		list = append(list, "this node cannot take over: "+st.Node.NotPromotable)
		list = append(list, n.peers.warnings()...)
	}
	promotable := 0
	for _, other := range st.Nodes {
		if other.Promotable && other.ID != st.LeaderNodeID {
			promotable++
		}
	}
	if nodesKnown && st.LeaderNodeID != "" && promotable == 0 {
		list = append(list, "no standby could take over now: start one, or wait until it is promotable")
	}
	return list
}

func nodeInfo(n promote.NodeInfo) rpc.NodeInfo {
	info := rpc.NodeInfo{
		ID: n.ID, Role: roles[n.Role], RPC: n.RPC, HTTP: n.HTTP, Version: n.Version, Applied: n.Applied,
		LagEntries: n.Lag, LagTime: time.Duration(n.LagMillis) * time.Millisecond, Promotable: n.Promotable, NotPromotable: n.Why,
	}
	for f := n.Formats[0]; f <= n.Formats[1]; f++ {
		info.Formats = append(info.Formats, uint32(f))
	}
	return info
}

var roles = map[promote.Role]rpc.Role{
	promote.Standby: rpc.RoleStandby, promote.Electing: rpc.RoleElecting, promote.Promoting: rpc.RolePromoting,
	promote.Primary: rpc.RolePrimary, promote.HandingOver: rpc.RoleHandingOver, promote.Fenced: rpc.RoleFenced,
	promote.Stopping: rpc.RoleStopping,
}

// Handover hands over to another node.
func (n *clusterNode) Handover(ctx context.Context, term metadata.Term, target string) (rpc.Handover, error) {
	if l := n.Leader(); term != 0 && l.State == promote.Serving && l.Term > term {
		return rpc.Handover{LeaderNodeID: l.NodeID, LeaderAddress: l.RPC}, nil
	}
	l, took, err := n.Node.Handover(ctx, term, target)
	return rpc.Handover{LeaderNodeID: l.NodeID, LeaderAddress: l.RPC, Took: took}, err
}

// StartEmpty makes this node begin a term without the state of before, and
// waits until it serves.
func (n *clusterNode) StartEmpty(ctx context.Context, term metadata.Term) (metadata.Term, error) {
	if l := n.Leader(); term != 0 && l.State == promote.Serving && l.NodeID == n.ID && l.Term > term {
		return l.Term, nil
	}
	if err := n.AllowEmpty(ctx, term); err != nil {
		return 0, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if s := n.Node.Status(); s.Self.Role == promote.Primary {
			return s.Leader.Term, nil
		}
		select {
		case <-ctx.Done():
			return 0, errs.New(errs.Unavailable, "StartEmpty", "this node may start empty now, and has not yet; look at the status")
		case <-tick.C:
		}
	}
}

// BeginSnapshot takes the first part of a snapshot of the serving term.
func (n *clusterNode) BeginSnapshot(ctx context.Context) (rpc.SnapshotBegin, error) {
	t, first, at, err := n.SnapshotStart(ctx)
	if err != nil {
		return rpc.SnapshotBegin{}, err
	}
	return rpc.SnapshotBegin{
		Term: t.Number, Store: t.Store, Fence: n.app.fence(t), First: first, Seq: at.Head.Seq, Revision: at.Revision,
	}, nil
}

// Events yields the journal's events that etcd holds.
func (n *clusterNode) Events(ctx context.Context, from metadata.Seq, follow bool) iter.Seq2[rpc.Event, error] {
	return func(yield func(rpc.Event, error) bool) {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			head, err := n.reader.Head(ctx)
			if err == nil && head.Head.Seq >= from {
				err = n.events(ctx, from, head.Head.Seq, yield)
				from = head.Head.Seq + 1
			}
			if errors.Is(err, errEnough) {
				return
			}
			if err != nil {
				yield(rpc.Event{}, errs.Wrap(errs.Unavailable, "Events", err))
				return
			}
			if !follow {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

var errEnough = errors.New("the caller has enough")

// events yields what the streams hold in a range of sequences, in the order in
// which it applies. It goes through the range in steps, so that little is held
// at once.
func (n *clusterNode) events(ctx context.Context, from, through metadata.Seq, yield func(rpc.Event, error) bool) error {
	first, err := n.reader.Oldest(ctx, from)
	if err != nil {
		return err
	}
	for from = max(from, first); from <= through; from += eventsStep {
		byseq := make(map[metadata.Seq][]rpc.Event)
		last := min(from+eventsStep-1, through)
		for stream := range metadata.StreamCount {
			err := n.reader.Records(ctx, stream, from, last, func(of journal.Stamp, changes []metadata.Change) error {
				for _, c := range changes {
					byseq[of.Seq] = append(byseq[of.Seq], describe(of, c))
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		for seq := from; seq <= last; seq++ {
			for _, e := range byseq[seq] {
				if !yield(e, nil) {
					return errEnough
				}
			}
		}
	}
	return nil
}

// eventsStep is how many commits are read at once, of up to 1 MiB each.
const eventsStep = 8

// etcdUse knows how large etcd's database is. It asks at most once a second.
type etcdUse struct {
	client  *clientv3.Client
	members []string // their endpoints
	clock   clock.Clock
	quota   int64
	owned   bool

	size  atomic.Int64
	asked atomic.Int64 // by the clock, in seconds
}

func (u *etcdUse) sizes(ctx context.Context) (size, quota uint64) {
	if u.owned {
		quota = uint64(u.quota)
	}
	now := 1 + int64(u.clock()/time.Second)
	if last := u.asked.Load(); now == last || !u.asked.CompareAndSwap(last, now) {
		return uint64(u.size.Load()), quota
	}
	if size := u.largest(ctx); size > 0 {
		u.size.Store(size)
	}
	return uint64(u.size.Load()), quota
}

const (
	sizeTimeout = time.Second // for all members of etcd
	sizeAsks    = 8           // members that are asked at once
)

// largest asks all members of etcd how large their database is, and returns the
// largest: etcd refuses writes when one of them reaches its quota. It returns 0
// if none answers.
func (u *etcdUse) largest(ctx context.Context) int64 {
	ctx, cancel := context.WithTimeout(ctx, sizeTimeout)
	defer cancel()
	sizes := make([]int64, len(u.members))
	var asks errgroup.Group
	asks.SetLimit(sizeAsks)
	for i, endpoint := range u.members {
		asks.Go(func() error {
			if st, err := u.client.Status(ctx, endpoint); err == nil {
				sizes[i] = st.DbSize
			}
			return nil
		})
	}
	_ = asks.Wait() // a member that is down is left out
	return slices.Max(append(sizes, 0))
}
