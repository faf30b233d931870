package journal

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/understudy-store/understudy/metadata"
)

// ErrLost says that what stands in etcd is not the journal that a state comes from
// (docs/failover.md, "etcd has lost the journal"): the head is missing, older, foreign or
// unreadable. The state may be all that is left of the journal, so it is kept. The error
// that wraps it names the cause.
var ErrLost = errors.New("the journal is lost")

// A LostError is ErrLost with its cause.
type LostError struct {
	Cause string
	// Newer says that the head may be well, but in a format that this program does
	// not read. Nothing may be founded in its place.
	Newer bool
	// Foreign says that the head is of a journal that has nothing to do with the state.
	// An operator must say which of them counts.
	Foreign bool
	// Forked says that the head is of the same history, but another primary went on from
	// less than the state holds: neither descends from the other.
	Forked bool
}

func (e *LostError) Error() string { return ErrLost.Error() + ": " + e.Cause }

func (e *LostError) Unwrap() error { return ErrLost }

func lost(format string, args ...any) error { return &LostError{Cause: fmt.Sprintf(format, args...)} }

// ErrNewer says that a head is in a format that this program does not read.
var ErrNewer = errors.New("upgrade this node")

// errUnreadable says that a head is not one that any program wrote.
var errUnreadable = errors.New("the head of the journal cannot be read")

// Against compares a state at this cursor with a head that was read later, and err, which
// DecodeHead returned for it. It returns nil if the journal goes on from the cursor, or
// there is no state yet. Errors: a *LostError if the head is not of the journal that the
// state comes from; a *BrokenError if the journal was founded anew since, from another
// position; else err.
func (c Cursor) Against(found Cursor, err error) error {
	have, head := c.Head, found.Head
	switch {
	case have.Seq == 0:
		return nil
	case errors.Is(err, ErrNewer):
		return &LostError{Cause: err.Error(), Newer: true}
	case errors.Is(err, errUnreadable):
		return lost("%v", err)
	case err != nil:
		return err
	case found.Revision == 0:
		return lost("etcd holds no head, this node is at sequence %d of term %d", have.Seq, have.Term)
	case !have.History.Is(head.History), have.History == "" && head.Parent == "" && head.Fork > 0:
		return c.againstFounded(head)
	case head.forks(have):
		return &LostError{Forked: true, Cause: fmt.Sprintf("another primary went on from less than this node holds: etcd's head is at sequence %d of term %d, this node at %d of term %d",
			head.Seq, head.Term, have.Seq, have.Term)}
	case head.Seq < have.Seq || head.Term < have.Term:
		return lost("etcd's head is at sequence %d of term %d, this node is at %d of term %d", head.Seq, head.Term, have.Seq, have.Term)
	case head.Seq == have.Seq && c.value != "" && found.value != c.value:
		return lost("etcd's head at sequence %d is not the one that this node followed", head.Seq)
	}
	return nil
}

// forks reports whether neither of two heads of one history descends from the other: the one
// with the later term is not ahead, or the terms are of different primaries although they have
// one number. etcd went back, and nodes were elected twice.
func (h Head) forks(other Head) bool {
	switch {
	case other.Term == 0: // a position in an older format names no term
		return false
	case h.Term > other.Term:
		return h.Seq <= other.Seq
	case h.Term < other.Term:
		return h.Seq > other.Seq
	}
	return h.Election != "" && other.Election != "" && h.Election != other.Election
}

// againstFounded compares a state with the head of another history.
func (c Cursor) againstFounded(head Head) error {
	switch {
	case head.History == c.Head.Parent:
		return lost("etcd's head is of history %s, from which this node's, %s, was founded", head.History, c.Head.History)
	case head.Parent != c.Head.History:
		return &LostError{Foreign: true, Cause: fmt.Sprintf("etcd's head is of history %s, this node's state of %s", head.History, c.Head.History)}
	case c.Head.Seq != head.Fork:
		return Founded(head.Fork, c)
	}
	return nil
}

// Founded returns the *BrokenError of a state whose journal was founded anew from
// another position.
func Founded(fork metadata.Seq, at Cursor) error {
	return &BrokenError{
		Reason: ReasonFounded, Fork: fork,
		Err: fmt.Errorf("the journal was founded anew at sequence %d, this node is at %d", fork, at.Head.Seq),
	}
}

// foundedAt reports whether a head founds the journal anew just where a cursor stands.
func (c Cursor) foundedAt(head Head) bool {
	return c.Head.Seq > 0 && head.Parent == c.Head.History && head.History != c.Head.History &&
		head.Fork == c.Head.Seq && head.Seq == c.Head.Seq
}

// A View is the head as a linearizable read found it.
type View struct {
	Cursor Cursor
	// Err is what DecodeHead returned; if it is not nil, the cursor has no head.
	Err error
	// Revision is etcd's at the read, and Cluster etcd's id.
	Revision int64
	Cluster  uint64
}

// Look reads the head, whatever it is. It fails only if etcd does not answer.
func (r *Reader) Look(ctx context.Context) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	resp, err := r.Client.Get(ctx, r.Layout.Head())
	if err != nil {
		return View{}, fmt.Errorf("reading the head of the journal: %w", err)
	}
	return ViewOf(resp.Header, resp.Kvs), nil
}

// ViewOf returns the view that reading the head's key gave.
func ViewOf(header *etcdserverpb.ResponseHeader, heads []*mvccpb.KeyValue) View {
	v := View{Revision: header.Revision, Cluster: header.ClusterId}
	if len(heads) == 1 {
		v.Cursor = Cursor{Revision: heads[0].ModRevision, value: string(heads[0].Value)}
		v.Cursor.Head, v.Err = DecodeHead(heads[0].Value)
	}
	return v
}

// Missing reports whether there was no head.
func (v View) Missing() bool { return v.Cursor.Revision == 0 }

// Same reports whether the head is the one at a cursor.
func (v View) Same(c Cursor) bool { return v.Cursor.value != "" && v.Cursor.value == c.value }

// Still reports whether the head, or its absence, is as a cursor has it.
func (v View) Still(c Cursor) bool {
	return v.Cursor.value == c.value && v.Missing() == (c.Revision == 0)
}

// At returns the cursor with another revision, from which its journal goes on.
func (c Cursor) At(revision int64) Cursor {
	c.Revision = revision
	return c
}

// takeHead takes in a head that a watch brought: it returns true if a commit belongs
// to it. Errors: as of Against.
func (r *Reader) takeHead(at *Cursor, value []byte, f Consumer) (head Head, commit bool, err error) {
	head, err = DecodeHead(value)
	next := Cursor{head, at.Revision, string(value)}
	switch {
	case err == nil && at.value == next.value:
		return head, false, nil // written again as it was
	case err == nil && at.foundedAt(head):
		*at = next
		return head, false, f.Founded(next)
	}
	if err := at.Against(next, err); err != nil {
		if b, ok := errors.AsType[*BrokenError](err); ok && b.Fork > at.Head.Seq {
			b.Beside = true // the journal that ended here is not what it was founded from
		}
		return head, false, err
	}
	if at.Head.Seq == 0 && err == nil && head.Seq == head.Fork {
		return head, false, broken(ReasonFounded, "the journal was founded anew at sequence %d, this node has nothing of it", head.Fork)
	}
	if err != nil { // of the first head
		return head, false, broken(ReasonCorrupt, "revision %d: %w", at.Revision, err)
	}
	return head, true, nil
}
