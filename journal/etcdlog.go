package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

// AttemptTimeout bounds a call of etcd. When it passes for a commit, the result is
// not known: see EtcdLog.Append.
const AttemptTimeout = 3 * time.Second

// resendAfter is how long a commit waits for an answer before its transaction is sent
// once more, beside the first. What etcd's leader received before it died may be lost for
// good, and the next leader answers within milliseconds.
const resendAfter = 200 * time.Millisecond

// lastPause is the longest pause between two attempts. It is short: a follower that
// finds etcd well again must soon find a new commit, or it deposes the primary.
const lastPause = 50 * time.Millisecond

// An EtcdLog appends commits to the journal in etcd, as one elected leader.
// Not safe for concurrent use, but for Tip.
type EtcdLog struct {
	// Random spreads retries, as in Jitter; set before the first Append.
	Random func() float64
	// Histories reports whether every node reads heads that name their history; then a
	// journal without a name gets one. May be nil for never; set before the first Append.
	Histories func() bool
	// Tried gets the result of each call for a commit, nil for written, also while Append
	// goes on because the outcome of a commit is unknown. It must not block; it may be
	// nil. Set before the first Append.
	Tried func(err error)

	client   *clientv3.Client
	layout   Layout
	election Election // our right to write
	leases   *eventLeases
	clock    clock.Clock

	with []clientv3.Op // to be applied with the next commit

	end  Cursor        // last known, ours or a predecessor's
	took time.Duration // by etcd for the last transaction, see learn
	tip  atomic.Pointer[Cursor]
}

// A Cursor is a head of the journal with the etcd revision at which it was
// written, 0 for none yet.
type Cursor struct {
	Head     Head
	Revision int64
	value    string // of the head as it was read or written; empty if it was neither
}

// NewCursor returns a cursor at a head that was read or written before, with its value
// in etcd; empty if that is not known.
func NewCursor(head Head, revision int64, value string) Cursor { return Cursor{head, revision, value} }

// Value returns the value of the head in etcd, empty if it is not known.
func (c Cursor) Value() string { return c.value }

// NewEtcdLog returns a log that goes on behind a head that was read, with the right of an
// election. Records live for eventsTTL, by the clock, and for a day if that is longer,
// unless a Trimmer deletes them.
func NewEtcdLog(client *clientv3.Client, layout Layout, election Election, behind Cursor, eventsTTL time.Duration, clk clock.Clock) *EtcdLog {
	l := &EtcdLog{
		client: client, layout: layout, election: election, clock: clk,
		leases: &eventLeases{client: client, ttl: max(eventsTTL, recordsLive), clock: clk},
	}
	l.advance(behind)
	return l
}

// Prepare takes the lease of the first records, if etcd grants it in time. Append
// takes one otherwise.
func (l *EtcdLog) Prepare(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	_, _ = l.leases.current(ctx)
}

// Release gives back the lease of the records if no record has it. Call it when nobody writes
// to this log any more and the leader key of its election is gone: a transaction still under
// way could give the lease a record.
func (l *EtcdLog) Release(ctx context.Context) {
	id := l.leases.id
	if id == 0 {
		return
	}
	l.leases.drop()
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	of, err := l.client.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
	if err == nil && len(of.Keys) == 0 {
		_, _ = l.client.Revoke(ctx, id) // it expires by itself otherwise
	}
}

// releaseTimeout bounds Release: nothing depends on it.
const releaseTimeout = time.Second

// With adds operations to the transaction of the next commit.
func (l *EtcdLog) With(ops []clientv3.Op) { l.with = ops }

// Append writes a commit: it compares the leader and the head, and moves the head by one.
// See Log for its errors.
//
// A commit whose outcome is not known is sent again: the transaction finds its own head
// in etcd if it was applied before. Append reads the head only if that has no answer
// either, or etcd is full.
func (l *EtcdLog) Append(ctx context.Context, c *Sealed) error {
	if c.Head.Seq != l.end.Head.Seq+1 {
		return fmt.Errorf("commit %d does not follow the head at %d", c.Head.Seq, l.end.Head.Seq)
	}
	l.sign(&c.Head)
	c.Head.Bytes += int64(c.bytes())
	retry := &backoff.ExponentialBackOff{InitialInterval: 5 * time.Millisecond, Multiplier: 2, MaxInterval: lastPause}
	for doubtful := false; ; {
		again, err := l.attempt(ctx, c)
		l.notice(ctx, err)
		full := errors.Is(err, rpctypes.ErrNoSpace)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			l.leases.drop() // the records' lease has run out: take a new one
			doubtful = doubtful || again
		case isRefusal(err) && !doubtful && !again:
			return &RefusedError{err}
		case errors.Is(err, ErrFenced) && (doubtful || again):
			return fmt.Errorf("commit %d: %w, which showed while the outcome was unknown", c.Head.Seq, errDeposed)
		case errors.Is(err, ErrFenced):
			return err
		case !doubtful && !full:
			doubtful = true
		default:
			found, failed := l.resolve(ctx, c, full)
			switch {
			case failed != nil || found == written:
				return failed
			case found == absent && !doubtful && !again:
				return &RefusedError{err}
			}
			doubtful = true
		}
		if err := clock.Sleep(ctx, Jitter(retry.NextBackOff(), l.Random)); err != nil {
			return fmt.Errorf("commit %d: %w", c.Head.Seq, err)
		}
	}
}

// sign completes a head that is to follow the last one: with the election of this writer,
// and with what the last head hands on.
func (l *EtcdLog) sign(h *Head) {
	before := &l.end.Head
	h.Election, h.Bytes = l.election, before.Bytes
	h.History, h.Parent, h.Fork = before.History, before.Parent, before.Fork
	if h.History == "" && l.Histories != nil && l.Histories() {
		h.History = NewHistory()
	}
	if h.History != "" {
		h.Format = FormatVersion
	}
}

// notice reports how a call for a commit went.
func (l *EtcdLog) notice(ctx context.Context, err error) {
	if l.Tried != nil && ctx.Err() == nil {
		l.Tried(err)
	}
}

// Jitter spreads the pause before a retry evenly between its half and one and a
// half of it, so that nodes do not retry in step. random returns numbers in
// [0, 1); nil stands for the shared generator of math/rand/v2.
func Jitter(pause time.Duration, random func() float64) time.Duration {
	if random == nil {
		random = rand.Float64
	}
	return time.Duration(float64(pause) * (0.5 + random()))
}

// errDeposed stands for ErrFenced where the commit may have been written.
var errDeposed = errors.New("this node is no longer elected")

// An answer is etcd's to a transaction, and how long it took.
type answer struct {
	resp *clientv3.TxnResponse
	err  error
	took time.Duration
}

// attempt sends the transaction and waits for its first answer. Without one it sends it
// again, beside the first, every resendAfter, or less often while etcd is slow, so as not
// to add to its load. It reports whether it sent more than once: then an error does not
// say that nothing was written.
func (l *EtcdLog) attempt(ctx context.Context, c *Sealed) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel() // ends what is still under way
	head, ops, err := l.transaction(ctx, c)
	if err != nil {
		return false, err
	}
	fence, otherwise := l.fence(), clientv3.OpGet(l.layout.Head())
	answers := make(chan answer, AttemptTimeout/resendAfter+1)
	resend := time.NewTicker(max(resendAfter, 2*l.took))
	defer resend.Stop()
	for sent := 0; ; {
		if sent < cap(answers) {
			sent++
			begun := l.clock()
			go func() {
				resp, err := l.client.Txn(ctx).If(fence...).Then(ops...).Else(otherwise).Commit()
				answers <- answer{resp, err, l.clock() - begun}
			}()
		}
		select {
		case a := <-answers:
			l.learn(ctx, a)
			return sent > 1, l.conclude(c, head, a)
		case <-resend.C:
			l.notice(ctx, context.DeadlineExceeded)
		}
	}
}

// learn notes how slow etcd is. Each sending is timed by itself, so one that a dead
// member of etcd never answers does not count. Nor does an error, unless the whole
// attempt had no answer.
func (l *EtcdLog) learn(ctx context.Context, a answer) {
	if a.err == nil || ctx.Err() != nil {
		l.took = a.took
	}
}

// transaction returns the head of a commit as it is written, and all that is written
// with it.
func (l *EtcdLog) transaction(ctx context.Context, c *Sealed) (head string, ops []clientv3.Op, err error) {
	if head, err = c.Head.encode(); err != nil {
		return "", nil, err
	}
	ops = append([]clientv3.Op{clientv3.OpPut(l.layout.Head(), head)}, l.with...)
	if c.Head.Streams == 0 {
		return head, ops, nil
	}
	lease, err := l.leases.current(ctx)
	if err != nil {
		return "", nil, err
	}
	for stream, record := range c.Records {
		if record != nil {
			key := l.layout.Record(metadata.Stream(stream), c.Head.Seq)
			ops = append(ops, clientv3.OpPut(key, string(record), clientv3.WithLease(lease)))
		}
	}
	return head, ops, nil
}

// conclude moves the tip if an answer says that the commit is written.
func (l *EtcdLog) conclude(c *Sealed, head string, a answer) error {
	switch {
	case a.err != nil:
		return a.err
	case a.resp.Succeeded:
		l.advance(Cursor{c.Head, a.resp.Header.Revision, head})
		return nil
	}
	heads := a.resp.Responses[0].GetResponseRange().Kvs
	if len(heads) != 1 || string(heads[0].Value) != head {
		return ErrFenced
	}
	// It was written before, and its answer was lost or is late. The head names its writer.
	l.advance(Cursor{c.Head, heads[0].ModRevision, head})
	return nil
}

// fence is what must hold for this node to write.
func (l *EtcdLog) fence() []clientv3.Cmp {
	return append(l.election.Holds(l.layout), l.end.Stands(l.layout))
}

// An outcome is what the head says of a commit that was sent.
type outcome uint8

// The outcomes.
const (
	unknown outcome = iota
	absent          // so far: an attempt without an answer may still be on its way
	written
)

// resolve reads the head to find out what became of a commit, after an answer that does
// not say whether this transaction, or one before it, was applied. A commit that is not
// written may be sent again: each transaction compares the head, so at most one of them
// will be applied.
//
// It waits for long only if etcd is full: while etcd elects a leader, a read waits longer
// than the election, and the commit's transaction does not.
func (l *EtcdLog) resolve(ctx context.Context, c *Sealed, full bool) (outcome, error) {
	wait := resendAfter
	if full {
		wait = AttemptTimeout
	}
	attempt, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	resp, err := l.client.Get(attempt, l.layout.Head())
	if err != nil {
		l.notice(ctx, err)
		return unknown, ctx.Err()
	}
	if len(resp.Kvs) == 0 {
		if l.end.Revision == 0 {
			return absent, nil
		}
		return unknown, fmt.Errorf("commit %d: the head of the journal was deleted", c.Head.Seq)
	}
	if sent, err := c.Head.encode(); err == nil && sent == string(resp.Kvs[0].Value) {
		l.advance(Cursor{c.Head, resp.Kvs[0].ModRevision, sent})
		return written, nil
	}
	head, err := DecodeHead(resp.Kvs[0].Value)
	switch {
	case err != nil:
		return unknown, err
	case head.Term > c.Head.Term:
		return unknown, fmt.Errorf("commit %d: %w while its outcome was unknown", c.Head.Seq, errDeposed)
	}
	return absent, nil
}

func (l *EtcdLog) advance(to Cursor) {
	l.end, l.with = to, nil
	tip := l.end
	l.tip.Store(&tip)
}

// Tip returns the position of the last commit. It may be called from any
// goroutine.
func (l *EtcdLog) Tip() Cursor { return *l.tip.Load() }

// Resign ends the term cleanly: in one transaction it moves the head, marked clean, and
// deletes the leader key. No call may be answered any more when it is sent. The tip
// stays: this node reads the commit as a follower does. Errors: ErrFenced; a
// *RefusedError when this node is surely still the leader; after any other error it may
// be the leader or not.
func (l *EtcdLog) Resign(ctx context.Context, head Head) error {
	l.sign(&head)
	head.Clean = true
	value, err := head.encode()
	if err != nil {
		return err
	}
	resp, err := l.client.Txn(ctx).If(l.fence()...).
		Then(append([]clientv3.Op{clientv3.OpPut(l.layout.Head(), value)}, l.layout.DeleteLeader()...)...).Commit()
	l.notice(ctx, err)
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return l.resigned(ctx, value, err)
	case isRefusal(err):
		return &RefusedError{err}
	case err != nil:
		return err
	case !resp.Succeeded:
		return ErrFenced
	}
	return nil
}

// resigned finds out whether a resignation was applied to which etcd answered ErrNoSpace.
// Errors as of Resign.
func (l *EtcdLog) resigned(ctx context.Context, head string, refused error) error {
	resp, err := l.client.Txn(ctx).Then(clientv3.OpGet(l.layout.Head()), clientv3.OpGet(l.layout.Leader())).Commit()
	if err != nil {
		return errors.Join(refused, err)
	}
	heads, leaders := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
	switch {
	case len(leaders) == 1 && l.election.elects(leaders[0].Value):
		return &RefusedError{refused}
	case len(heads) == 1 && string(heads[0].Value) == head:
		return nil
	}
	return ErrFenced
}

// KindOf is the kind of failure of a write to etcd with this error, which is not nil:
// Unavailable if etcd surely did not make it, else Unresolved.
func KindOf(err error) errs.Kind {
	if isRefusal(err) {
		return errs.Unavailable
	}
	return errs.Unresolved
}

// isRefusal reports whether etcd surely did not apply a transaction, for a reason that
// sending it again does not mend by itself. ErrNoSpace is none of them: an etcd that runs
// out of space only while it applies a write has applied that write, and answers
// ErrNoSpace.
func isRefusal(err error) bool {
	for _, refusal := range []error{
		rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps, rpctypes.ErrTooManyRequests,
		rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrUserEmpty, rpctypes.ErrDuplicateKey,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// eventLeases gives records their lease in etcd: all records of one minute share one, as
// etcd advises for keys of one TTL. A lease is for keys that no primary deletes: see Trimmer.
type eventLeases struct {
	client  *clientv3.Client
	ttl     time.Duration // of records at least
	clock   clock.Clock
	id      clientv3.LeaseID
	granted time.Duration // by the clock
}

const (
	// recordsLive is how long records live at least if no primary deletes them: all nodes
	// may be away for so long, and still go on from their state files.
	recordsLive = 24 * time.Hour
	// leaseShare is how long records get the same lease.
	leaseShare = time.Minute
	// spareLease is how much longer a lease lives than its records need. For so long it
	// serves new records if etcd does not grant the next lease at once, as during an
	// election.
	spareLease = 4 * time.Second
)

// current returns the lease for records written now.
func (l *eventLeases) current(ctx context.Context) (clientv3.LeaseID, error) {
	granted := l.clock()
	age, patience := granted-l.granted, AttemptTimeout
	switch {
	case l.id != 0 && age < leaseShare:
		return l.id, nil
	case l.id != 0 && age < leaseShare+spareLease:
		patience = resendAfter
	default:
		l.id = 0
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := l.client.Grant(ctx, int64((l.ttl+leaseShare+spareLease+time.Second-1)/time.Second))
	switch {
	case err == nil:
		l.id, l.granted = resp.ID, granted
	case l.id == 0:
		return 0, err
	}
	return l.id, nil
}

// drop forgets a lease that etcd does not know any more.
func (l *eventLeases) drop() { l.id = 0 }
