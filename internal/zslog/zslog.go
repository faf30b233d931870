// Package zslog sends log/slog, which the packages shared with clients and masterctl use,
// to the log of a node.
//
// It must never format a line, nor know a message.
package zslog

import (
	"context"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
)

// New returns a logger that writes to log, which adds the time to each line.
func New(log zerolog.Logger) *slog.Logger { return slog.New(handler{zerolog.NewSlogHandler(log)}) }

type handler struct{ slog.Handler }

// Handle leaves out the record's own time: a line would have two.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	r.Time = time.Time{}
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler that puts a prefix before the names of fields.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
