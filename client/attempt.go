package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// A reply is the answer to a call.
type reply interface {
	proto.Message
	GetHeader() *pb.ResponseHeader
}

// A failure is the result of an attempt without an answer to pass on.
type failure struct {
	err     *errs.Error
	at      string        // the address that was called
	from    rpcerr.Source // without a NodeID no node has answered
	repeat  bool          // another attempt may bring an answer; otherwise err is the end
	settles bool          // err is the cluster's answer, and covers earlier attempts too
	open    bool          // this attempt may have been applied
	cut     bool          // the time was up before an answer came
	drop    bool          // the leader must be found again first
}

// A view is what this client has learned about the cluster.
type view struct {
	clusterID    string
	messageBytes int
	terms        terms
}

// attempt makes a call once, on a connection. It returns nil if resp is an
// answer to pass on.
func (v *view) attempt(ctx context.Context, conn Conn, op operation, req proto.Message, resp reply) *failure {
	begun := v.terms.clock()
	if !op.mutates() {
		if err := conn.Invoke(ctx, op.method, req, resp, grpc.StaticMethod()); err != nil {
			return v.judge(ctx, op, req, begun, true, err)
		}
		return v.admit(resp.GetHeader(), begun)
	}
	var to peer.Peer // is set once there is a stream: before that nothing was sent
	if err := conn.Invoke(ctx, op.method, req, resp, grpc.StaticMethod(), grpc.Peer(&to)); err != nil {
		return v.judge(ctx, op, req, begun, to.Addr != nil, err)
	}
	return v.admit(resp.GetHeader(), begun)
}

// admit decides whether an answer to an attempt that was begun at a time may be passed on.
func (v *view) admit(h *pb.ResponseHeader, begun time.Duration) *failure {
	from := rpcerr.Source{Term: h.GetTerm(), ClusterID: h.GetClusterId(), NodeID: h.GetNodeId()}
	if from.ClusterID != v.clusterID {
		return v.wrongCluster(from)
	}
	if !v.terms.served(from.Term, begun) {
		return v.deposed(from)
	}
	return nil
}

// judge decides what an error means for the call. sent says whether any of the
// request may have left this machine.
func (v *view) judge(ctx context.Context, op operation, req proto.Message, begun time.Duration, sent bool, err error) *failure {
	e, from := rpcerr.Parse(err)
	switch {
	case from.NodeID != "":
		return v.judgeAnswer(e, from, begun)
	case ctx.Err() != nil: // the node may be well
		return &failure{err: e, repeat: true, open: sent, cut: true}
	case e.Kind == errs.Unresolved:
		code := status.Code(err)
		return &failure{err: e, repeat: true, open: sent, drop: code != codes.DeadlineExceeded, cut: code == codes.DeadlineExceeded || code == codes.Canceled}
	case status.Code(err) == codes.ResourceExhausted:
		return v.tooLarge(op, req, e)
	case status.Code(err) == codes.DataLoss:
		if op.mutates() { // final: the node would answer so again
			e.Kind, e.Detail = errs.Unresolved, "the call may have been applied; look"
		}
	case e.Kind == errs.Internal:
		if _, err := proto.Marshal(req); err != nil {
			e = &errs.Error{Kind: errs.InvalidParams, Detail: "the request cannot be sent; keys and names are UTF-8", Err: err}
		}
	}
	return &failure{err: e}
}

// judgeAnswer is judge for an error with which a node has answered.
func (v *view) judgeAnswer(e *errs.Error, from rpcerr.Source, begun time.Duration) *failure {
	if from.ClusterID != v.clusterID {
		return v.wrongCluster(from)
	}
	// A lower term shows that a primary was replaced; it says nothing of other nodes.
	if e.Kind == errs.NotLeader {
		v.terms.announce(from.Term)
	} else if !v.terms.served(from.Term, begun) {
		return v.deposed(from)
	}
	f := judgeKind(e)
	f.from = from
	return f
}

// judgeKind is the table in the package comment.
func judgeKind(e *errs.Error) *failure {
	switch e.Kind {
	case errs.NotLeader:
		return &failure{err: e, repeat: true, drop: true}
	case errs.Unavailable:
		return &failure{err: e, repeat: true}
	case errs.Unresolved:
		return &failure{err: e, repeat: true, open: true}
	default:
		return &failure{err: e, settles: true}
	}
}

// wrongCluster is final: the configuration must be corrected.
func (v *view) wrongCluster(from rpcerr.Source) *failure {
	return &failure{from: from, drop: true, err: &errs.Error{Kind: errs.InvalidParams, Detail: fmt.Sprintf(
		"node %q belongs to cluster %q, and this client to %q: correct its addresses or its cluster id", from.NodeID, from.ClusterID, v.clusterID)}}
}

// deposed drops what a replaced primary has answered: it may not hold any more.
func (v *view) deposed(from rpcerr.Source) *failure {
	return &failure{from: from, repeat: true, open: true, drop: true, err: &errs.Error{Kind: errs.NotLeader, Detail: fmt.Sprintf(
		"node %q answered in term %d although term %d has begun, so the answer was dropped; if nobody serves that, those of term %[2]d are taken after %[4]v",
		from.NodeID, from.Term, v.terms.highest.Load(), lapseAfter)}}
}

// tooLarge distinguishes a request that was refused from an answer that was lost.
func (v *view) tooLarge(op operation, req proto.Message, e *errs.Error) *failure {
	size := proto.Size(req)
	switch {
	case size > v.messageBytes:
		e.Detail = fmt.Sprintf("the request has %d bytes, at most %d are possible; split it", size, v.messageBytes)
	case !op.mutates():
		e.Detail = "the answer is too large; ask for less at once"
	default:
		e.Kind = errs.Unresolved
		e.Detail = "a message was too large; if it was the answer, the call was applied: look, and ask for less at once"
	}
	return &failure{err: e}
}

// notWhole is the failure of an attempt whose answer is incomplete: the answer counts as
// lost.
func notWhole(op operation, from *pb.ResponseHeader) *failure {
	return &failure{repeat: true, open: true, err: &errs.Error{
		Kind: errs.Unresolved, Op: op.name, Detail: fmt.Sprintf("the answer of node %q is not whole", from.GetNodeId()),
	}}
}
