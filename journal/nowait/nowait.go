// Package nowait marks the context of a call that runs on an event loop. Such a
// call must not wait for anything but a lock. Where it would have to wait, it fails
// with Err and changes nothing, and its caller repeats it on a goroutine of its own.
package nowait

import (
	"context"
	"errors"
)

// Err is the error of a call that would have to wait. Nothing was changed.
var Err = errors.New("the call would have to wait")

type key struct{}

// Context returns a context for calls that must not wait.
func Context(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Asked reports whether a call must not wait. The code calls it where it is about to
// wait, and only there.
func Asked(ctx context.Context) bool { return ctx.Value(key{}) != nil }
