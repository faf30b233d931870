package mooncakeclient

import (
	"context"
	"fmt"

	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
)

// A Conn is one connection to a master, for one call at a time. It is not safe for
// concurrent use.
type Conn struct {
	*coro.Client
	Generation *mooncake.Generation
	writer     structpack.Writer
	reader     structpack.Reader
}

// Dial connects to a master.
func Dial(ctx context.Context, address string, g *mooncake.Generation) (*Conn, error) {
	c, err := coro.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &Conn{Client: c, Generation: g, reader: structpack.Reader{AnyLength: true}}, nil
}

// An UnreadableError means that an answer is not of the type that its call
// returns. The call was made, and a repeat would get no other answer. The
// connection is as good as before.
type UnreadableError struct {
	Err error
}

func (e *UnreadableError) Error() string { return "the answer cannot be read: " + e.Err.Error() }

func (e *UnreadableError) Unwrap() error { return e.Err }

// Do makes a call. Its result may be an error's number, which is no error here.
// sent reports whether the master may have got the request. After an error the
// connection is of no use, unless that is an *UnreadableError or a
// *coro.TooLargeError.
func Do[R any](ctx context.Context, c *Conn, call mooncake.Call[R], args *mooncake.Args, result *R) (sent bool, err error) {
	if call.Name == "" {
		return false, fmt.Errorf("generation %s does not have this call", c.Generation.Name)
	}
	answer, sent, err := c.Call(ctx, call.ID, func(b []byte) []byte {
		if call.Args == nil {
			return b
		}
		return structpack.Pack(&c.writer, b, call.Args, args)
	})
	if err != nil {
		return sent, fmt.Errorf("%s: %w", call.Name, err)
	}
	if err := structpack.Unpack(&c.reader, answer, call.Result, result); err != nil {
		return true, fmt.Errorf("%s: %w", call.Name, &UnreadableError{err})
	}
	return true, nil
}
