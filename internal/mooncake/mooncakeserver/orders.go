package mooncakeserver

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// An order is a call that is logged, with who gave it: what it asked for, and what became
// of it.
type order struct {
	request string
	objects int64   // that it removed
	changed bool    // it changed something, or may have
	owner   string  // of what it took from another client; empty if it did not
	bytes   *uint64 // of the objects on a segment that it took away; nil for none
	result  errs.Kind
}

// maxLogged is how many bytes of a request are logged with an order.
const maxLogged = 300

func newOrder(a *args) order {
	var b strings.Builder
	say := func(name string, value any) { fmt.Fprintf(&b, "%s:%v ", name, value) }
	if a.Key != "" {
		say("regex", fmt.Sprintf("%.300q", a.Key))
	}
	if a.Tenant != "" {
		say("tenant", fmt.Sprintf("%.64q", a.Tenant))
	}
	if a.Force {
		say("force", true)
	}
	if id := uuid.UUID(a.SegmentID); id != uuid.Nil {
		say("segment_id", id)
	}
	if id := uuid.UUID(a.Client); id != uuid.Nil {
		say("client_id", id)
	}
	if a.GraceMillis > 0 {
		say("grace_ms", a.GraceMillis)
	}
	request := strings.TrimSuffix(b.String(), " ")
	return order{request: request[:min(len(request), maxLogged)]}
}

// logOrder logs what became of an order, which may have an error in place of an answer.
func (s *session) logOrder(f *function, err error) {
	o := s.order
	s.order = order{}
	var refused *coro.Error
	switch {
	case err == nil:
	case errors.As(err, &refused):
		o.result = errs.InvalidParams // mistaken
	case errors.Is(err, errNotServing):
		o.result = errs.NotLeader
	case errors.Is(err, errHalfway):
		o.result = errs.Unresolved
	default:
		o.result = errs.KindOf(err)
	}
	line := s.front.Audit.Info
	switch { // anybody may give the others without end
	case o.changed:
	case o.result == errs.Unresolved:
		line = func() *zerolog.Event { return s.front.unsure.InfoOf(s.peer) }
	default:
		line = func() *zerolog.Event { return s.front.idle.InfoOf(s.peer) }
	}
	s.writeOrder(line(), f, o)
}

// writeOrder writes the line of an order; nil for none.
func (s *session) writeOrder(line *zerolog.Event, f *function, o order) {
	line = line.Str("order", f.name).Stringer("peer", s.conn.RemoteAddr()).Str("request", o.request)
	if f.sweeps {
		line.Int64("objects", o.objects)
	}
	if o.bytes != nil {
		line.Uint64("bytes", *o.bytes)
	}
	if o.owner != "" {
		line.Str("owner", o.owner)
	}
	line.Stringer("result", o.result).Msg("an order was given")
}

func (s *session) logRefusal(f *function) {
	s.front.refusals.InfoOf(s.peer).Str("order", f.name).Stringer("peer", s.conn.RemoteAddr()).
		Stringer("result", errs.NotSupported).Msg("a call was refused: --mooncake-no-orders")
}
