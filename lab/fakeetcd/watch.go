package fakeetcd

import (
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// maxWatchRevisions bounds the revisions of one answer to a watch, as in etcd.
const maxWatchRevisions = 1000

// A watch is one watch of a stream.
type watch struct {
	id       int64
	from, to string // range, as in the protocol
	next     int64  // revision that it has not seen yet
	created  bool   // the client has been told that it is there
	notify   bool   // tell the revision when nothing happens for long
}

// A watchStream is both ends of a stream of watches. The server's part runs
// when the client waits for an answer, which it always does.
type watchStream struct {
	stream
	server *Server
	asked  chan struct{} // has a token when there are requests

	mu       sync.Mutex // guards requests
	requests []watchRequest

	// For RecvMsg alone.
	timer    *time.Timer
	answers  []watchAnswer
	watchers []*watch // in the order of their ids
	nextID   int64
	canceled []int64       // watches to take leave of
	progress bool          // the client asks for the revision
	notify   time.Duration // by the server's clock: when to tell it next unasked
}

// A watchRequest, and a watchAnswer, is on its way.
type watchRequest struct {
	trip
	*pb.WatchRequest
}

type watchAnswer struct {
	trip
	*pb.WatchResponse
}

func newWatchStream(s stream) *watchStream {
	server := s.link.server
	timer := time.NewTimer(forever)
	timer.Stop()
	return &watchStream{
		stream: s, server: server, timer: timer, asked: make(chan struct{}, 1),
		notify: server.clock() + server.opts.ProgressEvery,
	}
}

// SendMsg sends a request.
func (w *watchStream) SendMsg(m any) error {
	r := m.(*pb.WatchRequest)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, watchRequest{w.link.request(w.connection, r), r})
	select {
	case w.asked <- struct{}{}:
	default:
	}
	return nil
}

// CloseSend says that no requests follow.
func (w *watchStream) CloseSend() error { return nil }

// RecvMsg returns the next answer to any watch of the stream: the events of each
// watch are in order.
func (w *watchStream) RecvMsg(m any) error {
	defer w.timer.Stop()
	for {
		wake := w.server.changes() // before anything is looked at, so that no change is missed
		state, changed := w.link.look()
		switch {
		case w.ctx.Err() != nil:
			return left(w.ctx)
		case state.connection != w.connection:
			return errUnavailable
		}
		asks, err := w.receive(state)
		if err != nil {
			return err
		}
		w.send()
		comes := forever
		if len(w.answers) > 0 {
			if comes = w.answers[0].remains(state); comes == 0 {
				first := w.answers[0]
				w.answers = w.answers[1:]
				first.copyTo(m.(*pb.WatchResponse))
				return nil
			}
		}
		w.timer.Reset(min(asks, comes, w.notify-w.server.clock()))
		select {
		case <-w.timer.C:
		case <-wake:
		case <-changed:
		case <-w.asked:
		case <-w.ctx.Done():
		}
	}
}

func (a watchAnswer) copyTo(to *pb.WatchResponse) {
	to.Header, to.WatchId, to.Events = a.Header, a.WatchId, a.Events
	to.Created, to.Canceled, to.CompactRevision = a.Created, a.Canceled, a.CompactRevision
}

// receive takes in the requests that have arrived, and returns when the next
// one will.
func (w *watchStream) receive(state linkState) (next time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; len(w.requests) > 0; w.requests = w.requests[1:] {
		r := w.requests[0]
		if remains := r.remains(state); remains > 0 {
			return remains, nil
		}
		switch {
		case r.GetCreateRequest() != nil:
			if err := w.create(r.GetCreateRequest()); err != nil {
				return 0, err
			}
		case r.GetCancelRequest() != nil:
			w.drop(r.GetCancelRequest().WatchId)
			w.canceled = append(w.canceled, r.GetCancelRequest().WatchId)
		case r.GetProgressRequest() != nil:
			w.progress = true
		}
	}
	return forever, nil
}

func (w *watchStream) create(r *pb.WatchCreateRequest) error {
	if r.PrevKv || len(r.Filters) > 0 || r.WatchId != 0 {
		return notOffered("a watch with previous values, filters or an id of its own")
	}
	next := r.StartRevision
	if next <= 0 {
		next = w.server.Revision() + 1
	}
	w.watchers = append(w.watchers, &watch{
		id: w.nextID, from: string(r.Key), to: string(r.RangeEnd), next: next, notify: r.ProgressNotify,
	})
	w.nextID++
	return nil
}

func (w *watchStream) drop(id int64) {
	w.watchers = slices.DeleteFunc(w.watchers, func(x *watch) bool { return x.id == id })
}

// send sends what there is to tell. Answers arrive in the order in which they
// are sent.
func (w *watchStream) send() {
	for _, resp := range w.collect() {
		t := w.link.answer(w.connection, resp)
		if n := len(w.answers); n > 0 {
			t.arrives = max(t.arrives, w.answers[n-1].arrives)
		}
		w.answers = append(w.answers, watchAnswer{t, resp})
	}
}

// collect returns the next answers to all watches of the stream. A request for
// progress is answered when all of them have seen everything.
func (w *watchStream) collect() (list []*pb.WatchResponse) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	unasked := w.server.clock() >= w.notify
	if unasked {
		w.notify += w.server.opts.ProgressEvery
	}
	if w.server.held[w.link.name] {
		return nil
	}
	header := w.server.header()
	for _, id := range w.canceled {
		list = append(list, &pb.WatchResponse{Header: header, WatchId: id, Canceled: true})
	}
	w.canceled = nil
	for _, x := range slices.Clone(w.watchers) {
		if !x.created {
			x.created = true
			list = append(list, &pb.WatchResponse{Header: header, WatchId: x.id, Created: true})
		}
		if compacted := w.server.store.compacted; x.next < compacted {
			w.drop(x.id)
			list = append(list, &pb.WatchResponse{Header: header, WatchId: x.id, Canceled: true, CompactRevision: compacted})
			continue
		}
		for events := x.take(&w.server.store); len(events) > 0; events = x.take(&w.server.store) {
			list = append(list, &pb.WatchResponse{Header: header, WatchId: x.id, Events: events})
		}
	}
	if w.progress {
		w.progress = false
		list = append(list, &pb.WatchResponse{Header: header, WatchId: -1})
	}
	for _, x := range w.watchers {
		if unasked && x.notify {
			list = append(list, &pb.WatchResponse{Header: header, WatchId: x.id})
		}
	}
	return list
}

// take returns the events of the next revisions. Those of one revision are
// never taken apart.
func (x *watch) take(s *store) (events []*mvccpb.Event) {
	revisions, last := 0, int64(0)
	for _, e := range s.since(x.next) {
		if !within(string(e.Kv.Key), x.from, x.to) {
			continue
		}
		if e.Kv.ModRevision != last {
			if revisions == maxWatchRevisions {
				x.next = e.Kv.ModRevision
				return events
			}
			revisions, last = revisions+1, e.Kv.ModRevision
		}
		events = append(events, e)
	}
	x.next = max(x.next, s.revision+1)
	return events
}
