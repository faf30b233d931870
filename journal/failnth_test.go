package journal_test

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/understudy-store/understudy/deleteevents"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/etcdtest/faultinject"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// If any operation of a commit fails, or a few in a row, callers get answers that are true of the
// journal, a further attempt succeeds, and a follower has the primary's state.
func TestCommitWhenTheNthOperationFails(t *testing.T) {
	etcd := etcdtest.Start(t)
	direct := etcd.Client(t)
	for _, tc := range []struct {
		kind faultinject.Kind
		row  int
	}{
		{faultinject.QuestionLost, 1}, {faultinject.QuestionLost, 2}, {faultinject.QuestionLost, 3},
		{faultinject.AnswerLost, 1}, {faultinject.AnswerLost, 2}, {faultinject.AnswerLost, 3},
		{faultinject.NoSpace, 1}, {faultinject.NoSpace, 2},
	} {
		t.Run(fmt.Sprintf("%v, %d in a row", tc.kind, tc.row), func(t *testing.T) {
			failed := 0
			for run := range faultinject.Runs(tc.kind) {
				run.Row = tc.row
				if _, err := direct.Delete(t.Context(), "/understudy/", clientv3.WithPrefix()); err != nil {
					t.Fatal(err)
				}
				t.Run(fmt.Sprint(run.I), func(t *testing.T) { commitWithFault(t, etcd, run) })
				if run.Fault() != "" {
					failed++
				}
			}
			if failed < 5 { // the grant of the records' lease, and a transaction for each step
				t.Errorf("got %d operations that failed, want 5 at least: the grant of a lease, and a transaction for each step",
					failed)
			}
		})
	}
}

// A step is one change, and how it shows in a state.
type step struct {
	name  string
	do    func() error
	shows func(*metadata.Store) bool
}

func commitWithFault(t *testing.T, etcd *etcdtest.Cluster, run *faultinject.Run) {
	client := etcd.Client(t, run.DialOptions()...)
	s := newStandby()
	reading := follow(t, etcd.Client(t), now(t, etcd.Client(t)), s)
	p := newPrimary(t, client, 1<<20)
	p.setUp()
	p.run()

	steps := p.steps()
	told := make([]error, len(steps))
	run.Arm()
	for i, step := range steps {
		told[i] = step.do()
	}
	run.Disarm()
	for i, step := range steps {
		kind := errs.KindOf(told[i])
		done := step.shows(p.store)
		t.Logf("%v: %s: %v, done %v", run, step.name, told[i], done)
		switch {
		case kind == errs.OK && !done:
			t.Errorf("%v: %s: got success and no such change in the state, want every acknowledged change there", run, step.name)
		case kind == errs.Unavailable && done:
			t.Errorf("%v: %s: got %v and the change in the state, want nothing changed by what was refused as Unavailable",
				run, step.name, told[i])
		case kind != errs.OK && kind != errs.Unavailable && kind != errs.Unresolved:
			t.Errorf("%v: %s: got %v, want success, Unavailable or Unresolved", run, step.name, told[i])
		case kind != errs.OK && !done:
			if err := step.do(); err != nil {
				t.Errorf("%v: %s, tried again after the fault: got %v, want no error", run, step.name, err)
			}
		}
	}
	s.waitFor(t, p.store.Position())
	for _, step := range steps {
		if !step.shows(p.store) || !step.shows(s.store) {
			t.Errorf("%v: %s: got it on the primary: %v, and on the standby: %v, want it on both in the end",
				run, step.name, step.shows(p.store), step.shows(s.store))
		}
	}
	select {
	case err := <-reading:
		t.Errorf("%v: the reader ended with %v, want it to read on", run, err)
	case err := <-p.done:
		p.done <- err
		t.Errorf("%v: the writer ended with %v, want it to go on", run, err)
	default:
	}
}

// setUp commits what the steps need, and takes a new log, so that a lease for
// the records is among what may fail.
func (p *primary) setUp() {
	p.t.Helper()
	commit := func(c metadata.Change, err error) {
		p.t.Helper()
		if err == nil {
			err = p.writer.Commit(p.t.Context(), c)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	mount, err := p.store.PrepareMount(segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 30, Endpoint: "a:1"})
	commit(mount, err)
	commit(p.prepare("open"), nil)
	commit(p.prepare("victim"), nil)
	end, _, err := p.store.PreparePutEnd(metadata.PutRef{Tenant: "default", Key: "victim", Selector: metadata.SelectMemory}, nil)
	commit(end, err)

	boot := clock.Boot()
	p.log = journal.NewEtcdLog(p.client, p.layout, p.election, p.log.Tip(), 5*time.Second, boot)
	p.writer = journal.NewWriter(journal.WriterConfig{
		Store: p.store, Queue: p.queue, Log: p.log, Term: 1, Hold: params.HoldTime(), Now: p.now, Elapsed: boot, Observer: p.seen,
	})
}

// steps are four changes that do not depend on one another.
func (p *primary) steps() []step {
	ctx := p.t.Context()
	late := segment.Spec{ID: segment.ID{2}, Name: "b", Base: 1 << 33, Size: 1 << 20, Endpoint: "b:1"}
	return []step{
		{"a put start", func() error { return p.put(ctx, "new") }, func(s *metadata.Store) bool { return exists(s, "new") }},
		{"a put end", func() error { return p.end("open") }, func(s *metadata.Store) bool {
			o, err := s.Inspect("default", "open")
			return err == nil && o.Replicas[0].Status == metadata.Complete
		}},
		{"a removal", func() error { return p.remove("victim") }, func(s *metadata.Store) bool { return !exists(s, "victim") }},
		{"a mount", func() error {
			e, err := p.store.PrepareMount(late)
			if err != nil {
				return err
			}
			return p.submit(e)
		}, func(s *metadata.Store) bool { _, ok := s.FindSegment(late.ID); return ok }},
	}
}

func exists(s *metadata.Store, key string) bool {
	_, err := s.Inspect("default", key)
	return err == nil
}

func (p *primary) submit(c metadata.Change) error {
	answers, err := p.queue.Submit(p.t.Context(), c)
	if err != nil {
		return err
	}
	return answers[0]
}

func (p *primary) end(key string) error {
	e, wait, err := p.store.PreparePutEnd(metadata.PutRef{Tenant: "default", Key: key, Selector: metadata.SelectMemory}, nil)
	if err != nil || wait != nil {
		p.t.Fatalf("preparing the end of %s: got %v, busy: %v; want no error, and not busy", key, err, wait != nil)
	}
	return p.submit(e)
}

func (p *primary) remove(key string) error {
	e, wait, err := deleteevents.Prepare(p.store, deleteevents.Request{Tenant: "default", Key: key, Force: true}, p.now())
	if err != nil || wait != nil {
		p.t.Fatalf("preparing the removal of %s: got %v, busy: %v; want no error, and not busy", key, err, wait != nil)
	}
	return p.submit(e)
}
