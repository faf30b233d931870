package promote

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote/follower"
	"github.com/understudy-store/understudy/promote/statefile"
)

// A refounding is an operator's order to found the journal anew (docs/failover.md, "etcd has lost the journal").
type refounding struct {
	file   *statefile.State // to found from; nil for the state that this node holds
	seen   metadata.Term    // the highest term that is known
	giveUp []string         // ids of the nodes whose losses the operator accepts
	// leader and writer are the elections of the elected node and of the newest commit when
	// the losses were counted; empty for none. The count does not include what another node
	// has acknowledged since.
	leader, writer journal.Election
	done           chan error    // when the journal is founded, or cannot be
	term           metadata.Term // of the new journal, after done
	seq            metadata.Seq  // at which it was founded, after done
}

var (
	errOrdered  = errors.New("an operator's order founds the journal anew")
	errReplaced = errs.New(errs.Unavailable, "Refound", "another order came meanwhile")
)

const (
	// maxUpload bounds a state file that an operator sends.
	maxUpload = 64 << 30
	// uploadBuffer is how much of it is read before it is known to be of this cluster.
	uploadBuffer = 64 << 10
)

// Refound founds the journal anew, from a state file, or from the state that this node
// holds if that is nil. It returns the term and the sequence of the founding; this
// node serves a moment later. giveUp must name exactly the nodes that lose something. A file
// is read only if there is space for it and giveUp fits where the file is said to lead; if
// that is not known, giveUp must fit some file.
// Errors: Unavailable if it is refused or failed; InvalidParams for the file;
// Unresolved if the context ends first.
func (n *Node) Refound(ctx context.Context, giveUp []string, file *statefile.Upload) (metadata.Term, metadata.Seq, error) {
	o := &refounding{giveUp: append([]string{}, giveUp...), done: make(chan error, 1)}
	base, err := n.base(ctx, o, file)
	if err != nil {
		return 0, 0, err
	}
	if err := n.checkLoss(ctx, o, base, false); err != nil {
		return 0, 0, err
	}
	n.mu.Lock()
	before, t := n.ordered, n.term
	n.ordered = o
	n.mu.Unlock()
	if before != nil {
		before.done <- errReplaced
	}
	if t != nil {
		t.stop(errOrdered)
	}
	n.poke()
	select {
	case err := <-o.done:
		return o.term, o.seq, err
	case <-ctx.Done():
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ordered == o { // not begun: withdraw it
			n.ordered = nil
			return 0, 0, errs.Wrap(errs.Unavailable, "Refound", ctx.Err())
		}
		return 0, 0, errs.Wrap(errs.Unresolved, "Refound", ctx.Err())
	}
}

// base returns the position, in its own journal, of the state that an order founds from.
func (n *Node) base(ctx context.Context, o *refounding, file *statefile.Upload) (at Standing, err error) {
	if file != nil {
		if err := n.checkAnnounced(ctx, o.giveUp, file.Head); err != nil {
			return at, err
		}
		if o.file, err = n.upload(file); err != nil {
			return at, errs.Wrap(errs.InvalidParams, "Refound", err)
		}
		return standingOf(o.file.Store, o.file.At), nil
	}
	n.mu.Lock()
	f := n.follower
	n.mu.Unlock()
	if f == nil {
		return at, errs.New(errs.Unavailable, "Refound", "this node is elected already; look at masterctl status")
	}
	store, cursor := f.State()
	switch {
	case store == nil || store.Position().Seq == 0:
	case f.Complete() && f.Lost().Err == nil:
		return at, errs.New(errs.Unavailable, "Refound", "this node follows the journal in etcd, so there is nothing to found anew; masterctl handover makes it the primary")
	default:
		return standingOf(store, cursor), nil
	}
	if o.file, err = n.saver.newest(ctx); err != nil {
		return at, errs.Wrap(errs.Unavailable, "Refound", err)
	}
	if o.file == nil || o.file.At.Head.Seq == 0 {
		return at, errs.New(errs.Unavailable, "Refound", "this node holds no state, in memory or in --state-dir")
	}
	return standingOf(o.file.Store, o.file.At), nil
}

func standingOf(store *metadata.Store, at journal.Cursor) Standing {
	return Standing{History: at.Head.History, Position: store.Position()}
}

func (n *Node) upload(file *statefile.Upload) (*statefile.State, error) {
	dir := ""
	if n.saver.status().Instance != "" {
		dir = n.StateDir // which is on a disk with space for it
	}
	if err := statefile.CheckSpace(cmp.Or(dir, os.TempDir()), file.Bytes, statefile.SpareBytes); file.Bytes > 0 && err != nil {
		return nil, fmt.Errorf("%w, or send it to another node with --node", err)
	}
	in := bufio.NewReaderSize(file, uploadBuffer)
	if err := statefile.CheckBeginning(in, n.ClusterID); err != nil {
		return nil, fmt.Errorf("the file that was sent: %w", err)
	}
	aside, err := os.CreateTemp(dir, "upload-*.tmp")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(aside.Name()) }()
	size, err := io.Copy(aside, io.LimitReader(in, maxUpload))
	if err = errors.Join(err, aside.Close()); err != nil {
		return nil, err
	}
	if size == maxUpload {
		return nil, fmt.Errorf("the file has %d bytes or more", int64(maxUpload))
	}
	s, err := statefile.Read(aside.Name(), n.ClusterID, n.Options, n.Codec)
	if err != nil {
		return nil, fmt.Errorf("the file that was sent: %w", err)
	}
	if s.At.Head.Seq == 0 {
		return nil, errors.New("the file that was sent holds a state before the first commit")
	}
	return s, nil
}

// checkAnnounced refuses an order before its file is read, judged by where the file is said
// to lead. If that is not known, it refuses what would be refused for any file.
func (n *Node) checkAnnounced(ctx context.Context, giveUp []string, head string) error {
	if head == "" {
		return n.checkAny(ctx, giveUp)
	}
	h, err := journal.DecodeHead([]byte(head))
	if err != nil {
		return errs.Wrap(errs.InvalidParams, "Refound", fmt.Errorf("where the file leads in the journal: %w", err))
	}
	base := Standing{History: h.History, Position: metadata.Position{Term: h.Term, Seq: h.Seq}}
	return n.checkLoss(ctx, &refounding{giveUp: slices.Clone(giveUp)}, base, false)
}

// beyondAll is a position that no node is ahead of.
var beyondAll = Standing{Position: metadata.Position{Term: metadata.MaxTerm, Seq: math.MaxUint64}}

// checkAny refuses an order that would be refused for any file, before the file is sent:
// for example, one that does not give up what the elected node has acknowledged.
func (n *Node) checkAny(ctx context.Context, giveUp []string) error {
	losses, err := n.losses(ctx, new(refounding), beyondAll)
	if err != nil {
		return errs.Wrap(errs.Unavailable, "Refound", err)
	}
	losses = slices.DeleteFunc(losses, func(l nodeLoss) bool { return slices.Contains(giveUp, l.id) })
	if len(losses) == 0 {
		return nil
	}
	ids, lost := explain(losses)
	all := slices.Sorted(slices.Values(append(ids, giveUp...)))
	return errs.New(errs.Unavailable, "Refound", "whatever the file holds, this would be lost: %s; to give that up, add --yes=%s; the file was not read, and may ask for more",
		lost, strings.Join(slices.Compact(all), ","))
}

// checkLoss refuses an order unless it gives up exactly what would be lost. An order that
// is checked again may give up more: less may be lost by now.
func (n *Node) checkLoss(ctx context.Context, o *refounding, base Standing, again bool) error {
	losses, err := n.losses(ctx, o, base)
	if err != nil {
		return errs.Wrap(errs.Unavailable, "Refound", err)
	}
	ids, lost := explain(losses)
	slices.Sort(o.giveUp)
	o.giveUp = slices.Compact(o.giveUp)
	unnamed := slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(o.giveUp, id) })
	switch {
	case !unnamed && (again || len(ids) == len(o.giveUp)):
		return nil
	case len(ids) == 0:
		return errs.New(errs.Unavailable, "Refound", "no node loses anything, so there is nothing to give up; ask again without --yes")
	}
	return errs.New(errs.Unavailable, "Refound", "the state to found from is at sequence %d of term %d, and this would be lost: %s; to give that up, add --yes=%s",
		base.Position.Seq, base.Position.Term, lost, strings.Join(ids, ","))
}

// explain returns the ids of the nodes that lose something, and for people what they lose.
func explain(losses []nodeLoss) (ids []string, text string) {
	var texts []string
	for _, l := range losses {
		ids, texts = append(ids, l.id), append(texts, "what "+l.id+" "+l.why)
	}
	return ids, strings.Join(texts, "; ")
}

// A nodeLoss is a node that has, or may have, more than the state to found from.
type nodeLoss struct{ id, why string }

// losses returns who would lose something, by id.
func (n *Node) losses(ctx context.Context, o *refounding, base Standing) (list []nodeLoss, err error) {
	known := n.companions.known().At
	s, err := readScene(ctx, n.Client, n.Layout)
	if err != nil {
		return nil, err
	}
	l := s.leader
	o.leader, o.writer = l.Election, s.view.Cursor.Head.Election
	listed, err := n.listComplete(ctx)
	if err != nil {
		return nil, err
	}
	complete := make(map[string]bool) // as last seen
	for _, c := range listed {
		known[c.ID], complete[c.ID] = c.RPC, true
		o.seen = max(o.seen, c.Term)
	}
	for id := range known {
		complete[id] = true
	}
	for _, r := range s.nodes {
		known[r.ID] = r.RPC
		complete[r.ID] = complete[r.ID] || r.holdsState()
	}
	if s.there && l.NodeID != "" {
		known[l.NodeID], complete[l.NodeID] = l.RPC, true
	}
	delete(known, n.ID)
	answers, own := n.ask(ctx, known), n.Status()
	known[n.ID] = n.RPC
	answers[n.ID] = Standing{ID: n.ID, Role: own.Self.Role, History: own.Head.History, Position: own.Position, Complete: own.Complete, Restored: own.Restored, Forked: own.Forked}
	o.seen = max(o.seen, base.Position.Term, own.Head.Term, l.Term, n.electedTerm(), n.companions.lastTerm())
	for id := range known {
		s, answered := answers[id]
		o.seen = max(o.seen, s.Position.Term)
		if why := s.loss(base, id == l.NodeID); answered && why != "" {
			list = append(list, nodeLoss{id, why})
		} else if !answered && complete[id] {
			list = append(list, nodeLoss{id, "may hold, which does not answer or cannot read its state files"})
		}
	}
	slices.SortFunc(list, func(a, b nodeLoss) int { return strings.Compare(a.id, b.id) })
	return list, nil
}

// loss says what a node holds beyond the state to found from; empty for nothing.
func (s Standing) loss(base Standing, elected bool) string {
	at := fmt.Sprintf("at sequence %d of term %d", s.Position.Seq, s.Position.Term)
	switch ahead := s.Position.Term > base.Position.Term || s.Position.Term == base.Position.Term && s.Position.Seq > base.Position.Seq; {
	case elected || s.Role == Primary:
		return "acknowledged as the primary, " + at
	case s.Forked:
		return "holds of another branch of the journal, " + at
	case !s.Complete && !s.Restored || s.Position.Seq == 0:
		return ""
	case !s.History.Is(base.History):
		return "holds of another journal, " + at
	case ahead:
		return "holds, " + at
	}
	return ""
}

// takeOrder returns the order that is to be carried out next, nil for none.
func (n *Node) takeOrder() *refounding {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := n.ordered
	n.ordered = nil
	return o
}

// obeyTries bounds the attempts to carry out an order while other nodes are elected.
const obeyTries = 10

// obey founds the journal anew by an order, whichever node is elected. The follower must
// have stopped.
func (n *Node) obey(ctx context.Context, f *follower.Follower, o *refounding) (c *candidate, err error) {
	for range obeyTries {
		if c, err = n.tryOrder(ctx, f, o); !errors.Is(err, errLost) {
			break
		}
	}
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, "Refound", fmt.Errorf("the journal is not founded anew: %w", err))
	}
	return c, nil
}

// outdated reports whether another node was elected, or has committed, since the losses
// were counted.
func (o *refounding) outdated(l Leader, there bool, head journal.Head) bool {
	if there {
		return l.Election == "" || l.Election != o.leader
	}
	return head.Election != o.leader && head.Election != o.writer
}

// tryOrder founds the journal anew, provided that the same node is elected, or none, as when
// the losses were counted. Otherwise it counts them again, and returns errLost if the order
// still gives up enough.
func (n *Node) tryOrder(ctx context.Context, f *follower.Follower, o *refounding) (*candidate, error) {
	g := grounds{learned: n.Clock()}
	if g.store, g.at = f.State(); o.file != nil {
		followed := g.at.Head
		g.store, g.at = o.file.Store, o.file.At
		g.at.Head.Window, g.at.Head.Hold = max(g.at.Head.Window, followed.Window), max(g.at.Head.Hold, followed.Hold)
	} else if f.Complete() && f.Lost().Err == nil {
		return nil, errors.New("this node follows the journal again")
	}
	s, err := readScene(ctx, n.Client, n.Layout)
	l, there, view := s.leader, s.there, s.view
	if err == nil && errors.Is(view.Err, journal.ErrNewer) {
		err = view.Err
	}
	if there && err == nil && view.Cursor.Head.Seq > 0 && view.Cursor.Head.Window == 0 {
		err = fmt.Errorf("%s serves for as long as its session lives, since a node of an older version is registered; stop it first", l.NodeID)
	}
	if err != nil {
		return nil, err
	}
	if o.outdated(l, there, view.Cursor.Head) {
		return nil, cmp.Or(n.checkLoss(ctx, o, standingOf(g.store, g.at), true), errLost)
	}
	g.head, g.over = view.Cursor, l.value
	how := &founding{cause: "by an operator's order", by: "the state of " + n.ID, at: g.store.Position().Seq, givenUp: o.giveUp}
	if o.file != nil {
		how.by = "a state file"
	}
	o.term = max(o.seen, l.Term, view.Cursor.Head.Term) + foundingTerms
	o.seq = how.at
	n.Log.Warn().Uint64("term", uint64(o.term)).Uint64("sequence", uint64(how.at)).Msg("an operator orders the journal to be founded anew")
	return n.found(ctx, f, g, o.term, how)
}
