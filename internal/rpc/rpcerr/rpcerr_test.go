package rpcerr_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// kinds lists every kind of error, by the contract's list.
func kinds(t *testing.T) []errs.Kind {
	t.Helper()
	var all []errs.Kind
	for name := range pb.Kind_value {
		if name == "KIND_UNSPECIFIED" {
			continue
		}
		found := false
		for k := errs.Kind(1); k < 255 && !found; k++ {
			if found = "KIND_"+k.String() == name; found {
				all = append(all, k)
			}
		}
		if !found {
			t.Errorf("%s of the contract: got no kind in errs, want one", name)
		}
	}
	slices.Sort(all)
	return all
}

var source = rpcerr.Source{Term: 7, ClusterID: "c", NodeID: "n"}

// overTheWire is what a client gets of a status.
func overTheWire(st *status.Status) error { return status.FromProto(st.Proto()).Err() }

func TestEveryKindGoesThereAndBack(t *testing.T) {
	all := kinds(t)
	if len(all) != len(pb.Kind_value)-1 || len(all) != int(errs.OffloadDisabled) {
		t.Fatalf("%d kinds, the contract has %d, errs %d; want as many", len(all), len(pb.Kind_value)-1, errs.OffloadDisabled)
	}
	for _, kind := range all {
		if got := rpcerr.ToWire(kind).String(); got != "KIND_"+kind.String() {
			t.Errorf("%v is %s on the wire, want KIND_%v", kind, got, kind)
		}
		for name, err := range map[string]error{
			"bare":    kind,
			"full":    errs.New(kind, "PutStart", "do %s", "that"),
			"wrapped": fmt.Errorf("outside: %w", kind),
		} {
			from := source
			if kind == errs.NotLeader {
				from.Leader = "leader:1"
			}
			st := rpcerr.Status(err, "Method", from)
			if st.Code() != kind.Code() {
				t.Errorf("%v %s: code %v, want %v", kind, name, st.Code(), kind.Code())
			}
			if st.Message() == "" {
				t.Errorf("%v %s: got a status without a message, want one", kind, name)
			}
			detail := st.Details()[0].(*pb.ErrorDetail)
			if detail.GetNumber() != kind.Number() {
				t.Errorf("%v %s: number %d, want %d", kind, name, detail.GetNumber(), kind.Number())
			}
			back, gotFrom := rpcerr.Parse(overTheWire(st))
			if back.Kind != kind || gotFrom != from {
				t.Errorf("%v %s: came back as %v of %+v; want %+v unchanged", kind, name, back.Kind, gotFrom, from)
			}
			if want := map[string]string{"bare": "Method", "full": "PutStart", "wrapped": "Method"}[name]; back.Op != want {
				t.Errorf("%v %s: operation %q, want %q", kind, name, back.Op, want)
			}
			if name == "full" && back.Detail != "do that" || name == "bare" && kind != errs.Internal && back.Detail != "" {
				t.Errorf("%v %s: detail %q; want that of the error", kind, name, back.Detail)
			}
		}
	}
}

func TestStatusOfOtherErrors(t *testing.T) {
	secret := errors.New("dial 10.0.0.7: refused")
	for name, tc := range map[string]struct {
		err  error
		kind errs.Kind
		code codes.Code
		text string
	}{
		"unknown":             {secret, errs.Internal, codes.Internal, "a defect of the server; its log says more"},
		"a defect with cause": {errs.Wrap(errs.Internal, "apply", secret), errs.Internal, codes.Internal, "a defect of the server; its log says more"},
		"a cause":             {errs.Wrap(errs.Unavailable, "journal", secret), errs.Unavailable, codes.Unavailable, secret.Error()},
		"detail and cause": {&errs.Error{Kind: errs.Unavailable, Detail: "try again", Err: secret}, errs.Unavailable, codes.Unavailable,
			"try again: " + secret.Error()},
		"a wrapper": {fmt.Errorf("outside: %w", errs.New(errs.InvalidParams, "", "inside")), errs.InvalidParams, codes.InvalidArgument,
			"outside: INVALID_PARAMS: inside"},
		"deadline":          {context.DeadlineExceeded, errs.Unresolved, codes.DeadlineExceeded, context.DeadlineExceeded.Error()},
		"canceled":          {context.Canceled, errs.Unresolved, codes.Canceled, context.Canceled.Error()},
		"canceled unsealed": {&errs.Error{Kind: errs.Unavailable, Err: context.Canceled}, errs.Unavailable, codes.Unavailable, context.Canceled.Error()},
		"no error at all":   {errs.OK, errs.Internal, codes.Internal, "a defect of the server; its log says more"},
		"not UTF-8":         {errs.New(errs.InvalidParams, "", "a \xff"), errs.InvalidParams, codes.InvalidArgument, "a \uFFFD"},
	} {
		st := rpcerr.Status(tc.err, "Get", source)
		got, _ := rpcerr.Parse(overTheWire(st))
		if st.Code() != tc.code || got.Kind != tc.kind || st.Message() != tc.text {
			t.Errorf("%s: %v %v %q, want %v %v %q", name, st.Code(), got.Kind, st.Message(), tc.code, tc.kind, tc.text)
		}
	}
	if got := rpcerr.Status(nil, "Get", source); got != nil {
		t.Errorf("no error: got status %v, want none", got)
	}
	if st := rpcerr.Status(errs.ObjectNotFound, "Get", rpcerr.Source{NodeID: "\xff"}); st.Code() != codes.NotFound {
		t.Errorf("a node id that is not UTF-8: %v; want NotFound", st)
	}
}

func TestParseWithoutDetail(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		kind errs.Kind
	}{
		"connection":        {status.Error(codes.Unavailable, "connection refused"), errs.Unresolved},
		"deadline":          {status.Error(codes.DeadlineExceeded, "too late"), errs.Unresolved},
		"own context":       {context.Canceled, errs.Unresolved},
		"own deadline":      {fmt.Errorf("dial: %w", context.DeadlineExceeded), errs.Unresolved},
		"message too large": {status.Error(codes.ResourceExhausted, "message larger than max"), errs.InvalidParams},
		"no such call":      {status.Error(codes.Unimplemented, "unknown service"), errs.NotSupported},
		"a proxy":           {status.Error(codes.PermissionDenied, "no"), errs.Internal},
		"of ours already":   {errs.New(errs.ObjectExists, "PutStart", ""), errs.ObjectExists},
		"something else":    {errors.New("odd"), errs.Internal},
	} {
		got, from := rpcerr.Parse(tc.err)
		if got.Kind != tc.kind || from != (rpcerr.Source{}) {
			t.Errorf("%s: %v of %+v, want %v", name, got.Kind, from, tc.kind)
		}
		if !errors.Is(got, tc.err) {
			t.Errorf("%s: the cause is lost, want tc.err", name)
		}
	}
	if e, _ := rpcerr.Parse(nil); e != nil {
		t.Errorf("no error is %v, want no error", e)
	}
}

// What gRPC puts around a cause is not for people.
func TestErrorsNestOnce(t *testing.T) {
	const dial = `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`
	for _, tc := range []struct {
		err  error
		want string
	}{
		{status.Error(codes.Unavailable, dial), "grpc: RPC_TIMEOUT: dial tcp 127.0.0.1:1: connect: connection refused"},
		{status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`), "grpc: RPC_TIMEOUT: error reading server preface: EOF"},
		{status.Error(codes.Unimplemented, "unknown service"), "grpc: " + errs.NotSupported.String() + ": unknown service"},
	} {
		if got, _ := rpcerr.Parse(tc.err); got.Error() != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
	if err := errors.New("odd"); rpcerr.Plain(err) != err || rpcerr.Plain(nil) != nil {
		t.Errorf("errors that are not gRPC's: got %v and %v, want %v and nil, unchanged", rpcerr.Plain(err), rpcerr.Plain(nil), err)
	}
}

// Why a node gave no answer is said once, with its address once.
func TestCauses(t *testing.T) {
	refused := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:50051: connect: connection refused"`)
	const slow = "no answer within the time limit"
	parsed, _ := rpcerr.Parse(refused)
	for _, tc := range []struct {
		address string
		err     error
		want    string
	}{
		{"10.0.0.1:50051", refused, "connection refused"},
		{"10.0.0.1:50051", parsed, "connection refused"},
		{"10.0.0.1:50051", rpcerr.Plain(refused), "connection refused"},
		{"b:50051", refused, "dial tcp 10.0.0.1:50051: connect: connection refused"}, // the address of b
		{"b:50051", status.Error(codes.Unavailable, "name resolver error: produced zero addresses"), "the name has no address"},
		{"b:50051", status.Error(codes.DeadlineExceeded, "context deadline exceeded while waiting for connections to become ready"), slow},
		{"b:50051", status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: raw-read tcp 10.0.0.9:35686->10.0.0.1:50051: use of closed network connection"`), slow},
		{"b:50051", status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`), "error reading server preface: EOF"},
		{"b:50051", status.Error(codes.Unavailable, `read tcp 10.0.0.9:35686->10.0.0.1:50051: use of closed network connection`), "the connection was closed"},
		{"b:50051", errors.New("odd"), "odd"},
	} {
		if got := rpcerr.Cause(tc.address, tc.err); got != tc.want {
			t.Errorf("at %s: got %q, want %q", tc.address, got, tc.want)
		}
		if got, want := rpcerr.At(tc.address, tc.err), tc.address+": "+tc.want; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A newer server may send what this program does not know.
func TestKindsOfTheFuture(t *testing.T) {
	if got := rpcerr.FromWire(pb.Kind(4711)); got != errs.Internal {
		t.Errorf("an unknown kind is %v, want Internal", got)
	}
	if got := rpcerr.FromWire(pb.Kind_KIND_UNSPECIFIED); got != errs.Internal {
		t.Errorf("no kind is %v, want Internal", got)
	}
	if got := rpcerr.ToWire(errs.Kind(200)); got != pb.Kind_KIND_INTERNAL_ERROR {
		t.Errorf("a kind out of range is %v on the wire, want pb.Kind_KIND_INTERNAL_ERROR", got)
	}
	for number, want := range map[int32]errs.Kind{-704: errs.ObjectNotFound, -9999: errs.Internal, 0: errs.Internal} {
		st, err := status.New(codes.NotFound, "gone").WithDetails(&pb.ErrorDetail{Kind: 4711, Number: number})
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := rpcerr.Parse(overTheWire(st)); got.Kind != want {
			t.Errorf("an unknown kind with number %d is %v, want %v", number, got.Kind, want)
		}
	}
}

func TestItems(t *testing.T) {
	failed := []error{nil, errs.ObjectNotFound, nil, errs.New(errs.InvalidKey, "Get", "it has %d bytes", 5000), errors.New("secret")}
	items := rpcerr.Items(failed)
	want := []*pb.ItemError{
		{Index: 1, Kind: pb.Kind_KIND_OBJECT_NOT_FOUND},
		{Index: 3, Kind: pb.Kind_KIND_INVALID_KEY, Message: "it has 5000 bytes"},
		{Index: 4, Kind: pb.Kind_KIND_INTERNAL_ERROR, Message: "a defect of the server; its log says more"},
	}
	if len(items) != len(want) {
		t.Fatalf("got items %v, want %d", items, len(want))
	}
	for i, item := range items {
		if item.GetIndex() != want[i].GetIndex() || item.GetKind() != want[i].GetKind() || item.GetMessage() != want[i].GetMessage() {
			t.Errorf("item %d: %v, want %v", i, item, want[i])
		}
	}
	e := rpcerr.Item(items[1], "BatchGet")
	if e.Kind != errs.InvalidKey || !strings.Contains(e.Error(), "BatchGet: INVALID_KEY: it has 5000 bytes") {
		t.Errorf("came back as %v, want InvalidKey and \"BatchGet: INVALID_KEY: it has 5000 bytes\"", e)
	}
	if n := testing.AllocsPerRun(100, func() { rpcerr.Items(make([]error, 0)) }); n != 0 || rpcerr.Items(make([]error, 128)) != nil {
		t.Errorf("success costs %v allocations, want none", n)
	}
}
