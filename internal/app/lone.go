package app

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
)

// A loneNode is a primary without standbys and without a journal
// (--enable_ha=false). Its metadata is lost when the process ends.
type loneNode struct {
	app    *App
	term   *promote.Term
	writer *journal.Writer
	name   string // stands for a journal's history: the state ends with this process
}

func newLoneNode(a *App) *loneNode {
	store := metadata.New(a.options())
	// After a restart the term is the same, and the state is gone. If ids began with the
	// first one again, an id from before the restart would name another object.
	store.StartIDsAfter(1, rand.Uint64N(metadata.MaxCounter/2))
	// Without a session there is nothing to notice after a pause of the machine: a
	// clock that stood still meanwhile only makes leases longer, and is much
	// cheaper to read.
	running := clock.Runtime()
	t := &promote.Term{
		Number: 1, Store: store, Queue: journal.NewQueue(store, a.cfg.Journal.QueueBytes),
		Now: metadata.NewClock(running, 0), Fence: func(context.Context) error { return nil }, Answers: func() bool { return true },
	}
	return &loneNode{app: a, name: string(journal.NewHistory()), term: t, writer: journal.NewWriter(journal.WriterConfig{
		Store: store, Queue: t.Queue, Log: journal.NoLog{}, Direct: true, Term: 1, Hold: a.params().HoldTime(),
		Now: t.Now, Elapsed: running, Observer: newLateObserver(a), Tracer: a.commitTracer(),
		Filler: leasesync.NewFiller(), // only a commit with a change frees memory in quarantine
	})}
}

func (n *loneNode) run(ctx context.Context) error {
	// There is no older node: the newest rules hold from the first answer on, as a mount under older
	// ones does not keep which process made it.
	for _, first := range []metadata.Change{&metadata.TermStart{Term: 1, Params: n.app.params()}, &metadata.UseRules{Version: metadata.NewestRules}} {
		if err := n.writer.Commit(ctx, first); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.writer.Run(ctx) })
	g.Go(func() error { return n.app.Serve(ctx, n.term) })
	return g.Wait()
}

func (n *loneNode) Store() *metadata.Store { return n.term.Store }

func (n *loneNode) history() string { return n.name }

func (n *loneNode) promoteStatus() promote.Status { return n.statusAt(n.term.Store.Position()) }

func (n *loneNode) statusAt(at metadata.Position) promote.Status {
	cfg := n.app.cfg.Node
	self := promote.NodeInfo{
		ID: cfg.ID, Role: promote.Primary, RPC: cfg.AdvertiseAddress, HTTP: cfg.HTTPAddress, Version: n.app.version,
		Formats: [2]int{journal.MinFormatVersion, journal.FormatVersion}, Applied: at.Seq, Rules: metadata.NewestRules,
	}
	s := promote.Status{
		Self: self, Position: at,
		Leader: promote.Leader{NodeID: cfg.ID, RPC: cfg.AdvertiseAddress, HTTP: cfg.HTTPAddress, Term: 1, State: promote.Serving},
	}
	if at.Seq == 0 { // its term begins with the first commit
		s.Self.Role, s.Leader.State = promote.Promoting, promote.Elected
	}
	return n.app.asServed(s)
}

func (n *loneNode) Status(context.Context) (*pb.StatusResponse, error) {
	at, stats := n.term.Store.Figures()
	s := n.statusAt(at)
	st := &pb.StatusResponse{
		Node: nodeMessage(s.Self), State: stateMessage(at, stats),
		Notes: []string{"high availability is off: all metadata of this master is lost when it stops"},
	}
	st.Warnings = append(st.Warnings, n.app.silenceWarnings()...)
	if s.Leader.State == promote.Serving {
		st.LeaderNodeId, st.LeaderAddress = s.Leader.NodeID, s.Leader.RPC
	}
	return st, nil
}

func (n *loneNode) Digest(ctx context.Context, seq metadata.Seq) (metadata.Seq, metadata.Digest, error) {
	return n.term.Digest(ctx, seq)
}

var errNoHA = errors.New("high availability is off (--enable_ha=false)")

func noHA(op string) error { return errs.Wrap(errs.NotSupported, op, errNoHA) }

func (n *loneNode) Handover(context.Context, metadata.Term, string) (*pb.HandoverResponse, error) {
	return nil, noHA("Handover")
}

func (n *loneNode) StartEmpty(context.Context, metadata.Term, bool) (metadata.Term, error) {
	return 0, noHA("StartEmpty")
}

func (n *loneNode) Refound(context.Context, []string, *rpc.Upload) (metadata.Term, metadata.Seq, error) {
	return 0, 0, noHA("Refound")
}

func (n *loneNode) AddMember(context.Context, string, string, string) (string, error) {
	return "", noHA("AddMember")
}

func (n *loneNode) Forget(context.Context, string) error               { return noHA("Forget") }
func (n *loneNode) RemoveMember(context.Context, string, bool) error   { return noHA("RemoveMember") }
func (n *loneNode) PauseTakeover(context.Context, time.Duration) error { return noHA("PauseTakeover") }
func (n *loneNode) Backup(context.Context, io.Writer) error            { return noHA("Backup") }

func (n *loneNode) History(context.Context) (*pb.HistoryResponse, error) {
	return nil, noHA("History")
}

func (n *loneNode) Events(context.Context, metadata.Seq, bool) iter.Seq2[*pb.EventsResponse, error] {
	return func(yield func(*pb.EventsResponse, error) bool) { yield(nil, noHA("Events")) }
}

func (n *loneNode) BeginSnapshot(context.Context) (rpc.SnapshotBegin, error) {
	return rpc.SnapshotBegin{}, noHA("StreamSnapshot")
}
