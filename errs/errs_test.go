package errs

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
)

func TestEveryKindHasItsRow(t *testing.T) {
	numbers := map[int32]Kind{}
	for k := OK; k < kindCount; k++ {
		r := table[k]
		if r.name == "" {
			t.Errorf("kind %d has no row in the table", k)
		}
		if other, ok := numbers[r.number]; ok {
			t.Errorf("%v and %v share the number %d", k, other, r.number)
		}
		numbers[r.number] = k
		if (r.code == codes.OK) != (k == OK) {
			t.Errorf("%v maps to the gRPC code %v", k, r.code)
		}
		if got, ok := FromNumber(k.Number()); !ok || got != k {
			t.Errorf("FromNumber(%d) = %v, want %v", k.Number(), got, k)
		}
	}
	if _, ok := FromNumber(-9999); ok {
		t.Error("FromNumber accepts an unknown number")
	}
	if Kind(200).Number() != Internal.Number() {
		t.Error("a kind out of range must read as an internal error")
	}
}

func TestKindOf(t *testing.T) {
	cause := errors.New("disk on fire")
	for _, tc := range []struct {
		err  error
		want Kind
	}{
		{nil, OK},
		{ObjectNotFound, ObjectNotFound},
		{fmt.Errorf("get: %w", ObjectNotFound), ObjectNotFound},
		{New(InvalidParams, "PutStart", "size %d", 0), InvalidParams},
		{fmt.Errorf("rpc: %w", Wrap(Unavailable, "journal", cause)), Unavailable},
		{Wrap(Internal, "outer", Wrap(NotLeader, "inner", cause)), Internal},
		{cause, Internal},
		{context.DeadlineExceeded, Unresolved},
	} {
		if got := KindOf(tc.err); got != tc.want {
			t.Errorf("KindOf(%v) = %v, want %v", tc.err, got, tc.want)
		}
	}
	err := Wrap(Unavailable, "journal", cause)
	if !errors.Is(err, cause) || !errors.Is(err, Unavailable) {
		t.Errorf("%v does not unwrap to both its kind and its cause", err)
	}
	if Wrap(Internal, "x", nil) != nil {
		t.Error("Wrap(nil) is not nil")
	}
}

func TestErrorText(t *testing.T) {
	err := &Error{Kind: InvalidParams, Op: "PutStart", Detail: "replica_num is 0; ask for at least 1", Err: errors.New("cause")}
	const want = "PutStart: INVALID_PARAMS: replica_num is 0; ask for at least 1: cause"
	if got := err.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestKindAsErrorDoesNotAllocate(t *testing.T) {
	var sink error
	if n := testing.AllocsPerRun(100, func() { sink = ObjectNotFound }); n != 0 {
		t.Errorf("returning a Kind allocates %v times", n)
	}
	_ = sink
}
