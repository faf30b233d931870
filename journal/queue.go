package journal

import (
	"cmp"
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/journal/nowait"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/metadata/binenc"
)

const (
	// MaxCommitBytes bounds what one commit takes from the queue, before
	// compression. etcd refuses requests above 1.5 MiB.
	MaxCommitBytes = 1 << 20
	// MaxSubmissionBytes bounds what one caller submits at once; a submission is
	// never split between commits.
	MaxSubmissionBytes = 256 << 10
	// maxDirect is how large, in bytes, a submission may be that its caller commits. A
	// batch is worth waking the writer, and goes into one commit with others.
	maxDirect = 1 << 10
	// MaxWaiting is how many submissions may wait in the queue.
	MaxWaiting = 1 << 14
)

// A Queue holds changes that wait for a commit, in order. It is bounded in
// bytes and in submissions: past that, callers wait for admission until their
// deadline, having changed nothing. See room.
//
// The queue owns a change from Submit on: it is applied, or aborted.
type Queue struct {
	store   *metadata.Store
	room    room
	tickets *semaphore.Weighted // one is acquired for each Ticket
	applied applied
	unkept  atomic.Bool // the log keeps nothing, so changes need not be encoded

	mu     sync.Mutex
	list   []*submission
	queued int   // bytes in list
	closed error // what callers get once the queue takes no more
	held   error // what callers get while Hold is in force; nil if it is not
	wake   chan struct{}
	direct func() // commits what is queued; nil if only the writer's goroutine does it
}

// A submission is the changes of one caller.
type submission struct {
	caller  context.Context // for the Tracer only
	changes []metadata.Change
	encoded [metadata.StreamCount][]byte // length-prefixed changes, if the log keeps them
	counts  [metadata.StreamCount]int
	size    int

	sealed  bool // part of a commit under way; guarded by Queue.mu
	answers []error
	err     error         // of all changes; set before done is closed
	done    chan struct{} // closed with the outcome
}

// NewQueue returns a queue of changes to a store, of at most capacity bytes.
func NewQueue(store *metadata.Store, capacity int64) *Queue {
	return &Queue{
		store:   store,
		room:    newRoom(max(capacity, MaxSubmissionBytes)),
		tickets: semaphore.NewWeighted(maxTickets),
		wake:    make(chan struct{}, 1),
	}
}

// maxTickets is more than there can be at once, as room bounds them.
const maxTickets = 1 << 40

// A Ticket is room in the queue for one submission. It is taken before changes
// are prepared, so that a caller who waits for room holds nothing up.
type Ticket struct {
	queue *Queue
	place place
}

// Admit waits for room for about so many bytes of changes. They count for the peer of the
// context, or for this program if it has none (share.PeerOf). An error means that nothing
// has changed: Unavailable when there is no room before the context ends, or what the
// queue was closed or held with; nowait.Err where the context asks for no waiting.
func (q *Queue) Admit(ctx context.Context, bytes int) (*Ticket, error) {
	return q.admit(ctx, bytes, q.refusal)
}

func (q *Queue) admit(ctx context.Context, bytes int, refusal func() error) (*Ticket, error) {
	if err := refusal(); err != nil {
		return nil, err
	}
	if nowait.Asked(ctx) {
		return q.admitNow(bytes)
	}
	if err := q.tickets.Acquire(ctx, 1); err != nil {
		return nil, full(err)
	}
	t := &Ticket{queue: q}
	if !q.room.takeNow(&t.place, bytes) {
		if err := q.room.take(ctx, &t.place, bytes); err != nil {
			q.tickets.Release(1)
			return nil, full(err)
		}
	}
	if err := refusal(); err != nil { // while this caller waited for room
		t.Release()
		return nil, err
	}
	return t, nil
}

// admitNow is admit for a call that must not wait: neither for room, nor for the commits
// of what others have queued before it, nor behind a call of Idle.
func (q *Queue) admitNow(bytes int) (*Ticket, error) {
	if !q.empty() || !q.tickets.TryAcquire(1) {
		return nil, nowait.Err
	}
	t := &Ticket{queue: q}
	if !q.room.takeNow(&t.place, bytes) {
		q.tickets.Release(1)
		return nil, nowait.Err
	}
	if err := q.refusal(); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// Hold makes the queue refuse all but SubmitHeld with err, until it is called with nil.
// What is queued already goes on.
func (q *Queue) Hold(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = err
}

func (q *Queue) refusal() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return q.closed
	}
	return q.held
}

// Idle waits until nobody holds a ticket of a closed queue: then every change
// that was prepared is applied or aborted, and none will be prepared.
func (q *Queue) Idle(ctx context.Context) error {
	if err := q.tickets.Acquire(ctx, maxTickets); err != nil {
		return err
	}
	q.tickets.Release(maxTickets)
	return nil
}

func full(err error) error {
	return &errs.Error{
		Kind: errs.Unavailable, Op: "journal.Admit", Err: err,
		Detail: "the queue of changes is full, etcd may be slow or away; nothing was changed, try again",
	}
}

// Release gives the room back. Submit does it too.
func (t *Ticket) Release() {
	if t.queue == nil {
		return
	}
	t.queue.room.giveBack(&t.place)
	t.queue.tickets.Release(1)
	t.queue = nil
}

// Submit queues changes and waits for their commit. It returns the answer to
// each. An error means for all of them:
//
//   - Unavailable, InvalidParams or NotLeader: none was made, now or later;
//   - Unresolved: they may be made, now or later.
//
// When the context ends first, changes that are not part of a commit yet are
// taken back.
func (t *Ticket) Submit(ctx context.Context, changes ...metadata.Change) ([]error, error) {
	defer t.Release()
	q := t.queue
	s, err := q.newSubmission(ctx, changes)
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = late(ctx.Err())
	default:
		err = q.push(s)
	}
	if err != nil {
		q.abort(changes)
		return nil, err
	}
	if commit := q.committer(); commit != nil && s.size <= maxDirect {
		commit()
	}
	select {
	case <-s.done:
		return s.answers, s.err
	case <-ctx.Done():
	}
	if q.withdraw(s) {
		q.refuse([]*submission{s}, late(ctx.Err()))
	}
	select {
	case <-s.done: // it was withdrawn, or the outcome came first after all
		return s.answers, s.err
	default:
	}
	return nil, &errs.Error{
		Kind: errs.Unresolved, Op: "journal.Submit", Err: ctx.Err(),
		Detail: "the deadline passed while the change was being written; read or repeat with the same request id to learn the outcome",
	}
}

func late(err error) error {
	return &errs.Error{
		Kind: errs.Unavailable, Op: "journal.Submit", Err: err,
		Detail: "the deadline passed before the change was written; nothing was changed",
	}
}

// Submit is Admit and Submit in one, for callers without a deadline of their
// own.
func (q *Queue) Submit(ctx context.Context, changes ...metadata.Change) ([]error, error) {
	return q.submit(ctx, q.refusal, changes)
}

// SubmitHeld is Submit for what the end of a term needs: Hold does not stop it.
func (q *Queue) SubmitHeld(ctx context.Context, changes ...metadata.Change) ([]error, error) {
	return q.submit(ctx, q.closedWith, changes)
}

func (q *Queue) submit(ctx context.Context, refusal func() error, changes []metadata.Change) ([]error, error) {
	t, err := q.admit(ctx, MaxSubmissionBytes/4, refusal)
	if err != nil {
		q.abort(changes)
		return nil, err
	}
	return t.Submit(ctx, changes...)
}

// usualChange is how many bytes most changes have at most.
const usualChange = 256

// newSubmission encodes changes. Those for a log that keeps nothing are encoded too, one by
// one, as they must not be larger than others.
func (q *Queue) newSubmission(caller context.Context, changes []metadata.Change) (*submission, error) {
	s, keep := &submission{caller: caller, changes: changes, done: make(chan struct{})}, !q.unkept.Load()
	var buf [binary.MaxVarintLen64]byte
	length, coder := buf[:0], binenc.Encoder(make([]byte, 0, usualChange))
	for i, c := range changes {
		coder = binenc.Encoder(coder.Encoded()[:0])
		c.Code(&coder)
		scratch := coder.Encoded()
		if len(scratch) > metadata.MaxChangeBytes {
			return nil, errs.New(errs.InvalidParams, "journal.Submit",
				"a single change of %d bytes; at most %d are possible, use shorter keys or fewer replicas", len(scratch), metadata.MaxChangeBytes)
		}
		length = binary.AppendUvarint(length[:0], uint64(len(scratch)))
		stream, size := c.Stream(), len(length)+len(scratch)
		s.counts[stream]++
		s.size += size
		if !keep {
			continue
		}
		if s.encoded[stream] == nil { // the changes of a batch are about alike; the first may be the largest
			s.encoded[stream] = make([]byte, 0, size+min(size, usualChange)*(len(changes)-i-1))
		}
		s.encoded[stream] = append(append(s.encoded[stream], length...), scratch...)
	}
	if s.size > MaxSubmissionBytes {
		return nil, errs.New(errs.InvalidParams, "journal.Submit",
			"changes of %d bytes at once; at most %d are possible, use smaller batches", s.size, MaxSubmissionBytes)
	}
	return s, nil
}

func (q *Queue) push(s *submission) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return q.closed
	}
	q.list = append(q.list, s)
	q.queued += s.size
	if q.direct == nil || s.size > maxDirect {
		q.signal()
	}
	return nil
}

// directly makes callers commit single changes, by f; nil ends it.
func (q *Queue) directly(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.direct = f
}

// Direct reports whether callers commit single changes on their own goroutines:
// then Submit waits for no I/O.
func (q *Queue) Direct() bool { return q.committer() != nil }

func (q *Queue) committer() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.direct
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list) == 0
}

// withdraw takes a submission out of the queue, unless it is sealed.
func (q *Queue) withdraw(s *submission) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.sealed {
		return false
	}
	for i, other := range q.list {
		if other == s {
			q.list = append(q.list[:i:i], q.list[i+1:]...)
			q.queued -= s.size
			return true
		}
	}
	return false
}

// seal takes the prefix of the queue that fits one commit [model]. What is
// sealed cannot be withdrawn any more.
func (q *Queue) seal() []*submission {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < len(q.list) && (n == 0 || size+q.list[n].size <= MaxCommitBytes) {
		q.list[n].sealed = true
		size += q.list[n].size
		n++
	}
	sealed := q.list[:n:n]
	q.list = append([]*submission(nil), q.list[n:]...)
	q.queued -= size
	return sealed
}

// Close makes the queue take no more; callers get err from now on. What is
// queued already stays for the writer.
func (q *Queue) Close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = cmp.Or(q.closed, err)
	q.signal()
}

// fail closes the queue and takes back everything in it.
func (q *Queue) fail(err error) {
	q.Close(err)
	q.mu.Lock()
	list := q.list
	q.list, q.queued = nil, 0
	for _, s := range list {
		s.sealed = true // its caller must not take it back a second time
	}
	q.mu.Unlock()
	q.refuse(list, err)
}

// refuse takes back submissions whose changes will not be committed by this
// node, and answers their callers.
func (q *Queue) refuse(list []*submission, err error) {
	for _, s := range list {
		q.abort(s.changes)
	}
	tell(list, err)
}

// tell gives submissions an outcome. It does nothing with their changes.
func tell(list []*submission, err error) {
	for _, s := range list {
		s.err = err
		close(s.done)
	}
}

func (q *Queue) abort(changes []metadata.Change) {
	for _, c := range changes {
		c.Abort(q.store)
	}
}

func (q *Queue) closedWith() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Len returns the bytes and submissions that wait.
func (q *Queue) Len() (bytes, submissions int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queued, len(q.list)
}
