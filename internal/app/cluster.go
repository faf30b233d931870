package app

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/promote/follower"
	"github.com/understudy-store/understudy/promote/statefile"
)

// A clusterNode is a node of a cluster with a journal.
type clusterNode struct {
	*promote.Node
	app    *App
	peers  *peers
	reader *journal.Reader
	etcd   *etcdUse

	members *clientv3.Client // of the nodes' own etcd
	conn    *etcdConn

	agreement agreement
	known     knownNodes
	looks     *looks[view]
	away      absences // members of the nodes' own etcd
	missing   absences // complete nodes
}

func newClusterNode(a *App, e *etcdConn) *clusterNode {
	cfg := a.cfg
	layout := journal.NewLayout(cfg.HA.EtcdPrefix, cfg.HA.ClusterID)
	if cfg.Mooncake.Generation != config.NoGeneration { // its clients look for their master in etcd
		layout.View = mooncake.ViewKey(cfg.HA.ClusterID)
	}
	peers := &peers{clusterID: cfg.HA.ClusterID, nodeID: cfg.Node.ID, log: a.log, certs: a.certs, mayBePlain: !cfg.Security.Required}
	n := promote.New(promote.Config{
		ID: cfg.Node.ID, RPC: cfg.Node.AdvertiseAddress, HTTP: cfg.Node.HTTPAddress, Version: a.version, Settings: shared(cfg),
		ClusterID: cfg.HA.ClusterID, Layout: layout, Codec: service.Codec(), Client: e.journal, Sessions: e.sessions,
		Clock: a.clock, Log: a.log, SessionTTL: cfg.HA.SessionTTL, FailoverAfter: cfg.HA.FailoverAfter, EventsTTL: cfg.Journal.EventsTTL,
		StateDir: cfg.Node.StateDir, StateSaveInterval: cfg.Node.StateSaveInterval, StateBeside: cfg.Node.StateBeside,
		Params: a.params(), Cleanup: cfg.HA.PromotionCleanup, SyncInterval: cfg.Lease.SyncInterval,
		QueueBytes: cfg.Journal.QueueBytes, MaxJournalBytes: cfg.Journal.MaxBytes,
		Compact:  cfg.Journal.Compact == config.CompactOn || cfg.Journal.Compact == config.CompactAuto && cfg.HA.Embedded(),
		OwnsEtcd: cfg.HA.Embedded() && !cfg.HA.Members(), EtcdMember: cfg.HA.Members(), HandoverTimeout: cfg.HA.HandoverTimeout,
		RefoundWait: cfg.HA.RefoundWait, WaitForState: cfg.HA.StateWait(), Alone: cfg.HA.EmbeddedAlone(),
		MayStartEmpty: cfg.Role == config.Primary, StartEmpty: cfg.HA.StartEmpty, NoWriters: cfg.HA.NoWriters,
		Options:  a.options(),
		Follower: follower.Config{FullSyncInterval: cfg.Lease.FullSyncInterval, Counters: a.counters.leases},
		Journal:  newLateObserver(a), Tracer: a.commitTracer(), Peers: peers, Server: a, LeaderChanged: func(l promote.Leader) { a.gate.SetHint(a.hint(l)) },
		Counts: a.counts,
	})
	return &clusterNode{
		Node: n, app: a, peers: peers, members: e.journal, conn: e, reader: &journal.Reader{Client: e.journal, Layout: layout, Codec: service.Codec()},
		etcd: newEtcdUse(a, e), looks: newLooks[view](),
		away: absences{
			gone: func(name string, cause error) {
				a.log.Warn().Str("member", name).Err(cause).Msg("a member of etcd is away")
			},
			back: func(name string, lasted time.Duration) {
				a.log.Info().Str("member", name).Dur("lasted", lasted).Msg("a member of etcd is back")
			},
		},
		missing: absences{
			gone: func(id string, _ error) { a.log.Warn().Str("peer", id).Msg("a node is away") },
			back: func(id string, lasted time.Duration) {
				a.log.Info().Str("peer", id).Dur("lasted", lasted).Msg("a node is back")
			},
		},
	}
}

// A lateObserver passes commits on to the metrics, which are made after the node.
type lateObserver struct {
	app     *App
	refused zerolog.Logger
}

func newLateObserver(a *App) lateObserver {
	// A full etcd refuses every commit: one line in 10 s is enough.
	return lateObserver{a, a.log.Sample(&zerolog.BurstSampler{Burst: 1, Period: 10 * time.Second})}
}

func (o lateObserver) Committed(ctx context.Context, changes, bytes int, log, apply time.Duration) {
	o.app.metrics.Committed(ctx, changes, bytes, log, apply)
}

func (o lateObserver) Refused(changes int, err error) {
	o.app.metrics.Refused(changes, err)
	o.refused.Warn().Err(err).Int("changes", changes).Msg("etcd refused a commit, its callers got UNAVAILABLE_IN_CURRENT_STATUS")
}

func (n *clusterNode) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { _ = n.watchSettings(ctx) }) // they end with the context, which says why
	watch.Go(func() { _ = n.watchNodes(ctx) })
	err := n.Run(ctx)
	cancel()
	watch.Wait()
	n.conn.busy = n.EtcdBusy()
	return err
}

func (n *clusterNode) promoteStatus() promote.Status { return n.app.asServed(n.Node.Status()) }

func (n *clusterNode) history() string { return string(n.Node.History()) }

func (n *clusterNode) Handover(ctx context.Context, term metadata.Term, target string) (*pb.HandoverResponse, error) {
	l, took := n.Leader(), time.Duration(0)
	if term == 0 || l.State != promote.Serving || l.Term <= term {
		var err error
		if l, took, err = n.Node.Handover(ctx, term, target); err != nil {
			return nil, err
		}
	}
	return &pb.HandoverResponse{LeaderNodeId: l.NodeID, LeaderAddress: l.RPC, DurationMs: uint64(took.Milliseconds())}, nil
}

// StartEmpty makes this node begin a term with an empty state, and waits until it
// serves.
func (n *clusterNode) StartEmpty(ctx context.Context, term metadata.Term, noWriters bool) (metadata.Term, error) {
	if l := n.Leader(); term != 0 && l.State == promote.Serving && l.NodeID == n.ID && l.Term > term {
		return l.Term, nil
	}
	if err := n.AllowEmpty(ctx, term, noWriters); err != nil {
		return 0, err
	}
	return n.untilServes(ctx, "StartEmpty", "this node is allowed to start empty", 0)
}

// untilServes waits, after an order, until this node serves in a term or a later one, and
// returns that term.
//
// Errors: Unresolved if the context ends first, and if another node serves after that term:
// then the order has no effect any more.
func (n *clusterNode) untilServes(ctx context.Context, op, done string, term metadata.Term) (metadata.Term, error) {
	for {
		s := n.promoteStatus()
		switch l := s.Leader; {
		case s.Self.Role == promote.Primary && l.Term >= term:
			return l.Term, nil
		case l.State == promote.Serving && l.NodeID != n.ID && l.Term > term:
			return 0, errs.New(errs.Unresolved, op, "%s, but node %s serves since, in term %d, and the order has no effect any more; look at masterctl history", done, l.NodeID, l.Term)
		}
		if clock.Sleep(ctx, 20*time.Millisecond) != nil {
			return 0, errs.New(errs.Unresolved, op, "%s, and does not serve yet; look at masterctl status", done)
		}
	}
}

// Refound founds the journal anew with this node, and waits until it serves.
func (n *clusterNode) Refound(ctx context.Context, giveUp []string, file *rpc.Upload) (metadata.Term, metadata.Seq, error) {
	term, seq, err := n.Node.Refound(ctx, giveUp, (*statefile.Upload)(file))
	if err != nil {
		return 0, 0, err
	}
	serving, err := n.untilServes(ctx, "Refound", "this node has founded the journal anew", term)
	return serving, seq, err
}

func (n *clusterNode) History(ctx context.Context) (*pb.HistoryResponse, error) {
	records, err := n.Terms(ctx)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, "History", etcdclient.Explain(err))
	}
	history := &pb.HistoryResponse{}
	for _, r := range records {
		history.Terms = append(history.Terms, &pb.TermRecord{
			Term: uint64(r.Term), NodeId: r.NodeID, Began: r.Began, Why: r.Why, GapMs: uint64(max(0, r.Gap)), GapAtLeast: r.GapAtLeast, Ended: r.Ended, End: r.End,
			Interruptions: uint64(max(0, r.Count)), InterruptedMs: uint64(max(0, r.Total)), LongestInterruptionMs: uint64(max(0, r.Longest)),
		})
	}
	return history, nil
}

// BeginSnapshot takes the first part of a snapshot of the serving term.
func (n *clusterNode) BeginSnapshot(ctx context.Context) (rpc.SnapshotBegin, error) {
	t, first, at, err := n.SnapshotStart(ctx)
	if err != nil {
		return rpc.SnapshotBegin{}, err
	}
	return rpc.SnapshotBegin{
		Term: t.Number, Store: t.Store, Fence: t.Fence, First: first, Seq: at.Head.Seq, Revision: at.Revision, Head: at.Value(),
	}, nil
}
