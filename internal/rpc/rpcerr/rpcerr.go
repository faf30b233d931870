// Package rpcerr carries failures over gRPC and back: from errs to the statuses
// and item errors of the public contract, and from these to errs. Server and
// client share it, so that there is one translation.
//
// It must never know a server, a client or the metadata, and it decides
// nothing: not what to retry, nor where.
package rpcerr

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// A Source is the node that an error comes from.
type Source struct {
	Term      uint64 // the highest that the node knows, 0 for none
	ClusterID string
	NodeID    string
	// Leader is the host:port of the gRPC service of the primary, as the node
	// knows it; with errs.NotLeader only, and empty if it knows none.
	Leader string
}

// defect is all that a caller learns of an internal error.
const defect = "a defect of the server; its log says more"

// Status returns the status of a call that failed: the code of the error's kind, a
// message for people, and an ErrorDetail. The detail names operation if the error
// names none. Status returns nil for nil.
//
// Of an error of kind Internal only the outermost detail is sent, never the cause. An
// error without a kind counts as Internal.
func Status(err error, operation string, from Source) *status.Status {
	if err == nil {
		return nil
	}
	kind := kindOf(err)
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Op != "" {
		operation = e.Op
	}
	st := status.New(code(kind, err), message(kind, err))
	detailed, failed := st.WithDetails(&pb.ErrorDetail{
		Header:        &pb.ResponseHeader{Term: from.Term, ClusterId: from.ClusterID, NodeId: from.NodeID},
		Kind:          ToWire(kind),
		Number:        kind.Number(),
		Operation:     operation,
		LeaderAddress: from.Leader,
	})
	if failed != nil { // an id in the detail is not UTF-8
		return st
	}
	return detailed
}

// Items lists the failures of a batch by index. It returns nil if there are
// none.
func Items(failed []error) []*pb.ItemError {
	var items []*pb.ItemError
	for i, err := range failed {
		if err == nil {
			continue
		}
		kind := kindOf(err)
		item := &pb.ItemError{Index: uint32(i), Kind: ToWire(kind)}
		if text := message(kind, err); text != kind.String() {
			item.Message = text
		}
		items = append(items, item)
	}
	return items
}

// Item returns the error that an item error stands for.
func Item(item *pb.ItemError, operation string) *errs.Error {
	return &errs.Error{Kind: FromWire(item.GetKind()), Op: operation, Detail: item.GetMessage()}
}

// Parse returns the error with which a gRPC call ended, and the node that sent it. A
// Source without a NodeID means that no node of ours answered. Parse returns nil for nil.
//
// Without an ErrorDetail the kind follows from the code: Unresolved if the call may
// have been applied; InvalidParams if a message was too large, in either direction, so
// that the call may have been applied as well; NotSupported if there is no such call;
// else Internal.
func Parse(err error) (*errs.Error, Source) {
	if err == nil {
		return nil, Source{}
	}
	st, ok := status.FromError(err)
	if !ok {
		return &errs.Error{Kind: kindOf(err), Err: err}, Source{}
	}
	for _, any := range st.Details() {
		detail, ok := any.(*pb.ErrorDetail)
		if !ok {
			continue
		}
		e := &errs.Error{Kind: detailKind(detail), Op: detail.GetOperation()}
		if st.Message() != e.Kind.String() {
			e.Detail = st.Message()
		}
		return e, Source{
			Term:      detail.GetHeader().GetTerm(),
			ClusterID: detail.GetHeader().GetClusterId(),
			NodeID:    detail.GetHeader().GetNodeId(),
			Leader:    detail.GetLeaderAddress(),
		}
	}
	return &errs.Error{Kind: bareKind(st.Code()), Op: unanswered, Err: Plain(err)}, Source{}
}

// unanswered is the operation of errors for calls that no node answered.
const unanswered = "grpc"

// Unanswered reports whether an error is one of Parse for a call that no node answered.
func Unanswered(err error) bool {
	e, ok := errors.AsType[*errs.Error](err)
	return ok && e.Op == unanswered && e.Err != nil
}

// Plain returns an error with the message of a gRPC status only, without the text that gRPC
// adds to it and to the cause of a failed connection. It returns other errors unchanged.
func Plain(err error) error {
	if st, ok := status.FromError(err); ok && err != nil {
		return plain{err, st.Message()}
	}
	return err
}

type plain struct {
	error
	message string
}

func (p plain) Unwrap() error { return p.error }

func (p plain) Error() string {
	for _, around := range []string{"Error while dialing: ", "connection error: desc = \""} {
		if _, cause, ok := strings.Cut(p.message, around); ok {
			return inWords(strings.TrimSuffix(cause, `"`))
		}
	}
	return inWords(p.message)
}

// inWords replaces messages of gRPC that only its developers understand.
func inWords(text string) string {
	says := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case says("produced zero addresses"):
		return "the name has no address"
	case text == context.DeadlineExceeded.Error(), says("waiting for connections to become ready"), says("server preface") && says("use of closed network connection"):
		return NoAnswer
	case says("use of closed network connection"):
		return "the connection was closed"
	}
	return text
}

// NoAnswer is the Cause if a node, which may be healthy, did not answer in time.
const NoAnswer = "no answer within the time limit"

// Cause returns, for people, why the node at an address did not answer, without the address
// and without the text that gRPC adds.
func Cause(address string, err error) string {
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Op == unanswered && e.Err != nil {
		err = e.Err
	}
	cause := strings.TrimPrefix(Plain(err).Error(), "dial tcp "+address+": ")
	return strings.TrimPrefix(cause, "connect: ")
}

// At returns the address followed by the Cause.
func At(address string, err error) string { return address + ": " + Cause(address, err) }

// kindOf is errs.KindOf, except that an error of kind OK counts as Internal.
func kindOf(err error) errs.Kind {
	if kind := errs.KindOf(err); kind != errs.OK {
		return kind
	}
	return errs.Internal
}

// wire has the contract's kind for each kind. The names are the same on both
// sides; the numbers are each side's own.
var wire = func() (table [256]pb.Kind) {
	for name, number := range pb.Kind_value {
		if kind, ok := errs.FromName(strings.TrimPrefix(name, "KIND_")); ok {
			table[kind] = pb.Kind(number)
		}
	}
	return table
}()

// ToWire returns the contract's kind for a kind: KIND_INTERNAL_ERROR for OK and for an
// unknown one.
func ToWire(kind errs.Kind) pb.Kind {
	return cmp.Or(wire[kind], pb.Kind_KIND_INTERNAL_ERROR)
}

// FromWire returns the kind for the contract's kind: Internal for an unknown one.
func FromWire(kind pb.Kind) errs.Kind {
	if k := slices.Index(wire[:], kind); k >= 0 && kind != pb.Kind_KIND_UNSPECIFIED {
		return errs.Kind(k)
	}
	return errs.Internal
}

// code returns the code of the kind, or Canceled for a call that its caller cancelled.
func code(kind errs.Kind, err error) codes.Code {
	if kind == errs.Unresolved && errors.Is(err, context.Canceled) {
		return codes.Canceled
	}
	return kind.Code()
}

// message returns the text of an error for people. Kind and operation are in the ErrorDetail,
// so message leaves them out unless there is nothing else.
func message(kind errs.Kind, err error) string {
	e, ok := errors.AsType[*errs.Error](err)
	var text string
	switch {
	case kind == errs.Internal && ok && e.Detail != "":
		text = e.Detail
	case kind == errs.Internal:
		text = defect
	case error(e) != err: //nolint:errorlint // a wrapper's words would be lost
		text = err.Error()
	case e.Err == nil:
		text = e.Detail
	case e.Detail == "":
		text = e.Err.Error()
	default:
		text = e.Detail + ": " + e.Err.Error()
	}
	if text == "" {
		return kind.String()
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// detailKind returns the kind that a detail names. For an unknown kind of a newer server it
// goes by the C++ number.
func detailKind(detail *pb.ErrorDetail) errs.Kind {
	if kind := FromWire(detail.GetKind()); kind != errs.Internal {
		return kind
	}
	kind, _ := errs.FromNumber(detail.GetNumber())
	if kind == errs.OK {
		return errs.Internal
	}
	return kind
}

// bareKind returns the kind of a status that comes from gRPC itself, or from a proxy between
// client and server.
func bareKind(code codes.Code) errs.Kind {
	switch code {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted:
		return errs.Unresolved
	case codes.ResourceExhausted, codes.InvalidArgument, codes.OutOfRange:
		return errs.InvalidParams
	case codes.Unimplemented:
		return errs.NotSupported
	default:
		return errs.Internal
	}
}
