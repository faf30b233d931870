// Package faultinject makes the i-th operation of gRPC connections fail, for
// i = 1, 2, ... until a run passes in which nothing failed:
//
//	for run := range faultinject.Runs(faultinject.QuestionLost) {
//		client := dial(run.DialOptions()...)
//		run.Arm()
//		// do what is to be tested; it may fail once
//	}
//
// Questions are calls, openings of streams and messages sent on them; answers
// are what comes back. It must never be imported by anything but tests.
package faultinject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Kind says which operations fail.
type Kind uint8

// The kinds.
const (
	QuestionLost Kind = iota // fails before it is sent: the server never sees it
	AnswerLost               // the server has done it, its answer does not arrive
	// NoSpace answers with rpctypes.ErrNoSpace a transaction, a put or a grant of etcd
	// which the server has done. So does etcd with the write that exceeds its quota, if
	// it finds that out only when it applies the write.
	NoSpace
)

func (k Kind) String() string {
	switch k {
	case QuestionLost:
		return "question lost"
	case AnswerLost:
		return "answer lost"
	case NoSpace:
		return "answered with no space"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// A Run is one run of what is tested, in which one operation fails, or Row of them one
// after the other. It counts from Arm on. It is safe for concurrent use.
type Run struct {
	Kind Kind
	// I is the number of the operation that fails, from 1.
	I int
	// Row is how many operations in a row fail, beginning with number I. Set before
	// the run is armed; 1 by default.
	Row int
	// OnFault, if not nil, is called when an operation has failed, before the code
	// under test learns of it. Set before the run is armed.
	OnFault func()
	// Skip, if not nil, reports whether an operation of a method is not counted. n is the
	// number of a message received on its stream, from 1, and 0 for any other operation.
	// Set before the run is armed.
	Skip func(method string, n int) bool

	mu    sync.Mutex
	armed bool
	seen  int
	fault string
}

// Runs yields runs that fail the 1st, 2nd, ... operation. It ends behind the
// first run in which nothing failed, whatever became of that run.
func Runs(kind Kind) iter.Seq[*Run] {
	return func(yield func(*Run) bool) {
		for i := 1; ; i++ {
			r := &Run{Kind: kind, I: i, Row: 1}
			if !yield(r) || r.Fault() == "" {
				return
			}
		}
	}
}

// Arm begins the counting.
func (r *Run) Arm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = true
}

// Disarm ends the counting: nothing fails any more.
func (r *Run) Disarm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = false
}

// Fault names the operation that has failed first, empty while none has.
func (r *Run) Fault() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}

func (r *Run) String() string {
	if fault := r.Fault(); fault != "" {
		return fmt.Sprintf("%v, %d from operation %d on (%s)", r.Kind, r.Row, r.I, fault)
	}
	return fmt.Sprintf("%v, no operation %d", r.Kind, r.I)
}

// count counts an operation and reports whether it is one that fails.
func (r *Run) count(operation string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.armed {
		return false
	}
	if r.seen++; r.seen < r.I || r.seen >= r.I+r.Row {
		return false
	}
	r.fault = cmp.Or(r.fault, operation)
	return true
}

// fails returns the error with which an operation fails, nil if it does not.
func (r *Run) fails(kind Kind, method, what string, n int) error {
	if kind != r.Kind || r.Skip != nil && r.Skip(method, n) {
		return nil
	}
	fault := what + " of " + method
	if !r.count(fault) {
		return nil
	}
	if r.OnFault != nil {
		r.OnFault()
	}
	if kind == NoSpace {
		return rpctypes.ErrGRPCNoSpace
	}
	// Neither UNAVAILABLE nor DEADLINE_EXCEEDED: clientv3 repeats such calls by
	// itself where it may, and hides the failure from the code under test.
	return status.Errorf(codes.Aborted, "test: %v: %s", r.Kind, fault)
}

// DialOptions are for the connections whose operations are counted.
func (r *Run) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.unary), grpc.WithChainStreamInterceptor(r.stream)}
}

func (r *Run) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := r.fails(QuestionLost, method, "the call", 0); err != nil {
		return err
	}
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}
	if err := r.fails(AnswerLost, method, "the call", 0); err != nil || !needsSpace(req) {
		return err
	}
	return r.fails(NoSpace, method, "the call", 0)
}

// needsSpace reports whether a full etcd refuses a request.
func needsSpace(req any) bool {
	switch r := req.(type) {
	case *pb.PutRequest, *pb.LeaseGrantRequest:
		return true
	case *pb.TxnRequest:
		for _, op := range slices.Concat(r.Success, r.Failure) {
			if op.GetRequestPut() != nil {
				return true
			}
		}
	}
	return false
}

func (r *Run) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := r.fails(QuestionLost, method, "the opening", 0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	context.AfterFunc(s.Context(), cancel) // the stream's own end
	return &stream{ClientStream: s, run: r, method: method, cancel: cancel}, nil
}

// A stream breaks at the first operation that fails: all later ones fail too.
type stream struct {
	grpc.ClientStream
	run    *Run
	method string
	cancel context.CancelFunc
	lost   atomic.Pointer[error]
	n      int // messages received; only RecvMsg touches it, which is never called concurrently
}

func (s *stream) lose(err error) error {
	s.lost.CompareAndSwap(nil, &err)
	s.cancel()
	return err
}

// SendMsg sends a message unless it is the one to be lost.
func (s *stream) SendMsg(m any) error {
	if err := s.run.fails(QuestionLost, s.method, "a message sent", 0); err != nil {
		return s.lose(err)
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg receives a message, or the orderly end, unless it is to be lost.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if lost := s.lost.Load(); lost != nil {
		return *lost
	}
	if err != nil && !errors.Is(err, io.EOF) {
		s.cancel()
		return err
	}
	s.n++
	if lost := s.run.fails(AnswerLost, s.method, fmt.Sprintf("message %d received", s.n), s.n); lost != nil {
		return s.lose(lost)
	}
	if err != nil {
		s.cancel()
	}
	return err
}
