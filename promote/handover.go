package promote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
)

// An order asks for a handover.
type order struct {
	target string   // node id; empty for the node that is closest behind
	to     NodeInfo // the prepared successor, which has almost all of the journal; zero for none
	result chan handover
}

type handover struct {
	to    NodeInfo
	begun time.Duration // by the clock: when this node stopped answering
	kind  errs.Kind     // of err
	err   error
}

// Handover hands over to another node on purpose: to the one named, or to the
// promotable one that is closest behind. It returns when a node has announced that it
// serves, with that node and the time since this one stopped answering. The new primary
// opens for calls a moment later.
// Errors: NotLeader, also when the term ends before the order is taken;
// InvalidParams for a node that cannot take over; Unavailable when nobody can or
// the handover failed; Unresolved when the term ended in the middle of it.
func (n *Node) Handover(ctx context.Context, term metadata.Term, target string) (Leader, time.Duration, error) {
	n.mu.Lock()
	role, t := n.role, n.term
	n.mu.Unlock()
	if role != Primary || t == nil {
		return Leader{}, 0, errs.New(errs.NotLeader, "Handover", "this node is %s; ask the primary", role)
	}
	if term != 0 && term != t.Number {
		return Leader{}, 0, errs.New(errs.InvalidParams, "Handover", "the term is %d, not %d; look at the status and ask again", t.Number, term)
	}
	if _, err := n.successor(ctx, target); err != nil {
		return Leader{}, 0, err
	}
	o := &order{target: target, result: make(chan handover, 1)}
	select {
	case t.orders <- o:
	case <-t.ended: // by another order, perhaps: this one is not for a later term
		return Leader{}, 0, errs.New(errs.NotLeader, "Handover", "term %d has ended; ask the primary", t.Number)
	case <-ctx.Done():
		return Leader{}, 0, errs.Wrap(errs.Unavailable, "Handover", ctx.Err())
	}
	var h handover
	select {
	case h = <-o.result:
		if h.err != nil {
			return Leader{}, 0, errs.Wrap(h.kind, "Handover", h.err)
		}
	case <-ctx.Done():
		return Leader{}, 0, errs.Wrap(errs.Unresolved, "Handover", ctx.Err())
	}
	l, err := n.waitServing(ctx, t.Number)
	return l, n.Clock() - h.begun, err
}

func (n *Node) successor(ctx context.Context, target string) (NodeInfo, error) {
	if target == n.ID {
		return NodeInfo{}, errs.New(errs.InvalidParams, "Handover", "%s is the primary already", target)
	}
	nodes, err := listNodes(ctx, n.Client, n.Layout)
	if err != nil {
		return NodeInfo{}, errs.Wrap(errs.Unavailable, "Handover", err)
	}
	var best NodeInfo
	for _, other := range nodes {
		switch {
		case other.ID == n.ID || target != "" && other.ID != target:
		case target != "" && !other.Promotable:
			return NodeInfo{}, errs.New(errs.InvalidParams, "Handover", "node %s cannot take over: %s", target, other.Why)
		case other.Promotable && (best.ID == "" || other.Applied > best.Applied):
			best = other
		}
	}
	if best.ID == "" && target != "" {
		return NodeInfo{}, errs.New(errs.InvalidParams, "Handover", "no node %q is registered; there are %s", target, idsOf(nodes))
	}
	if best.ID == "" {
		return NodeInfo{}, errs.New(errs.Unavailable, "Handover", "no other node can take over; start a standby and wait until it is promotable")
	}
	return best, nil
}

// idsOf names nodes for people.
func idsOf(nodes []NodeInfo) string {
	var ids []string
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	return strings.Join(ids, ", ")
}

// leave ends a term that takes no calls any more: this node hands over, or resigns without
// a successor if it is to stop and no other node can take over. All of that must be done
// within one failover time after the end of calls. Whatever fails, this node gives up the
// leader key when the term ends, and the next election decides.
func (t *Term) leave(ctx, running context.Context, o *order) error {
	n, begun := t.node, t.node.Clock()
	bounded, cancel := context.WithTimeout(running, t.until-n.Clock())
	defer cancel()
	to, err := t.handOver(bounded, o)
	if err == nil {
		t.end, t.left = "handed over to "+to.ID, n.Clock()-begun
		n.Log.Info().Uint64("term", uint64(t.Number)).Str("to", to.ID).Dur("took", t.left).Msg("handed over")
		n.setLeader(Leader{NodeID: to.ID, RPC: to.RPC, HTTP: to.HTTP, Term: t.Number})
		o.result <- handover{to: to, begun: begun}
		if ctx.Err() != nil {
			_, err = n.waitServing(running, t.Number)
		}
		return err
	}
	kind := errs.Unresolved
	var refused *journal.RefusedError
	if errors.As(err, &refused) || errs.KindOf(err) == errs.Unavailable || errs.KindOf(err) == errs.InvalidParams {
		kind, err = errs.Unavailable, fmt.Errorf("the term ended without a handover: %w", err)
	}
	o.result <- handover{kind: kind, err: err}
	if kind == errs.Unavailable && ctx.Err() != nil && t.flushed {
		n.Log.Warn().Err(err).Msg("no handover, this node stops all the same: nobody serves until another node is elected")
		t.end = "stopped, and no other node could take over"
		return t.resign(bounded, "")
	}
	return err
}

// prepare does the longest part of a handover while calls are still answered: it finds the
// successor, journals the renewals marked so far, and waits until the successor has applied
// them. It gives up when the writer or the server ends. Errors: Unavailable and
// InvalidParams; nothing has changed then.
func (t *Term) prepare(ctx context.Context, o *order, writer, server *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.node.HandoverTimeout/prepareShare)
	watched := start(func() error {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-writer.ended:
		case <-server.ended:
		}
		return nil
	})
	defer func() { cancel(); <-watched.ended }()
	to, err := t.node.successor(ctx, o.target)
	if err != nil {
		return err
	}
	err = t.flush(func(c metadata.Change) error {
		_, err := t.Queue.SubmitHeld(ctx, c)
		return err
	})
	if err != nil {
		return errs.Wrap(errs.Unavailable, "Handover", fmt.Errorf("writing the renewals: %w", err))
	}
	next := t.Store.Position().Seq + 1 // a beat at least, which shows that the successor follows now
	if err := t.node.Peers.WaitApplied(ctx, to, next); err != nil {
		return errs.Wrap(errs.Unavailable, "Handover", fmt.Errorf("%s does not follow: %w", to.ID, err))
	}
	o.to = to
	return nil
}

// prepareShare divides HandoverTimeout: a successor must catch up within that part of it.
// Calls are answered meanwhile, so it may be longer than the failover time.
const prepareShare = 4

// handOver brings the journal to its end and resigns. A prepared successor has little left
// to apply, and applies it during its election; this node waits for any other one. Errors:
// Unavailable, InvalidParams and *journal.RefusedError, with which this node is surely still
// elected; with any other error it may not be.
func (t *Term) handOver(ctx context.Context, o *order) (NodeInfo, error) {
	n := t.node
	if err := t.awaitSilence(ctx); err != nil { // a clean end says that nobody answers any more
		return NodeInfo{}, errs.Wrap(errs.Unavailable, "Handover", err)
	}
	if err := t.flush(func(c metadata.Change) error { return t.writer.Commit(ctx, c) }); err != nil {
		return NodeInfo{}, err
	}
	t.flushed = true
	to := o.to
	if to.ID == "" {
		var err error
		if to, err = n.successor(ctx, o.target); err != nil {
			return NodeInfo{}, err
		}
		half, cancel := context.WithTimeout(ctx, (t.until-n.Clock())/2) // the rest is for resigning without a successor
		defer cancel()
		if err := n.Peers.WaitApplied(half, to, t.Store.Position().Seq); err != nil {
			return NodeInfo{}, errs.Wrap(errs.Unavailable, "Handover", fmt.Errorf("%s does not follow: %w", to.ID, err))
		}
	}
	if err := t.resign(ctx, to.ID); err != nil {
		return NodeInfo{}, fmt.Errorf("resigning: %w", err)
	}
	return to, nil
}

// flush commits the renewals that are marked but not journaled, so that the
// journal knows every lease.
func (t *Term) flush(commit func(metadata.Change) error) error {
	return leasesync.EachRound(t.Store, flushBatch, func(renewals []leasesync.Renewal) error {
		for _, c := range leasesync.Pack(renewals) {
			if err := commit(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// flushBatch is how many renewals are collected at once.
const flushBatch = 2048

// resign ends the term cleanly, in favour of heir, or of the first node to be elected if heir
// is empty. Every lease must be in the journal.
func (t *Term) resign(ctx context.Context, heir string) error {
	if err := t.awaitSilence(ctx); err != nil {
		return err
	}
	head := t.writer.Next()
	head.Heir = heir
	return t.log.Resign(ctx, head)
}

// waitServing waits until a node announces that it serves in a term after the
// given one.
func (n *Node) waitServing(ctx context.Context, after metadata.Term) (Leader, error) {
	ctx, cancel := context.WithTimeout(ctx, n.HandoverTimeout)
	defer cancel()
	for {
		l, there, err := readLeader(ctx, n.Client, n.Layout)
		if err == nil && there && l.Term > after && l.State == Serving {
			return l, nil
		}
		if clock.Sleep(ctx, 5*time.Millisecond) != nil {
			return Leader{}, errs.New(errs.Unavailable, "Handover", "nobody serves yet; look at the status")
		}
	}
}
