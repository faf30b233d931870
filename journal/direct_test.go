package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/journal/nowait"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// A lone is a store whose callers commit what they submit.
type lone struct {
	store *metadata.Store
	queue *journal.Queue
	log   journal.Log
	stop  context.CancelFunc
	done  chan error
}

func startLone(t *testing.T, log journal.Log) *lone {
	t.Helper()
	l := &lone{store: metadata.New(metadata.Options{}), log: log, done: make(chan error, 1)}
	l.queue = journal.NewQueue(l.store, 1<<20)
	l.store.StartIDs(1)
	elapsed := clock.Runtime()
	w := journal.NewWriter(journal.WriterConfig{
		Store: l.store, Queue: l.queue, Log: log, Direct: true, Term: 1, Hold: params.HoldTime(), Now: metadata.NewClock(elapsed, 0), Elapsed: elapsed,
	})
	if err := w.Commit(t.Context(), &metadata.TermStart{Term: 1, Params: params}); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	go func() { l.done <- w.Run(ctx) }()
	t.Cleanup(func() { l.stop() })
	waitFor(t, "the writer", l.queue.Direct)
	return l
}

// mount submits a change.
func (l *lone) mount(ctx context.Context, n int) error {
	e, err := l.store.PrepareMount(segment.Spec{
		ID: segment.ID{byte(n >> 8), byte(n), 1}, Name: fmt.Sprint(n), Base: 1 << 32, Size: 1 << 20, Endpoint: fmt.Sprintf("host-%d:1", n), Client: segment.ClientID{byte(n >> 8), byte(n), 1},
	})
	if err != nil {
		return err
	}
	answers, err := l.queue.Submit(ctx, e)
	return errors.Join(append(answers, err)...)
}

// Callers whose changes are in one commit all get their answers, whether another caller or the
// writer's goroutine makes the commit.
func TestCallersCommit(t *testing.T) {
	l := startLone(t, journal.NoLog{})
	const callers, each = 8, 100
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range each {
				if err := l.mount(t.Context(), c*each+i); err != nil {
					t.Errorf("mount %d: got %v, want no error", c*each+i, err)
				}
			}
		})
	}
	all.Wait()
	if _, stats := l.store.Figures(); stats.Segments != callers*each {
		t.Errorf("there are %d segments, want %d", stats.Segments, callers*each)
	}
	l.stop()
	if err := <-l.done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: got %v, want context.Canceled", err)
	}
	if l.queue.Direct() {
		t.Error("the writer has ended: got that callers commit, want that they do not")
	}
}

// If the writer ends while callers wait, each gets an outcome, and none gets the answer that nothing
// was changed if it was.
func TestCallersCommitToTheEnd(t *testing.T) {
	for range 20 {
		l := startLone(t, journal.NoLog{})
		const callers = 4
		var all sync.WaitGroup
		var mounted, unresolved, under atomic.Int64
		for c := range callers {
			all.Go(func() {
				for i := 0; ; i++ {
					err := l.mount(t.Context(), c<<12+i)
					switch {
					case err == nil:
						mounted.Add(1)
						under.Store(1)
						continue
					case errs.KindOf(err) == errs.Unresolved:
						unresolved.Add(1)
					case errs.KindOf(err) != errs.NotLeader:
						t.Errorf("got %v, want NotLeader or Unresolved", err)
					}
					return
				}
			})
		}
		waitFor(t, "a commit", func() bool { return under.Load() > 0 })
		l.stop()
		if err := <-l.done; !errors.Is(err, context.Canceled) {
			t.Errorf("the writer ended with %v, want %v", err, context.Canceled)
		}
		all.Wait()
		_, stats := l.store.Figures()
		if got := int64(stats.Segments); got < mounted.Load() || got > mounted.Load()+unresolved.Load() {
			t.Errorf("there are %d segments, want the %d that were acknowledged, and at most %d more", got, mounted.Load(), unresolved.Load())
		}
	}
}

// brokenLog fails after a number of commits.
type brokenLog struct{ left atomic.Int64 }

var errBroken = errors.New("the log is broken")

func (b *brokenLog) Append(context.Context, *journal.Sealed) error {
	if b.left.Add(-1) < 0 {
		return errBroken
	}
	return nil
}

// A failing commit that a caller makes ends the writer, like a commit of its own.
func TestACallersCommitFails(t *testing.T) {
	log := new(brokenLog)
	log.left.Store(2) // the start of the term, and a mount
	l := startLone(t, log)
	if err := l.mount(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := l.mount(t.Context(), 2); errs.KindOf(err) != errs.Unresolved {
		t.Errorf("got %v, want Unresolved", err)
	}
	select {
	case err := <-l.done:
		if !errors.Is(err, errBroken) {
			t.Errorf("Run: got %v, want %v", err, errBroken)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a caller's commit failed: got a writer that still runs after 20s, want it ended")
	}
	if err := l.mount(t.Context(), 3); errs.KindOf(err) != errs.NotLeader {
		t.Errorf("after that: got %v, want NotLeader", err)
	}
}

// A gatedLog holds commits once it is shut, until it is opened again.
type gatedLog struct {
	shut  atomic.Bool
	begun chan struct{} // a commit is held
	open  chan struct{} // closed for ever
}

func (l *gatedLog) Append(ctx context.Context, _ *journal.Sealed) error {
	if !l.shut.Load() {
		return nil
	}
	select {
	case l.begun <- struct{}{}:
	default:
	}
	select {
	case <-l.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A caller that must not wait does not wait for changes that others have queued.
func TestNoWaitBehindOthers(t *testing.T) {
	log := &gatedLog{begun: make(chan struct{}, 1), open: make(chan struct{})}
	l := startLone(t, log)
	must := nowait.Context(t.Context())
	admit := func() error {
		ticket, err := l.queue.Admit(must, 100)
		if err == nil {
			ticket.Release()
		}
		return err
	}
	if err := admit(); err != nil {
		t.Errorf("with an empty queue: got %v, want room", err)
	}
	log.shut.Store(true)
	var all sync.WaitGroup
	mount := func(n int) {
		all.Go(func() {
			if err := l.mount(t.Context(), n); err != nil {
				t.Errorf("mount %d: got %v, want no error", n, err)
			}
		})
	}
	mount(0)
	<-log.begun
	mount(1) // waits behind it
	waitFor(t, "nobody to be let in", func() bool { return errors.Is(admit(), nowait.Err) })
	close(log.open)
	all.Wait()
	waitFor(t, "room", func() bool { return admit() == nil })
}

type panickingLog struct{}

func (panickingLog) Append(context.Context, *journal.Sealed) error { panic("no memory") }

// If a commit fails after it was applied in part, the process ends, even if the committing caller
// recovers from panics, since nothing may use that state.
func TestCommitThatMayBeAppliedByHalfEndsTheProcess(t *testing.T) {
	for name, fail := range map[string]func(*testing.T){"no memory": submitToAPanickingLog, "applying commit 3": submitWhatDoesNotApply} {
		t.Run(name, func(t *testing.T) {
			if os.Getenv("UNDERSTUDY_TEST_PANIC") != "" {
				fail(t)
				fmt.Println("went on")
				return
			}
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
			child.Env = append(os.Environ(), "UNDERSTUDY_TEST_PANIC=1")
			out, err := child.CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), "panic: a commit failed: "+name) || strings.Contains(string(out), "went on") {
				t.Errorf("the process ended with %v and said %q, want that a panic ends it", err, out)
			}
		})
	}
}

func submitToAPanickingLog(t *testing.T) {
	store := metadata.New(metadata.Options{})
	queue := journal.NewQueue(store, 1<<20)
	elapsed := clock.Runtime()
	w := journal.NewWriter(journal.WriterConfig{
		Store: store, Queue: queue, Log: panickingLog{}, Direct: true, Term: 1, Hold: params.HoldTime(), Now: metadata.NewClock(elapsed, 0), Elapsed: elapsed,
	})
	go func() { _ = w.Run(t.Context()) }()
	waitFor(t, "the writer", queue.Direct)
	defer func() { _ = recover() }() // as the front ends do
	_, _ = queue.Submit(t.Context(), &metadata.TermStart{Term: 1, Params: params})
}

// submitWhatDoesNotApply has two objects put into the same memory.
func submitWhatDoesNotApply(t *testing.T) {
	l := startLone(t, journal.NoLog{})
	if err := l.mount(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	at := []metadata.Placement{{Segment: 1, Range: segment.Range{Length: 100}}}
	_, _ = l.queue.Submit(t.Context(),
		&metadata.PutStart{Tenant: metadata.DefaultTenant, Key: "a", ID: metadata.NewObjectID(1, 1), Size: 100, Placements: at},
		&metadata.PutStart{Tenant: metadata.DefaultTenant, Key: "b", ID: metadata.NewObjectID(1, 2), Size: 100, Placements: at},
	)
}
