package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
)

// Heartbeat is how long a writer without a Pace waits for changes before it makes an
// empty commit: cluster time and quarantine go on, and followers see that the primary
// lives.
const Heartbeat = time.Second

// A Log makes one commit durable.
type Log interface {
	// Append writes a commit behind the head it was given last. Errors:
	// ErrFenced when this node is no longer elected or the head is not as expected;
	// a *RefusedError when the commit was surely not written and never will be;
	// anything else, the context's error among them, leaves its outcome unknown, and
	// the log unusable.
	Append(ctx context.Context, c *Sealed) error
}

// A Sealed commit is on its way to the log.
type Sealed struct {
	Head    Head // with this commit as its end; the log fills in Bytes
	Records [metadata.StreamCount][]byte
}

// ErrFenced says that this node may not write any more.
var ErrFenced = errors.New("this node is no longer elected")

// A RefusedError says that a commit was not written, and why.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return "the commit was refused: " + e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// An Observer is called for each commit, on the goroutine that commits.
type Observer interface {
	// Committed reports a commit: how many changes and bytes of records, how
	// long the log took, how long applying took. The context has what the Tracer put
	// there.
	Committed(ctx context.Context, changes, bytes int, log, apply time.Duration)
	// Refused reports that the log refused a commit of so many changes.
	Refused(changes int, err error)
}

// A Tracer follows commits that callers wait for. It is called on the goroutine that
// commits.
type Tracer interface {
	// Commit is called before a commit is written, with its head, the number of its
	// changes, and the contexts of the callers, of whom some may have given up. The
	// context that it returns is for the log and the observer. The function is called
	// once, when the commit is applied or has failed.
	Commit(ctx context.Context, head Head, changes int, callers []context.Context) (context.Context, func(error))
}

// WriterConfig configures a Writer.
type WriterConfig struct {
	Store    *metadata.Store
	Queue    *Queue
	Log      Log
	Term     metadata.Term
	Hold     time.Duration        // of leases in this term
	Now      func() metadata.Time // the cluster clock of this term
	Elapsed  func() time.Duration // a monotonic clock, that of Right
	Observer Observer             // may be nil
	Tracer   Tracer               // may be nil
	Pace     *Pace                // may be nil
	Right    *Right               // that commits extend; may be nil
	// Direct makes callers commit single changes on their own goroutines, one at a time.
	// It is for a Log that does not wait: a commit then takes less time than waking a
	// goroutine for it.
	Direct bool
	// Filler is a change that changes nothing. A heartbeat at which memory leaves quarantine
	// carries it, so that there is a record of it: a node that reads the records alone, where
	// etcd has no history any more, frees the same ranges at the same commits. If nil, memory
	// leaves with callers' commits only, which a full store does not get.
	Filler metadata.Change
}

// A Writer is the one goroutine that commits the queue, applies what is
// committed and answers the callers; callers do it in its place with Direct.
type Writer struct {
	WriterConfig
	turn  sync.Mutex        // held by who commits; guards all below but newest
	ended error             // why it commits no more
	last  metadata.Position // of the store
	time  metadata.Time     // of the last commit, or of the one under way

	newest atomic.Pointer[chan struct{}] // closed at the end of the newest commit
}

// NewWriter returns a writer that continues behind the store's position.
func NewWriter(c WriterConfig) *Writer {
	p := c.Store.Position()
	_, none := c.Log.(NoLog)
	c.Queue.unkept.Store(none)
	return &Writer{WriterConfig: c, last: p, time: p.Time}
}

// Settled waits for the end of the commit that is under way, if there is one. That may
// last until etcd says what became of the commit. It fails with the context's error. Safe
// for concurrent use.
func (w *Writer) Settled(ctx context.Context) error {
	commit := w.newest.Load()
	if commit == nil {
		return nil
	}
	select {
	case <-*commit:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Commit commits and applies changes, while Run is not running.
func (w *Writer) Commit(ctx context.Context, changes ...metadata.Change) error {
	s, err := w.Queue.newSubmission(ctx, changes)
	if err != nil {
		return err
	}
	if err := w.commit(ctx, []*submission{s}); err != nil {
		return err
	}
	return s.err
}

// Run commits until the context ends, the log fails, or the queue is closed and
// empty; then it returns nil. Before it returns, every caller has an outcome:
// what waits in the queue is taken back, what was under way is unresolved. The
// queue is closed.
func (w *Writer) Run(ctx context.Context) error {
	err := w.run(ctx)
	reason := err
	if err == nil || errors.Is(err, context.Canceled) {
		reason = errors.New("this node stops serving")
	}
	w.turn.Lock() // after a caller's commit
	w.ended = reason
	w.turn.Unlock()
	w.Queue.fail(errs.Wrap(errs.NotLeader, "journal", reason))
	return err
}

func (w *Writer) run(ctx context.Context) error {
	if w.Direct {
		w.Queue.directly(func() { w.commitFor(ctx) })
		defer w.Queue.directly(nil)
	}
	idle := time.NewTimer(w.Pace.Every())
	defer idle.Stop()
	for beat := false; ; {
		begun := w.Elapsed()
		w.turn.Lock()
		n, err := w.stepLocked(ctx, beat)
		w.turn.Unlock()
		switch {
		case err != nil:
			return err
		case n > 0 || beat:
			idle.Reset(begun + w.pause() - w.Elapsed()) // at once after a commit that took so long
			beat = false
			continue
		case !w.Queue.empty(): // its caller has met this goroutine
			continue
		case w.Queue.closedWith() != nil:
			return nil
		case w.Store.Releasing(): // after a caller's commit
			idle.Reset(w.pause())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.Queue.wake:
		case <-idle.C:
			beat = true
		}
	}
}

// releaseEvery is the pause between commits while very many ranges leave quarantine.
const releaseEvery = 5 * time.Millisecond

// pause is how long after the last commit the next one begins, if no change comes
// before.
func (w *Writer) pause() time.Duration {
	if w.Store.Releasing() {
		return min(releaseEvery, w.Pace.Every())
	}
	return w.Pace.Every()
}

// commitFor commits what is queued on the goroutine of a caller who has queued something,
// unless somebody else commits. What comes meanwhile is for the writer's goroutine.
func (w *Writer) commitFor(ctx context.Context) {
	if !w.turn.TryLock() {
		return
	}
	defer func() {
		if failure := recover(); failure != nil {
			crash(failure)
		}
	}()
	_, err := w.stepLocked(ctx, false)
	w.turn.Unlock()
	if err != nil || !w.Queue.empty() || w.Store.Releasing() {
		w.Queue.signal()
	}
}

// crash ends the process after a commit that may be applied in part. A panic on the
// writer's goroutine would end it anyway; one on a caller's goroutine would not, as front
// ends recover from panics of their calls. A node that starts again loads a whole state.
func crash(failure any) {
	stack := debug.Stack()
	go func() { panic(fmt.Sprintf("a commit failed: %v\n%s", failure, stack)) }()
	select {}
}

// stepLocked commits the front of the queue, or nothing for a beat. It returns how many
// submissions it took.
func (w *Writer) stepLocked(ctx context.Context, beat bool) (int, error) {
	if w.ended != nil {
		return 0, w.ended
	}
	sealed := w.Queue.seal()
	if len(sealed) > 0 || beat {
		w.ended = w.commit(ctx, sealed)
	}
	return len(sealed), w.ended
}

// Next returns the head that an empty commit would have now, at the time of the last
// commit. Run must not be running.
func (w *Writer) Next() Head {
	c, _ := w.build(nil)
	return c.Head
}

// tick brings the time of the next commit up to the clock's; it never goes back.
func (w *Writer) tick() { w.time = max(w.time, w.Now()) }

// commit writes one commit, applies it and answers the callers. An error ends
// the writer; a refused commit does not.
func (w *Writer) commit(ctx context.Context, sealed []*submission) (err error) {
	ended := make(chan struct{})
	w.newest.Store(&ended)
	defer close(ended)
	w.tick()
	if len(sealed) == 0 && w.Filler != nil && w.Store.ReleasesAt(w.time) {
		filler, err := w.Queue.newSubmission(ctx, []metadata.Change{w.Filler})
		if err != nil {
			return err
		}
		sealed = append(sealed, filler)
	}
	c, changes := w.build(sealed)
	if w.Tracer != nil && len(sealed) > 0 {
		var end func(error)
		ctx, end = w.trace(ctx, c.Head, len(changes), sealed)
		defer func() { end(cmp.Or(err, sealed[0].err)) }() // a refusal is no error of the writer
	}
	started := w.Elapsed()
	w.sending(started, c.Head)
	if err := w.Log.Append(ctx, c); err != nil {
		return w.failed(sealed, changes, err)
	}
	written := w.Elapsed()
	w.sent(started, written, c.Head)
	w.apply(sealed, c, changes)
	if w.Observer != nil {
		w.Observer.Committed(ctx, len(changes), c.bytes(), written-started, w.Elapsed()-written)
	}
	return nil
}

// trace begins to trace a commit.
func (w *Writer) trace(ctx context.Context, head Head, changes int, sealed []*submission) (context.Context, func(error)) {
	callers := make([]context.Context, len(sealed))
	for i, s := range sealed {
		callers[i] = s.caller
	}
	return w.Tracer.Commit(ctx, head, changes, callers)
}

// sending cuts the right to answer, where the head that is about to be sent allows
// less than those before.
func (w *Writer) sending(now time.Duration, head Head) {
	if w.Right != nil {
		w.Right.sending(now, head.ServeWindow(), head.FailoverAfter())
	}
}

// sent extends the right to answer by a commit that succeeded.
func (w *Writer) sent(at, written time.Duration, head Head) {
	w.Pace.took(written, written-at)
	if w.Right != nil {
		w.Right.committed(at, head.ServeWindow())
	}
}

// stopRight ends the right to answer for good.
func (w *Writer) stopRight() {
	if w.Right != nil {
		w.Right.Stop()
	}
}

// apply applies a commit and gives its callers their answers.
func (w *Writer) apply(sealed []*submission, c *Sealed, changes []metadata.Change) {
	answers := make([]error, len(changes))
	position, err := w.Store.Apply(&metadata.Commit{Seq: c.Head.Seq, Term: w.Term, Time: c.Head.Time, Changes: changes}, answers)
	if err != nil {
		// What the primary itself decided does not fit its own state: a defect. The state has
		// the commit by half. Nobody may read, save or lead with it, and no caller may get success.
		w.stopRight()
		crash(fmt.Errorf("applying commit %d: %w", c.Head.Seq, err))
	}
	w.last, w.time = position, c.Head.Time
	w.Queue.applied.send()
	for _, s := range sealed {
		s.answers, answers = answers[:len(s.changes):len(s.changes)], answers[len(s.changes):]
		close(s.done)
	}
}

// build makes a commit of submissions, at the writer's time.
func (w *Writer) build(sealed []*submission) (*Sealed, []metadata.Change) {
	window, failover := w.Pace.Windows()
	c := &Sealed{Head: Head{
		Term: w.Term, Seq: w.last.Seq + 1, Time: w.time, Wall: clock.Wall().UnixMilli(), Hold: w.Hold.Milliseconds(),
		Checked: w.last.Seq, Digest: w.last.Digest,
		Window: window.Milliseconds(), Failover: failover.Milliseconds(), Raised: w.Pace.Slowed(),
	}}
	count := 0
	for _, s := range sealed {
		count += len(s.changes)
	}
	changes := make([]metadata.Change, 0, count)
	for _, s := range sealed {
		changes = append(changes, s.changes...)
	}
	if w.Queue.unkept.Load() {
		return c, changes
	}
	for stream := range metadata.StreamCount {
		var parts [][]byte
		count := 0
		for _, s := range sealed {
			if s.counts[stream] > 0 {
				parts = append(parts, s.encoded[stream])
				count += s.counts[stream]
			}
		}
		if count > 0 {
			c.Head.Streams |= 1 << stream
			c.Records[stream] = encodeRecord(Stamp{w.Term, c.Head.Seq, w.time}, count, parts)
		}
	}
	return c, changes
}

// failed answers the callers of a commit that failed. It returns an error if the
// writer must end: then the right to answer ends first. Taking the changes back wakes
// readers who waited for their outcome, and the journal may have the commit all the same,
// so they must get no answer from here.
func (w *Writer) failed(sealed []*submission, changes []metadata.Change, err error) error {
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		w.Queue.refuse(sealed, &errs.Error{
			Kind: errs.Unavailable, Op: "journal.commit", Err: refused.Err,
			Detail: "etcd refused the change; nothing was changed, try again",
		})
		if w.Observer != nil {
			w.Observer.Refused(len(changes), refused.Err)
		}
		return nil
	case errors.Is(err, ErrFenced):
		w.stopRight()
		w.Queue.refuse(sealed, &errs.Error{Kind: errs.NotLeader, Op: "journal.commit", Err: err})
	default:
		w.stopRight()
		w.Queue.refuse(sealed, &errs.Error{
			Kind: errs.Unresolved, Op: "journal.commit", Err: err,
			Detail: "the change may have been written; read or repeat with the same request id to learn the outcome",
		})
	}
	return err
}

func (c *Sealed) bytes() (n int) {
	for _, r := range c.Records {
		n += len(r)
	}
	return n
}

// NoLog is the log of a master without standbys: it keeps nothing.
type NoLog struct{}

// Append does nothing.
func (NoLog) Append(ctx context.Context, _ *Sealed) error { return ctx.Err() }
