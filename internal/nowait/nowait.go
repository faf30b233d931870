// Package nowait marks the context of a call that runs on an event loop. Such a
// call must not wait for anything but a lock: where it would, it fails with Err,
// having changed nothing, and is made again on a goroutine of its own.
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

// Asked reports whether a call must not wait. It is for the places that wait: a call
// that need not wait does not ask.
func Asked(ctx context.Context) bool { return ctx.Value(key{}) != nil }
