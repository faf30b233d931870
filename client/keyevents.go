package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// silentFor is how long a primary may send nothing to a follower of keys. It sends
// something every half second.
const silentFor = 2 * time.Second

// A KeyPosition says how far a follower of keys has come. The zero value is the
// beginning.
type KeyPosition struct {
	History  string // names the journal
	Term     uint64
	Sequence uint64
}

// KeyEvents are the next events. If there are none, nothing has happened up to After.
type KeyEvents struct {
	// Resync says that some events may be missing. The caller forgets all keys: those
	// that exist follow as events, before the events of later changes.
	Resync bool
	Events []KeyEvent
	After  KeyPosition // the position behind these, to go on from
}

// A KeyEvent is a change of where an object can be read: InMemory and OnDisk say where it
// can be now. If neither is set, its key is gone.
type KeyEvent struct {
	Type     KeyEventType
	Tenant   string
	Key      string
	ID       ObjectID
	Size     uint64 // bytes
	Group    string // empty for none
	InMemory bool
	OnDisk   bool // on a client's SSD, or in a file
}

// A KeyEventType is what happens to a key.
type KeyEventType int32

// The types.
const (
	KeyStored  = KeyEventType(pb.KvEventType_KV_EVENT_TYPE_STORED)  // it came to a medium
	KeyRemoved = KeyEventType(pb.KvEventType_KV_EVENT_TYPE_REMOVED) // it left one: removed, put anew, unmounted
	KeyEvicted = KeyEventType(pb.KvEventType_KV_EVENT_TYPE_EVICTED) // it left one to make room
)

// KeyEvents follows which keys of all tenants are stored, removed and evicted, in the
// order in which that happens, from behind a position: that of the last events that the
// caller has dealt with, or the zero one to begin with all keys. After a failover it goes
// on with the next primary; then some events may come twice, and none is left out.
// Whoever was away for too long, or reads too slowly, gets a Resync.
//
// It ends with the context. It ends with another error only if waiting is no use:
// NotSupported without --enable_kv_events, or over a Config.Transport; InvalidParams for
// wrong addresses.
func (c *Client) KeyEvents(ctx context.Context, after KeyPosition) iter.Seq2[KeyEvents, error] {
	return func(yield func(KeyEvents, error) bool) {
		f := &keyFollower{Client: c, after: after, yield: yield}
		pauses := newPauses()
		for {
			got := f.got
			err := f.follow(ctx)
			if f.enough {
				return
			}
			if f.got > got {
				pauses.Reset()
			}
			if err == nil {
				err = c.pause(ctx, pauses.NextBackOff())
			}
			if err != nil {
				yield(KeyEvents{}, f.ended(err))
				return
			}
		}
	}
}

// A keyFollower follows keys for one caller.
type keyFollower struct {
	*Client
	after  KeyPosition
	yield  func(KeyEvents, error) bool
	got    int  // messages
	enough bool // the caller wants no more
}

// follow follows keys at the present primary. It returns nil if another attempt may go
// on.
func (f *keyFollower) follow(ctx context.Context) error {
	f.finder.calls.Add(1) // makes the finder look for a leader that answers, until this one does
	found := sync.OnceFunc(func() { f.finder.calls.Add(-1) })
	defer found()
	l, err := f.finder.wait(ctx)
	if err != nil {
		return err
	}
	conn, ok := l.conn.(grpc.ClientConnInterface)
	if !ok {
		return errs.New(errs.NotSupported, "KeyEvents", "keys are followed over gRPC, and not over another Config.Transport")
	}
	one, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	silent := time.AfterFunc(silentFor, cancel)
	defer silent.Stop()
	req := &pb.KvEventsRequest{After: &pb.KvPosition{History: f.after.History, Term: f.after.Term, Sequence: f.after.Sequence}}
	begun := f.clock()
	stream, err := pb.NewObjectServiceClient(conn).KvEvents(one, req)
	for err == nil {
		silent.Reset(silentFor)
		var r *pb.KvEventsResponse
		if r, err = stream.Recv(); err != nil {
			break
		}
		silent.Stop()
		if failed := f.view.admit(r.GetHeader(), begun); failed != nil {
			return f.failed(l, failed)
		}
		l.answered.Store(int64(f.clock()))
		found()
		if f.got++; !f.take(r) {
			f.enough = true
			return nil
		}
	}
	if err := f.Client.ended(ctx); err != nil {
		return err
	}
	return f.failed(l, f.view.judge(one, opKvEvents, req, begun, true, err))
}

// failed returns the error of a failure that ends the following, nil for one that does
// not.
func (f *keyFollower) failed(l *leader, failed *failure) error {
	if failed.drop {
		f.finder.drop(l, failed.from)
	}
	if failed.repeat {
		return nil
	}
	return answer(opKvEvents, failed.err)
}

// take passes a message on, and reports whether the caller wants more.
func (f *keyFollower) take(r *pb.KvEventsResponse) bool {
	if p := r.GetThrough(); p != nil {
		f.after = KeyPosition{p.GetHistory(), p.GetTerm(), p.GetSequence()}
	}
	events := make([]KeyEvent, len(r.GetEvents()))
	for i, e := range r.GetEvents() {
		events[i] = KeyEvent{KeyEventType(e.GetType()), e.GetTenant(), e.GetKey(), ObjectID(e.GetObjectId()), e.GetSize(), e.GetGroupId(), e.GetInMemory(), e.GetOnDisk()}
	}
	return f.yield(KeyEvents{r.GetResync(), events, f.after}, nil)
}

// ended returns the error that the caller gets at the end.
func (f *keyFollower) ended(err error) error {
	if e := new(errs.Error); errors.As(err, &e) {
		return e
	}
	return errs.Wrap(errs.Unavailable, "KeyEvents", fmt.Errorf("following keys has ended: %w", err))
}
