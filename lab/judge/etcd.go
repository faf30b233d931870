package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
)

const (
	// etcdTimeout bounds one request to etcd.
	etcdTimeout = 10 * time.Second
	// compactions is how often reading may fail because etcd was compacted after the oldest
	// revision was found.
	compactions = 5
)

// judgeJournal reads the journal from the oldest revision that etcd still has to its
// end. Each commit must move the head by one and have the records that belong to it, the
// term must not decrease, and no event may be there twice. It returns how many commits it
// has read.
func judgeJournal(ctx context.Context, endpoints []string, layout journal.Layout, t *tally) (commits int, err error) {
	etcd, err := etcdclient.New(endpoints)
	if err != nil {
		return 0, err
	}
	defer func() { _ = etcd.Close() }()
	r := &journal.Reader{Client: etcd, Layout: layout, Codec: service.Codec()}
	end, err := r.Head(ctx)
	if err != nil {
		return 0, err
	}
	if end.Revision == 0 {
		return 0, nil // there never was a journal
	}
	for range compactions {
		from, err := oldest(ctx, etcd, layout)
		if errors.Is(err, rpctypes.ErrCompacted) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if from.Head.Seq >= end.Head.Seq {
			return 0, nil // etcd has only the head left
		}
		audit := newAudit(end.Head.Seq, from.Head.Term, t)
		err = r.Read(ctx, from, audit)
		var broken *journal.BrokenError
		var lost *journal.LostError
		switch {
		case errors.Is(err, errAudited):
			return audit.commits, nil
		case errors.As(err, &broken) && broken.Reason == journal.ReasonCompacted:
			continue
		case errors.As(err, &broken), errors.As(err, &lost): // lost: the head went back
			t.add(D, "the journal behind sequence %d: %v", audit.last, err)
			return audit.commits, nil
		default:
			return 0, fmt.Errorf("reading the journal: %w", err)
		}
	}
	return 0, fmt.Errorf("reading the journal: it was compacted %d times meanwhile", compactions)
}

// oldest returns the first position from which the journal can be read. A journal that was
// founded anew begins at the revision at which the list of its ancestors was written.
func oldest(ctx context.Context, etcd *clientv3.Client, layout journal.Layout) (journal.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	// A watch from revision 1 fails with the oldest revision that etcd has, or else brings
	// the first event, since the head exists.
	first := <-etcd.Watch(clientv3.WithRequireLeader(ctx), layout.Head(), clientv3.WithRev(1))
	founded, err := etcd.Get(ctx, layout.Ancestors())
	if err != nil {
		return journal.Cursor{}, fmt.Errorf("reading the journal's ancestors: %w", err)
	}
	revision := max(1, first.CompactRevision)
	for _, kv := range founded.Kvs {
		revision = max(revision, kv.ModRevision)
	}
	if err := cmp.Or(ctx.Err(), first.Err()); err != nil && first.CompactRevision == 0 {
		return journal.Cursor{}, fmt.Errorf("watching the journal: %w", err)
	}
	resp, err := etcd.Get(ctx, layout.Head(), clientv3.WithRev(revision))
	if err != nil {
		return journal.Cursor{}, fmt.Errorf("reading the head of the journal at revision %d: %w", revision, err)
	}
	from := journal.Cursor{Revision: revision}
	if len(resp.Kvs) > 0 {
		if from.Head, err = journal.DecodeHead(resp.Kvs[0].Value); err != nil {
			return journal.Cursor{}, err
		}
	}
	return from, nil
}

// errAudited ends the reading at the head that the journal had when the reading began.
var errAudited = errors.New("the journal was read to its end")

// An audit follows the journal.
type audit struct {
	end      metadata.Seq
	last     metadata.Seq
	commits  int // how many it has seen
	term     metadata.Term
	tally    *tally
	reserved map[metadata.ObjectID]metadata.Seq
	removed  map[removal]metadata.Seq
}

// A removal is the removal of an object by a request.
type removal struct {
	id      metadata.ObjectID
	request uint64
}

func newAudit(end metadata.Seq, term metadata.Term, t *tally) *audit {
	return &audit{end: end, term: term, tally: t, reserved: make(map[metadata.ObjectID]metadata.Seq), removed: make(map[removal]metadata.Seq)}
}

// Changed is of no interest here.
func (a *audit) Changed(string) {}

func (a *audit) Founded(journal.Cursor) error { return nil }

func (a *audit) Commit(c *metadata.Commit, at journal.Cursor) error {
	a.last = c.Seq
	a.commits++
	if c.Term < a.term {
		a.tally.add(F, "commit %d has term %d, behind one of term %d", c.Seq, c.Term, a.term)
	}
	a.term = max(a.term, c.Term)
	for _, change := range c.Changes {
		switch e := change.(type) {
		case *metadata.PutStart:
			a.reservation(c, e)
		case *deleteevents.Event:
			for _, r := range e.Removals {
				one := removal{r.ID, r.Request}
				if before, ok := a.removed[one]; ok {
					a.tally.add(V, "object %v is removed by request %d in commits %d and %d", r.ID, r.Request, before, c.Seq)
				}
				a.removed[one] = c.Seq
			}
		}
	}
	if at.Head.Seq >= a.end {
		return errAudited
	}
	return nil
}

func (a *audit) reservation(c *metadata.Commit, e *metadata.PutStart) {
	if before, ok := a.reserved[e.ID]; ok {
		a.tally.add(V, "object %v (key %s) is reserved by commits %d and %d", e.ID, e.Key, before, c.Seq)
	}
	if e.ID.Term() != c.Term {
		a.tally.add(F, "object %v (key %s) has an id of term %d and is reserved by commit %d of term %d", e.ID, e.Key, e.ID.Term(), c.Seq, c.Term)
	}
	a.reserved[e.ID] = c.Seq
}
