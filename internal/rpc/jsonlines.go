package rpc

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcmd "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
)

// errGone ends a stream whose reader is gone, or reads nothing.
var errGone = errs.New(errs.Unavailable, "", "the answer cannot be written: its reader is gone, or reads nothing")

// streamOverHTTP serves a call that takes one request and answers with a stream.
func (s *Server) streamOverHTTP(service string, call grpc.StreamDesc) http.HandlerFunc {
	info := &grpc.StreamServerInfo{FullMethod: service + call.StreamName, IsServerStream: true}
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead { // its lines would go nowhere, at any pace and without an end
			w.Header().Set("Allow", "GET, POST")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		lines := &lineStream{server: s, ctx: contextOf(r), r: r, control: http.NewResponseController(w), w: w}
		lines.end(s.aroundStream(lines, info, call.Handler))
	}
}

// aroundStream runs a handler within all interceptors of a stream over gRPC.
func (s *Server) aroundStream(stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	for _, outer := range slices.Backward(s.streamed) {
		inner := handler
		handler = func(srv any, stream grpc.ServerStream) error { return outer(srv, stream, info, inner) }
	}
	return handler(s.admin, stream)
}

// A lineStream is a stream over HTTP: one request, and as the answer a message a line, each
// flushed. An error before the first line is the answer as of a call without a stream; after
// it, it is the last line: {"error": ...}, with a google.rpc.Status. An answer without such a
// line that comes to its end is whole.
type lineStream struct {
	server  *Server
	ctx     context.Context //nolint:containedctx // grpc.ServerStream has one
	r       *http.Request
	control *http.ResponseController

	mu    sync.Mutex // guards all below: a handler may outlive its stream (cutStalled)
	w     http.ResponseWriter
	asked bool // the request was read
	begun bool // the first line was written
	over  bool // nothing may be written any more
}

// Context returns the context of the request: it ends when the caller is gone.
func (l *lineStream) Context() context.Context { return l.ctx }

// SetHeader does nothing: no call of AdminService has headers.
func (*lineStream) SetHeader(grpcmd.MD) error { return nil }

func (*lineStream) SendHeader(grpcmd.MD) error { return nil }

func (*lineStream) SetTrailer(grpcmd.MD) {}

// RecvMsg reads the request, and returns io.EOF from then on.
func (l *lineStream) RecvMsg(m any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked || l.over {
		return io.EOF
	}
	l.asked = true
	if err := l.server.readJSON(l.w, l.r, m.(protobuf.Message)); err != nil {
		return err
	}
	_ = l.control.SetWriteDeadline(time.Time{}) // the server's is for answers that are made at once; a writer without deadlines has none
	return nil
}

func (l *lineStream) SendMsg(m any) error {
	line, err := lineOf(m.(protobuf.Message))
	if err != nil {
		return errs.New(errs.NotSupported, "", "a message cannot be written as JSON; ask over gRPC: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return errGone
	}
	if !l.begun {
		begin(l.w, http.StatusOK, "application/x-ndjson")
		l.begun = true
	}
	return l.write(line)
}

// write writes a line within Limits.Send. Between lines there is no limit.
func (l *lineStream) write(line []byte) error {
	_ = l.control.SetWriteDeadline(clock.Deadline(l.server.Limits.Send)) // a writer without deadlines needs none
	_, err := l.w.Write(line)
	if err == nil {
		err = l.control.Flush()
	}
	if err != nil {
		l.over = true
		return errGone
	}
	_ = l.control.SetWriteDeadline(time.Time{})
	return nil
}

// end ends the answer, with the error of the stream if it has one.
func (l *lineStream) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
	case err != nil && !l.begun:
		writeStatus(l.w, err)
	case err != nil:
		st, _ := status.FromError(err)
		if line, err := lineOf(st.Proto()); err == nil {
			_ = l.write(slices.Concat([]byte(`{"error":`), bytes.TrimSuffix(line, []byte("\n")), []byte("}\n")))
		}
	case !l.begun:
		begin(l.w, http.StatusOK, "application/x-ndjson")
	}
	l.over = true
}
