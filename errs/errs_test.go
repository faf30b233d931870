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
			t.Errorf("kind %d has no row in the table: got no name, want one for every kind", k)
		}
		if other, ok := numbers[r.number]; ok {
			t.Errorf("got the number %d for %v and for %v, want one number for each kind", r.number, k, other)
		}
		numbers[r.number] = k
		if (r.code == codes.OK) != (k == OK) {
			t.Errorf("%v: got the gRPC code %v, want code OK for the kind OK only", k, r.code)
		}
		if got, ok := FromNumber(k.Number()); !ok || got != k {
			t.Errorf("FromNumber(%d) = %v, want %v", k.Number(), got, k)
		}
	}
	if _, ok := FromNumber(-9999); ok {
		t.Error("FromNumber(-9999): got a kind, want none for an unknown number")
	}
	if Kind(200).Number() != Internal.Number() {
		t.Errorf("a kind out of range: got the number %d, want %d of an internal error", Kind(200).Number(), Internal.Number())
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
		t.Errorf("got %v, want an error that unwraps to its kind Unavailable and to its cause", err)
	}
	if Wrap(Internal, "x", nil) != nil {
		t.Error("wrapping a nil error: got an error, want nil")
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
		t.Errorf("returning a Kind as an error: got %v allocations, want none", n)
	}
	_ = sink
}
