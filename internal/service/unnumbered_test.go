package service_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

func unnumbered(n byte) service.PutRequest {
	p := start(n)
	p.Unnumbered = true
	return p
}

func TestAbandonedPuts(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	it := service.PutItem{Key: "k", Size: 100}
	first, err := f.PutStart(ctx, unnumbered(1), it)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.PutStart(ctx, unnumbered(1), it)
	want(t, "a put that was answered", err, errs.ObjectExists)
	f.Store.Abandon("default", "k", first.ID)
	_, err = f.PutStart(ctx, unnumbered(2), it)
	want(t, "another client's put", err, errs.ObjectExists)
	_, err = f.PutStart(ctx, start(1), it)
	want(t, "a put of a protocol with request ids", err, errs.ObjectExists)
	got, failed, err := f.BatchPutStart(ctx, unnumbered(1), []service.PutItem{it, it})
	if err != nil || failed[0] != nil || got[0].ID <= first.ID || got[0].Replicas[0].Address == first.Replicas[0].Address {
		t.Fatalf("the put once more: %+v, %v, %v; want a later object at another address", got, failed, err)
	}
	want(t, "twice in a batch", failed[1], errs.ObjectExists)
	f.Store.Abandon("default", "k", first.ID) // late: that one is gone
	_, err = f.PutStart(ctx, unnumbered(1), it)
	want(t, "behind a late note", err, errs.ObjectExists)
	want(t, "its end", f.PutEnd(ctx, update(1), service.UpdateItem{Key: "k"}), errs.OK)
	if st := f.Store.Stats(); st.Quarantined != 104 {
		t.Errorf("%d bytes in quarantine, want those of the put that was given up", st.Quarantined)
	}
}

// heldLog holds each commit of changes until it is told to go on.
type heldLog struct {
	journal.NoLog
	begun, goOn chan struct{}
}

func (l *heldLog) Append(ctx context.Context, s *journal.Sealed) error {
	if !slices.ContainsFunc(s.Records[:], func(r []byte) bool { return len(r) > 0 }) {
		return l.NoLog.Append(ctx, s) // a heartbeat
	}
	select {
	case l.begun <- struct{}{}:
		<-l.goOn
	case <-ctx.Done():
	}
	return l.NoLog.Append(ctx, s)
}

// A caller that goes while its put is being written has not been answered.
func TestCallerGoneWhileItsPutIsWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		put  service.PutRequest
		want errs.Kind
	}{"without request ids": {unnumbered(1), errs.OK}, "with them": {start(1), errs.ObjectExists}} {
		t.Run(name, func(t *testing.T) {
			log := &heldLog{begun: make(chan struct{}), goOn: make(chan struct{})}
			f := newFixture(t, func(c *service.Master) { held(t, c, log) })
			it := service.PutItem{Key: "k", Size: 100}
			ctx, leave := context.WithCancel(t.Context())
			answered := make(chan error)
			go func() {
				_, err := f.PutStart(ctx, tc.put, it)
				answered <- err
			}()
			<-log.begun
			leave()
			want(t, "the call", <-answered, errs.Unresolved)
			go func() {
				_, err := f.PutStart(t.Context(), tc.put, it) // waits for the outcome
				answered <- err
			}()
			close(log.goOn)
			for {
				select {
				case <-log.begun:
					continue
				case err := <-answered:
					want(t, "the next call", err, tc.want)
				}
				break
			}
		})
	}
}

// held gives a master a store of its own, with one segment, whose commits go
// through a log.
func held(t *testing.T, c *service.Master, log *heldLog) {
	t.Helper()
	c.Store = metadata.New(metadata.Options{})
	c.Queue = journal.NewQueue(c.Store, 1<<20)
	c.Store.StartIDs(1)
	w := journal.NewWriter(journal.WriterConfig{
		Store: c.Store, Queue: c.Queue, Log: log, Term: 1, Hold: params.HoldTime(), Now: c.Now,
		Elapsed: func() time.Duration { return 0 },
	})
	spec := segment.Spec{ID: segment.ID{1}, Name: "a", Base: 1 << 32, Size: 1 << 20, Endpoint: "a:1", Client: owner(1)}
	for _, change := range []metadata.Change{&metadata.TermStart{Term: 1, Params: params}, &metadata.Mount{Spec: spec}} {
		done := make(chan error)
		go func() { done <- w.Commit(context.Background(), change) }()
		<-log.begun
		log.goOn <- struct{}{}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}
