package fakeetcd

import (
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
)

// maxWatchRevisions bounds the revisions of one answer to a watch, as in etcd.
const maxWatchRevisions = 1000

type watchService struct {
	pb.UnimplementedWatchServer
	*Server
}

// A watcher is one watch of a stream.
type watcher struct {
	id       int64
	from, to string // range, as in the protocol
	next     int64  // revision that it has not seen yet
	created  bool   // the client has been told that it is there
	notify   bool   // tell the revision when nothing happens for long
}

// A watchStream serves the watches of one stream.
type watchStream struct {
	pb.Watch_WatchServer
	server   *Server
	mu       sync.Mutex // guards all below
	watchers []*watcher // in the order of their ids
	nextID   int64
	canceled []int64 // watches to take leave of
	progress bool    // the client asks for the revision
	changed  chan struct{}
}

// Watch sends the events of the watches that the client creates, in order,
// until the stream ends.
func (s watchService) Watch(stream grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	w := &watchStream{Watch_WatchServer: stream, server: s.Server, changed: make(chan struct{}, 1)}
	asked := make(chan error, 1)
	go func() { asked <- w.receive() }()
	notify := time.NewTicker(s.opts.ProgressEvery)
	defer notify.Stop()
	for {
		wake := s.changes()
		if err := w.send(); err != nil {
			return err
		}
		select {
		case <-wake:
		case <-w.changed:
		case <-notify.C:
			if err := w.notify(); err != nil {
				return err
			}
		case err := <-asked:
			return err
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// receive takes the client's requests until the stream ends.
func (w *watchStream) receive() error {
	for {
		r, err := w.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.server.admit(w.Context(), r); err != nil {
			return err
		}
		switch {
		case r.GetCreateRequest() != nil:
			err = w.create(r.GetCreateRequest())
		case r.GetCancelRequest() != nil:
			w.cancel(r.GetCancelRequest().WatchId)
		case r.GetProgressRequest() != nil:
			w.mu.Lock()
			w.progress = true
			w.mu.Unlock()
		}
		if err != nil {
			return err
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

func (w *watchStream) create(r *pb.WatchCreateRequest) error {
	if r.PrevKv || len(r.Filters) > 0 || r.WatchId != 0 {
		return notOffered("a watch with previous values, filters or an id of its own")
	}
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	next := r.StartRevision
	if next <= 0 {
		next = w.server.store.revision + 1
	}
	w.watchers = append(w.watchers, &watcher{
		id: w.nextID, from: string(r.Key), to: string(r.RangeEnd), next: next, notify: r.ProgressNotify,
	})
	w.nextID++
	return nil
}

func (w *watchStream) cancel(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(id)
	w.canceled = append(w.canceled, id)
}

// drop needs mu.
func (w *watchStream) drop(id int64) {
	w.watchers = slices.DeleteFunc(w.watchers, func(x *watcher) bool { return x.id == id })
}

// send sends what there is to tell.
func (w *watchStream) send() error {
	for {
		list := w.collect()
		if len(list) == 0 {
			return nil
		}
		for _, resp := range list {
			if err := w.Send(resp); err != nil {
				return err
			}
		}
	}
}

// collect returns the next answers to all watches of the stream. A request for
// progress is answered when all of them have seen everything.
func (w *watchStream) collect() (list []*pb.WatchResponse) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.server.held[clientOf(w.Context())] {
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
		if events := x.take(&w.server.store); len(events) > 0 {
			list = append(list, &pb.WatchResponse{Header: header, WatchId: x.id, Events: events})
		}
	}
	if w.progress && len(list) == 0 {
		w.progress = false
		list = append(list, &pb.WatchResponse{Header: header, WatchId: -1})
	}
	return list
}

// take returns the events of the next revisions. Those of one revision are
// never taken apart.
func (x *watcher) take(s *store) (events []*mvccpb.Event) {
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

// notify tells the revision to the watches that want to know it even when
// nothing happens.
func (w *watchStream) notify() error {
	w.server.mu.Lock()
	w.mu.Lock()
	var list []*pb.WatchResponse
	for _, x := range w.watchers {
		if x.notify && x.next > w.server.store.revision {
			list = append(list, &pb.WatchResponse{Header: w.server.header(), WatchId: x.id})
		}
	}
	w.mu.Unlock()
	w.server.mu.Unlock()
	for _, resp := range list {
		if err := w.Send(resp); err != nil {
			return err
		}
	}
	return nil
}
