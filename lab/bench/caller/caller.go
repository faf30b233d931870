// Package caller calls a master as the benchmarks do, over gRPC or Mooncake's protocol:
// with bare clients that repeat nothing and look for no other primary. It must never be
// used against a cluster that is in use.
package caller

import (
	"context"
	"errors"
	"fmt"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/segment"
)

// A Protocol is one in which a master is called.
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

// Key returns a key of a prefix and the 16 digits of a number: with one of 24 bytes it has
// 40.
func Key(prefix string, n uint64) string {
	const digits = "0123456789abcdef"
	b := append(make([]byte, 0, 64), prefix...) // on the stack
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>shift&15])
	}
	return string(b)
}

// A Caller makes calls on a connection of its own, one at a time. One key makes
// the call for one, more make a batch. Keys stay the caller's user's. An answer
// other than success for every key is an error.
//
// Close may be called while a call is under way, which then fails.
type Caller interface {
	Exist(keys []string) error
	Get(keys []string) error
	PutStart(keys []string) error
	PutEnd(keys []string) error
	Remove(keys []string) error
	// Prefer has further puts try segments of some names first.
	Prefer(segments []string)
	Close() error
}

// Dial connects to a master. The calls themselves take no context, which would
// cost the client time: Close ends them.
func Dial(ctx context.Context, p Protocol, address string) (Caller, error) {
	dial := newGRPC
	if p == Mooncake {
		dial = newMooncake
	}
	return dial(ctx, address)
}

var errAbsent = errors.New("a key that was put is not there")

// present is nil if all keys exist.
func present(exists bool) error {
	if exists {
		return nil
	}
	return errAbsent
}

// answered checks that there is an answer for each key.
func answered(have, want int) error {
	if have == want {
		return nil
	}
	return fmt.Errorf("%d answers to %d keys", have, want)
}

// numbered makes an error of a number in an answer of Mooncake's protocol.
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
