package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/metadata"
)

// behindAFront returns a client of a lone primary whose answers can be lost,
// with memory mounted.
func behindAFront(t testing.TB) (*cluster, *front, *client.Client) {
	t.Helper()
	cl := newCluster(t, 1)
	f := newFront(t, cl.lead(0).address)
	c := connect(t, client.Config{Addresses: []string{f.address}})
	mountMemory(t, c)
	return cl, f, c
}

func requestID(m proto.Message) uint64 {
	r := m.ProtoReflect()
	return r.Get(r.Descriptor().Fields().ByName("request_id")).Uint()
}

// A call whose answer is lost is repeated with the same request id and applied once. It gets the
// outcome of the first attempt.
func TestLostAnswers(t *testing.T) {
	reserve := func(t *testing.T, c *client.Client) client.PutRef {
		t.Helper()
		r, err := c.PutStart(t.Context(), client.PutItem{Key: "k", Size: 100}, client.PutConfig{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Ref()
	}
	first := func(failed []error, err error) error { return errors.Join(append(failed, err)...) }
	for method, prepare := range map[string]func(*testing.T, *client.Client) func(context.Context) error{
		"PutStart": func(_ *testing.T, c *client.Client) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := c.PutStart(ctx, client.PutItem{Key: "k", Size: 100}, client.PutConfig{})
				return err
			}
		},
		"BatchPutStart": func(_ *testing.T, c *client.Client) func(context.Context) error {
			return func(ctx context.Context) error {
				r, err := c.BatchPutStart(ctx, []client.PutItem{{Key: "k", Size: 100}}, client.PutConfig{})
				if err != nil {
					return err
				}
				return r[0].Err
			}
		},
		"PutEnd": func(t *testing.T, c *client.Client) func(context.Context) error {
			ref := reserve(t, c)
			return func(ctx context.Context) error { return c.PutEnd(ctx, ref, client.SelectAll) }
		},
		"BatchPutEnd": func(t *testing.T, c *client.Client) func(context.Context) error {
			ref := reserve(t, c)
			return func(ctx context.Context) error {
				return first(c.BatchPutEnd(ctx, []client.PutRef{ref}, client.SelectAll))
			}
		},
		"PutRevoke": func(t *testing.T, c *client.Client) func(context.Context) error {
			ref := reserve(t, c)
			return func(ctx context.Context) error { return c.PutRevoke(ctx, ref, client.SelectAll) }
		},
		"BatchPutRevoke": func(t *testing.T, c *client.Client) func(context.Context) error {
			ref := reserve(t, c)
			return func(ctx context.Context) error {
				return first(c.BatchPutRevoke(ctx, []client.PutRef{ref}, client.SelectAll))
			}
		},
		"Remove": func(t *testing.T, c *client.Client) func(context.Context) error {
			put(t, c, "k")
			return func(ctx context.Context) error { return c.Remove(ctx, "k", client.Removal{}) }
		},
		"BatchRemove": func(t *testing.T, c *client.Client) func(context.Context) error {
			put(t, c, "k")
			return func(ctx context.Context) error { return first(c.BatchRemove(ctx, []string{"k"}, client.Removal{})) }
		},
		"MountSegment": func(_ *testing.T, c *client.Client) func(context.Context) error {
			return func(ctx context.Context) error { return c.MountSegment(ctx, memory(1<<40)) }
		},
		"UnmountSegment": func(t *testing.T, c *client.Client) func(context.Context) error {
			s := memory(1 << 40)
			if err := c.MountSegment(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context) error { return c.UnmountSegment(ctx, s.ID) }
		},
		"ReMountSegment": func(_ *testing.T, c *client.Client) func(context.Context) error { return c.ReMountSegment },
	} {
		t.Run(method, func(t *testing.T) {
			cl, f, c := behindAFront(t)
			call := prepare(t, c)
			before := len(f.asked(method))
			var applied metadata.Seq
			f.losingAfter(method, 2, func() {
				if applied == 0 {
					applied = cl.store.Position().Seq
				}
			})
			if err := call(soon(t, 20*time.Second)); err != nil {
				t.Fatal(err)
			}
			asked := f.asked(method)[before:]
			if len(asked) != 3 {
				t.Fatalf("it was asked for %d times, want 3", len(asked))
			}
			for _, again := range asked {
				if requestID(again) == 0 || requestID(again) != requestID(asked[0]) {
					t.Errorf("request id %d, and %d at first; want the same, above 0", requestID(again), requestID(asked[0]))
				}
			}
			if now := cl.store.Position().Seq; now != applied {
				t.Errorf("the repeats have changed something: sequence %d, and %d after the first attempt; want no change", now, applied)
			}
		})
	}
}

// A call that must not be repeated is not, once it may have been applied: its caller gets an
// error that says so. A node that does not serve has applied nothing, so then the call is
// repeated.
func TestCallsThatAreNotRepeated(t *testing.T) {
	for method, call := range map[string]func(context.Context, *client.Client) error{
		"RemoveAll": func(ctx context.Context, c *client.Client) error {
			_, err := c.RemoveAll(ctx, client.Removal{})
			return err
		},
		"RemoveByRegex": func(ctx context.Context, c *client.Client) error {
			_, err := c.RemoveByRegex(ctx, "k", client.Removal{})
			return err
		},
		"BatchReplicaClear": func(ctx context.Context, c *client.Client) error {
			_, err := c.BatchReplicaClear(ctx, []string{"k"}, "")
			return err
		},
	} {
		t.Run(method, func(t *testing.T) {
			cl, f, c := behindAFront(t)
			put(t, c, "k")
			f.losing(method, 1)
			wantUnresolved(t, "a lost answer", call(soon(t, 20*time.Second), c))
			if n := len(f.asked(method)); n != 1 || cl.objects() != 0 {
				t.Errorf("asked %d times, and %d objects are left; want 1 and 0", n, cl.objects())
			}
			put(t, c, "k")
			cl.nodes[0].gate.Close(cl.nodes[0].gate.Hint())
			done := make(chan error, 1)
			go func() { done <- call(context.Background(), c) }()
			within(t, "asking the standby", func() bool { return len(f.asked(method)) > 1 })
			cl.lead(0)
			if err := <-done; err != nil || cl.objects() != 0 {
				t.Errorf("at a standby first: got %v, and %d objects are left; want 0 and no error", err, cl.objects())
			}
		})
	}
}

// Without the object's id a repeated PutEnd could end a later put.
func TestPutEndWithoutAnID(t *testing.T) {
	_, f, c := behindAFront(t)
	for method, call := range map[string]func(context.Context, client.PutRef) error{
		"PutEnd":    func(ctx context.Context, r client.PutRef) error { return c.PutEnd(ctx, r, client.SelectAll) },
		"PutRevoke": func(ctx context.Context, r client.PutRef) error { return c.PutRevoke(ctx, r, client.SelectAll) },
		"BatchPutEnd": func(ctx context.Context, r client.PutRef) error {
			_, err := c.BatchPutEnd(ctx, []client.PutRef{r}, client.SelectAll)
			return err
		},
		"BatchPutRevoke": func(ctx context.Context, r client.PutRef) error {
			_, err := c.BatchPutRevoke(ctx, []client.PutRef{r}, client.SelectAll)
			return err
		},
	} {
		r, err := c.PutStart(t.Context(), client.PutItem{Key: method, Size: 1}, client.PutConfig{})
		if err != nil {
			t.Fatal(err)
		}
		f.losing(method, 1)
		wantUnresolved(t, method, call(soon(t, 20*time.Second), client.PutRef{Key: r.Key}))
		if n := len(f.asked(method)); n != 1 {
			t.Errorf("%s: asked %d times, want 1", method, n)
		}
	}
}

func wantUnresolved(t *testing.T, what string, err error) {
	t.Helper()
	wantKind(t, what, err, errs.Unresolved)
	if err == nil || !strings.Contains(err.Error(), "look") {
		t.Errorf("%s: %v does not say what to do: want \"look\" in it", what, err)
	}
}

// A call that the journal refuses has changed nothing, so it is repeated until its deadline.
func TestJournalThatRefuses(t *testing.T) {
	cl, c := serving(t)
	var refused atomic.Int64
	full := errors.New("etcd is full")
	cl.log.refusing(func() error {
		if refused.Add(1) > 3 {
			return nil
		}
		return full
	})
	put(t, c, "k")
	if n := refused.Load(); n < 4 {
		t.Errorf("%d commits were tried; want at least 4", n)
	}
	cl.log.refusing(func() error { return full })
	// A deadline in the middle of an attempt leaves the outcome open; between two
	// it does not.
	err := errors.New("not tried")
	for range 20 {
		begun := time.Now()
		_, err = c.PutStart(soon(t, 200*time.Millisecond), client.PutItem{Key: "l", Size: 1}, client.PutConfig{})
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("a call with a deadline of 200 ms: got its end after %v, want it at the deadline", took)
		}
		if err == nil || !errors.Is(err, errs.Unresolved) && strings.Contains(err.Error(), "attempts") { // a busy machine may make none
			break
		}
	}
	cl.log.refusing(nil)
	wantKind(t, "refused to the end", err, errs.Unavailable)
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(err.Error(), "attempts") {
		t.Errorf("%v does not say how it stands: want \"nothing was changed\" and the attempts in it", err)
	}
	put(t, c, "l")
}

// The deadline ends a call whose answers are all lost. Whether anything may
// have changed is in the kind.
func TestDeadlineWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	_, f, c := behindAFront(t)
	f.losing("ExistKey", 1<<30)
	const enough = 3 * time.Second // for a second attempt, also on a busy machine
	_, err := c.ExistKey(soon(t, enough), "k")
	wantKind(t, "a read", err, errs.Unavailable)
	if n := len(f.asked("ExistKey")); n < 2 || n > 80 {
		t.Errorf("attempts in %v: got %d, want 2 to 80: pauses grow from 10 ms", enough, n)
	}
	f.losing("PutStart", 1<<30)
	_, err = c.PutStart(soon(t, enough), client.PutItem{Key: "k", Size: 1}, client.PutConfig{})
	wantKind(t, "a change", err, errs.Unresolved)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v does not say why: want the deadline", err)
	}
	f.losing("BatchRemove", 1<<30)
	_, err = c.BatchRemove(soon(t, enough), []string{"a", "b"}, client.Removal{})
	wantKind(t, "a batch without any answer", err, errs.Unresolved)
}

// An answer of a server that cannot know the outcome of the first attempt leaves that open.
func TestStrangerAfterALostAnswer(t *testing.T) {
	for name, second := range map[string]func(resp proto.Message) (proto.Message, error){
		"another cluster": func(resp proto.Message) (proto.Message, error) {
			resp.(*pb.RemoveResponse).Header.ClusterId = "elsewhere"
			return resp, nil
		},
		"another program": func(proto.Message) (proto.Message, error) { return nil, status.Error(codes.Internal, "what?") },
	} {
		_, f, c := behindAFront(t)
		put(t, c, "k")
		attempts := 0
		f.answering(func(method string, _, resp proto.Message, err error) (proto.Message, error) {
			if method != "Remove" {
				return resp, err
			}
			if attempts++; attempts == 1 {
				return nil, errLost
			}
			return second(resp)
		})
		wantUnresolved(t, name, c.Remove(soon(t, 30*time.Second), "k", client.Removal{}))
		f.answering(nil)
		wantKind(t, name+", looking", c.Remove(t.Context(), "k", client.Removal{}), errs.ObjectNotFound)
	}
}

// An answer that lacks something counts as lost.
func TestAnswersThatAreNotWhole(t *testing.T) {
	cl, f, c := behindAFront(t)
	cut := map[string]bool{}
	f.answering(func(method string, _, resp proto.Message, err error) (proto.Message, error) {
		if err != nil || cut[method] {
			return resp, err
		}
		cut[method] = true
		switch r := resp.(type) {
		case *pb.PutStartResponse:
			r.Object = nil
		case *pb.BatchPutEndResponse:
			r.Succeeded = 0
		case *pb.BatchPutStartResponse:
			r.Objects = nil
		case *pb.BatchGetReplicaListResponse:
			r.Objects = r.Objects[:1]
		case *pb.GetReplicaListResponse:
			r.Object.ObjectId = 0
		}
		return resp, nil
	})
	r, err := c.PutStart(t.Context(), client.PutItem{Key: "k", Size: 1}, client.PutConfig{})
	if err != nil || r.ID == 0 {
		t.Fatalf("PutStart: got %+v, %v; want an id and no error", r, err)
	}
	failed, err := c.BatchPutEnd(t.Context(), []client.PutRef{r.Ref()}, client.SelectAll)
	wantKinds(t, "end", failed, err, errs.OK)
	if o, err := c.GetReplicaList(t.Context(), "k"); err != nil || o.ID != r.ID {
		t.Errorf("GetReplicaList: got %+v, %v; want the object that was put", o, err)
	}
	if found, err := c.BatchGetReplicaList(t.Context(), []string{"k", "k"}); err != nil || len(found) != 2 || found[1].ID != r.ID {
		t.Errorf("BatchGetReplicaList: got %+v, %v; want the object that was put, twice", found, err)
	}
	reserved, err := c.BatchPutStart(t.Context(), []client.PutItem{{Key: "l", Size: 1}}, client.PutConfig{})
	if err != nil || reserved[0].Err != nil || reserved[0].ID == 0 {
		t.Errorf("BatchPutStart: %+v, %v; want a reservation", reserved, err)
	}
	if n := cl.objects(); n != 2 {
		t.Errorf("%d objects, want 2", n)
	}
	for method := range cut {
		if n := len(f.asked(method)); n != 2 {
			t.Errorf("%s was asked for %d times, want 2: its first answer was not whole", method, n)
		}
	}
}

// failing makes items of BatchPutStart's answers fail in a way.
func failing(kind pb.Kind, items ...uint32) func(string, proto.Message, proto.Message, error) (proto.Message, error) {
	return func(_ string, _, resp proto.Message, err error) (proto.Message, error) {
		if r, ok := resp.(*pb.BatchPutStartResponse); ok && err == nil {
			for _, i := range items {
				if int(i) < len(r.Objects) {
					r.Objects[i] = &pb.ReplicaList{}
					r.Errors = append(r.Errors, &pb.ItemError{Index: i, Kind: kind})
				}
			}
		}
		return resp, err
	}
}

// Only the items of a batch without an outcome are repeated, each with its own request id.
func TestPartsOfABatch(t *testing.T) {
	cl, f, c := behindAFront(t)
	var items []client.PutItem
	for i := range 7 {
		items = append(items, client.PutItem{Key: fmt.Sprint("k", i), Size: 1})
	}
	once := failing(pb.Kind_KIND_UNAVAILABLE_IN_CURRENT_STATUS, 1, 2, 5)
	f.answering(func(method string, req, resp proto.Message, err error) (proto.Message, error) {
		if method == "BatchPutStart" {
			defer f.answering(nil)
		}
		return once(method, req, resp, err)
	})
	reserved, err := c.BatchPutStart(t.Context(), items, client.PutConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range reserved {
		if r.Err != nil || r.ID == 0 || r.Key != items[i].Key || len(r.Replicas) != 1 {
			t.Errorf("item %d: %+v; want a reservation of %q with one replica", i, r, items[i].Key)
		}
	}
	asked := f.asked("BatchPutStart")
	base := requestID(asked[0])
	var got []string
	for _, m := range asked[1:] {
		got = append(got, fmt.Sprintf("+%d: %d", requestID(m)-base, len(m.(*pb.BatchPutStartRequest).Items)))
	}
	if strings.Join(got, ", ") != "+1: 2, +5: 1" {
		t.Errorf("the repeats asked for %v, want \"+1: 2, +5: 1\"", got)
	}
	if n := cl.objects(); n != 7 {
		t.Errorf("%d objects, want 7", n)
	}
}

// When the deadline ends a batch, each item without an outcome says whether it may have been
// applied.
func TestBatchThatIsCutShort(t *testing.T) {
	t.Parallel()
	for kind, want := range map[pb.Kind]errs.Kind{
		pb.Kind_KIND_UNAVAILABLE_IN_CURRENT_STATUS: errs.Unavailable,
		pb.Kind_KIND_RPC_TIMEOUT:                   errs.Unresolved,
	} {
		f := newFront(t, newCluster(t, 1).lead(0).address)
		ctx, cutShort := context.WithCancel(t.Context())
		answers := 0
		// The time is up between two requests: one under way would leave the item unresolved.
		after := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := call(ctx, method, req, reply, cc, opts...)
			if method == pb.ObjectService_BatchPutStart_FullMethodName {
				if answers++; answers == 5 {
					cutShort()
				}
			}
			return err
		}
		c := connect(t, client.Config{Addresses: []string{f.address}, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(after)}})
		mountMemory(t, c)
		never := failing(kind, 0) // of what is asked for again it is the first item, too
		f.answering(func(method string, req, resp proto.Message, err error) (proto.Message, error) {
			return never(method, req, resp, err)
		})
		reserved, err := c.BatchPutStart(ctx, []client.PutItem{{Key: "a", Size: 1}, {Key: "b", Size: 1}}, client.PutConfig{})
		cutShort()
		if err != nil {
			t.Fatal(err)
		}
		if answers != 5 {
			t.Errorf("%d answers, want 5: the item is asked for again until the time is up", answers)
		}
		wantKind(t, "the item that is cut short", reserved[0].Err, want)
		wantKind(t, "the other one", reserved[1].Err, errs.OK)
		if reserved[1].ID == 0 || reserved[0].ID != 0 {
			t.Errorf("reserved %+v; want the second only", reserved)
		}
	}
}

// losingAfter is losing that calls f once the node has done it, each time.
func (f *front) losingAfter(method string, n int, done func()) {
	left := n
	f.answering(func(m string, _, resp proto.Message, err error) (proto.Message, error) {
		if m != method {
			return resp, err
		}
		done()
		if left == 0 {
			return resp, err
		}
		left--
		return nil, errLost
	})
}

// An id that is drawn for each mount makes it one of its own.
func TestMountUnderAnotherID(t *testing.T) {
	cl, c := serving(t)
	s := memory(1 << 40)
	if err := c.MountSegment(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "the same once more", c.MountSegment(t.Context(), s), errs.OK)
	s.Size *= 2
	wantKind(t, "with another size", c.MountSegment(t.Context(), s), errs.SegmentExists)
	s.ID = uuid.New()
	wantKind(t, "with another id", c.MountSegment(t.Context(), s), errs.OK)
	if n := cl.store.Stats().Segments; n != 2 {
		t.Errorf("%d segments, want 2", n)
	}
}

// A call that a node refuses, and whose last attempt is not answered within its time, ends with
// what the node said.
func TestTheLastAnswerIsSaid(t *testing.T) {
	_, f, c := behindAFront(t)
	hang, asked := make(chan struct{}), new(atomic.Int32)
	defer close(hang)
	f.answering(func(method string, _, _ proto.Message, _ error) (proto.Message, error) {
		if method != "MountSegment" || asked.Add(1) > 1 {
			<-hang
		}
		return nil, rpcerr.Status(errs.New(errs.Unavailable, "", "no room for names"), method, rpcerr.Source{ClusterID: clusterID, NodeID: "node-0", Term: 1}).Err()
	})
	err := c.MountSegment(soon(t, 3*time.Second), memory(1<<33))
	if asked.Load() != 2 || err == nil || !strings.Contains(err.Error(), "no room for names") {
		t.Errorf("after %d attempts: got %v, want what the first of 2 was told", asked.Load(), err)
	}
}
