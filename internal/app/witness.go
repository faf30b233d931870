package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/metrics"
	"github.com/understudy-store/understudy/internal/zslog"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/promote"
)

// A witness is a node with a member of etcd and no metadata. It reads no journal and stands
// in no election: what it writes is its own key, which is for people.
type witness struct {
	app       *App
	etcd      *etcdConn
	use       *etcdUse
	layout    journal.Layout
	compactor *journal.Compactor // for the space of its own member alone
}

func (a *App) runWitness(ctx context.Context, etcd *etcdConn) error {
	w := a.newWitness(etcd)
	if err := a.writeReadyFile(etcd); err != nil {
		return err
	}
	a.log.Info().Str("version", a.version).Str("http", a.cfg.Node.HTTPAddress).
		Msg("started as a witness: its member of etcd votes, and it holds no metadata")
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	context.AfterFunc(etcd.failed(), func() { cancel(context.Cause(etcd.failed())) })
	g, serving := errgroup.WithContext(running)
	for _, part := range []func(context.Context) error{
		w.serveHTTP, w.key().Run, w.makeSpace, a.callers.Run, a.notifySystemd,
	} {
		g.Go(func() error { return part(serving) })
	}
	err := g.Wait()
	if cause := context.Cause(running); cause != nil && ctx.Err() == nil {
		return cause
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // stopped on purpose
	}
	return err
}

func (a *App) newWitness(etcd *etcdConn) *witness {
	w := &witness{app: a, etcd: etcd, layout: journal.NewLayout(a.cfg.HA.EtcdPrefix, a.cfg.HA.ClusterID)}
	w.use = newEtcdUse(a, etcd)
	w.compactor = journal.NewCompactor(journal.Compactor{
		Client: etcd.journal, Layout: w.layout, Clock: a.clock, Log: zslog.New(a.log),
		Tip:   func(context.Context) journal.Cursor { return journal.Cursor{} },
		Cover: func(context.Context) (journal.Cover, error) { return journal.Cover{}, nil },
		Cuts:  func(bool) bool { return false },
	})
	return w
}

// key is the witness's registration, which the status of other nodes and masterctl doctor
// read.
func (w *witness) key() promote.WitnessKey {
	a := w.app
	return promote.WitnessKey{
		Client: w.etcd.sessions, Layout: w.layout, Clock: a.clock, TTL: a.cfg.HA.SessionTTL, Log: a.log,
		Self: func(ctx context.Context) promote.Witness {
			used, quota := w.use.sizes(ctx)
			return promote.Witness{ID: a.cfg.Node.ID, HTTP: a.cfg.Node.HTTPAddress, Version: a.version, EtcdBytes: used, EtcdQuota: quota}
		},
	}
}

func (w *witness) serveHTTP(ctx context.Context) error {
	return w.app.serveAPI(ctx, httpapi.API{
		Node: w.node, Metrics: metrics.Witness(w.app.version, w.use.last, w.app.expiries),
		Summary: func() string { return "witness" }, MooncakeSummary: func() (master, ha string) { return "", "" },
	})
}

// node returns the status of the witness without asking etcd.
func (w *witness) node() httpapi.NodeStatus {
	n := httpapi.NodeStatus{NodeID: w.app.cfg.Node.ID, Role: httpapi.Witness, Obstacle: "it votes in etcd, and holds no metadata"}
	if !w.etcd.server.HasLeader() {
		n.Why = "its member of etcd knows no leader: more than half of the members must run"
		n.Obstacle = n.Why
	}
	return n
}

// makeSpace defragments the witness's member when it is nearly full, until the context ends.
// The primary compacts, or without one the node whose member leads etcd. So a witness does
// not go on leading an etcd that is full: it has another member lead (yield).
func (w *witness) makeSpace(ctx context.Context) error {
	if w.app.cfg.Journal.Compact == config.CompactOff {
		<-ctx.Done()
		return ctx.Err()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.compactor.Run(ctx) })
	g.Go(func() error {
		return clock.Every(ctx, time.Second, func() error {
			if !w.compactor.Space().Full() {
				return nil
			}
			if err := w.yield(ctx); err != nil && ctx.Err() == nil {
				w.app.log.Warn().Err(err).Msg("a node that can make space does not lead etcd yet")
			}
			return nil
		})
	})
	return g.Wait()
}

// yield has the member of a node with metadata lead etcd, if that of the witness does.
func (w *witness) yield(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	client := w.etcd.journal
	own, err := client.Status(ctx, w.etcd.members[0])
	if err != nil || own.Leader != own.Header.MemberId {
		return err
	}
	nodes, err := w.key().Nodes(ctx)
	if err != nil {
		return err
	}
	list, err := client.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.IsLearner || !slices.ContainsFunc(nodes, func(n promote.NodeInfo) bool { return n.ID == m.Name }) {
			continue
		}
		if _, err := client.MoveLeader(ctx, m.ID); err != nil {
			return fmt.Errorf("having the member of %s lead etcd: %w", m.Name, err)
		}
		return nil
	}
	return errors.New("no other node is registered")
}
