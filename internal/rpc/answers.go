package rpc

import (
	"context"
	"runtime"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/share"
)

// largeAnswer is the size from which on an answer is counted until it is sent: gRPC keeps
// what a handler returns for as long as the peer reads nothing. A smaller answer is counted
// with its call (see openBytes).
const largeAnswer = 4 << 10

// An answer is a large one, with its place in the budget.
type answer struct {
	protobuf.Message
	size     int
	giveBack func()
}

// budgeted returns an answer as the codec takes it, or an error if there is no room for it.
// The call has been made by then, so without its answer its outcome is open.
func budgeted(ctx context.Context, budget *share.Budget, resp any) (any, error) {
	m, ok := resp.(protobuf.Message)
	if !ok {
		return resp, nil
	}
	size := protobuf.Size(m)
	if size < largeAnswer {
		return resp, nil
	}
	peer := hostOf(ctx) // the caller is not known here, outside of authorizeUnary; beginBatch asks for the host, too
	if taken, all, own := budget.Take(peer, int64(size)); !taken {
		return nil, errs.New(errs.Unresolved, "", "the call was made; its answer has %d bytes, and %d of answers to you are not read yet, of all %d; read them, or ask for less at once", size, own, all)
	}
	return &answer{m, size, func() { budget.GiveBack(peer, int64(size)) }}, nil
}

// codec encodes answers into memory that is counted until it was sent.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(*answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	b, err := protobuf.MarshalOptions{UseCachedSize: true}.MarshalAppend(make([]byte, 0, a.size), a.Message)
	if err != nil {
		a.giveBack()
		return nil, err
	}
	pool := &counted{sync.OnceFunc(a.giveBack)}
	runtime.AddCleanup(pool, func(giveBack func()) { giveBack() }, pool.giveBack) // gRPC frees no buffers of a connection that ends
	return mem.BufferSlice{mem.NewBuffer(&b, pool)}, nil
}

// counted is the pool of one buffer.
type counted struct{ giveBack func() }

// Get is not called.
func (*counted) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put is called when the buffer was sent, or its stream has ended.
func (c *counted) Put(*[]byte) { c.giveBack() }
