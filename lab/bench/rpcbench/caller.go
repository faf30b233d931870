package rpcbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/understudy-store/understudy/errs"
)

// A caller makes calls on a connection of its own, one at a time. One key makes
// the call for one, more make a batch. Keys stay the caller's user's. An answer
// other than success for every key is an error.
//
// Close may be called while a call is under way, which then fails.
type caller interface {
	exist(keys []string) error
	get(keys []string) error
	putStart(keys []string) error
	putEnd(keys []string) error
	remove(keys []string) error
	Close() error
}

// dial connects to a master. The calls themselves take no context, which would
// cost the client time: Close ends them.
func dial(ctx context.Context, p Protocol, address string) (caller, error) {
	if p == Mooncake {
		return newMooncake(ctx, address)
	}
	return newGRPC(ctx, address)
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
