// Package caller has the bare clients of the benchmarks, over gRPC or Mooncake's
// protocol: they repeat nothing and look for no other primary. It must never be used
// against a cluster that is in use.
package caller

import (
	"context"
	"errors"
	"fmt"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/segment"
)

// A Protocol is a protocol over which a master is called.
type Protocol string

// The protocols.
const (
	GRPC     Protocol = "grpc"
	Mooncake Protocol = "mooncake"
)

// ObjectBytes is the size of the objects that are put. Nobody writes or reads them.
const ObjectBytes = 4 << 10

// Owner is the client that puts.
var Owner = segment.ClientID{1}

// Key returns a prefix followed by the 16 hexadecimal digits of a number: with a prefix of 24
// bytes, a key of 40.
func Key(prefix string, n uint64) string {
	const digits = "0123456789abcdef"
	b := append(make([]byte, 0, 64), prefix...) // on the stack
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>shift&15])
	}
	return string(b)
}

// A Caller makes calls on a connection of its own, one at a time. With one key it makes
// the single call, with more keys the batch call. It does not keep the keys. It returns
// an error unless the call succeeds for every key.
//
// Close may be called while a call is under way, which then fails.
type Caller interface {
	Exist(keys []string) error
	Get(keys []string) error
	PutStart(keys []string) error
	PutEnd(keys []string) error
	Remove(keys []string) error
	// Prefer makes later puts try the segments with these names first.
	Prefer(segments []string)
	Close() error
}

// Dial connects to a master. The calls themselves take no context, since that would cost
// the client time. Close ends them.
func Dial(ctx context.Context, p Protocol, address string) (Caller, error) {
	dial := newGRPC
	if p == Mooncake {
		dial = newMooncake
	}
	return dial(ctx, address)
}

var errAbsent = errors.New("a key that was put is not there")

func present(exists bool) error {
	if exists {
		return nil
	}
	return errAbsent
}

func answered(have, want int) error {
	if have == want {
		return nil
	}
	return fmt.Errorf("%d answers to %d keys", have, want)
}

// numbered returns the error for an error number in an answer of Mooncake's protocol.
func numbered(n int32) error {
	if n == 0 {
		return nil
	}
	kind, ok := errs.FromNumber(n)
	if !ok {
		return fmt.Errorf("it says %d, which no error of ours has", n)
	}
	return fmt.Errorf("it says %w (%d)", kind, n)
}
