package mooncakeserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/internal/zslog"
	"github.com/understudy-store/understudy/journal/nowait"
	"github.com/understudy-store/understudy/metadata"
)

// An Observer gets every call that has ended, on the call's own goroutine, under a
// method name such as /mooncake.Mooncake/ExistKey.
type Observer interface {
	Call(ctx context.Context, method string, code codes.Code, took time.Duration)
}

const (
	// deadline ends a call of a client that gives up after 30 s.
	deadline = coro.DefaultCall
	// checkPeerAfter is how long a call may take before it is worth a system call to
	// see whether its client still waits.
	checkPeerAfter = time.Millisecond
	// maxIdle orders that changed nothing are logged in a minute.
	maxIdle = 100
)

// A Front answers Mooncake's clients, whatever their generation.
type Front struct {
	Gate *service.Gate
	// Version is what clients expect from ServiceReady. All releases since v0.3.8
	// answer "2.0.0".
	Version string
	// View returns the version of the primary's view, which Ping reports.
	View func() int64
	// Relay makes a node that does not serve pass requests on to the one that
	// does; without it such a node closes connections.
	Relay bool
	// Allows says from where the protocol is taken; nil for everywhere.
	Allows func(netip.Addr) bool
	// NoOrders refuses what removes many objects at once, and, as Roles does, that a client
	// unmounts segments of other client ids.
	NoOrders bool
	Roles    bool     // callers of other protocols have roles
	Observer Observer // may be nil
	// Trace begins to record a call, and returns what ends it; nil for no traces.
	Trace func(ctx context.Context, method string) (context.Context, func(error))
	Clock clock.Clock // measures how long calls take; nil for this machine's
	Log   zerolog.Logger
	Audit zerolog.Logger // of orders

	tables   map[string]*table
	deadline time.Duration // of a call
	upstream *upstream
	logs     logs
	idle     *access.FewLines // orders that changed nothing
	unsure   *access.FewLines // orders that may have changed something
	refusals *access.FewLines // orders that are not taken over this protocol
}

// logs are those of relays, each limited on its own: what happens to many clients
// at once must not hide what happens to the primary.
type logs struct{ primary, lost, nobody zerolog.Logger }

// New completes a Front whose exported fields are set, and returns it.
func New(f *Front) *Front {
	f.idle, f.unsure, f.refusals = access.NewFewLines(f.Audit, maxIdle), access.NewFewLines(f.Audit, maxIdle), access.NewFewLines(f.Audit, maxIdle)
	f.logs = logs{limited(f.Log), limited(f.Log), limited(f.Log)}
	f.Log = limited(f.Log)
	if f.Clock == nil {
		f.Clock = clock.Runtime()
	}
	f.tables, f.deadline, f.upstream = make(map[string]*table), deadline, newUpstream(f.Gate)
	for _, name := range mooncake.Names() {
		g, _ := mooncake.NewGeneration(name)
		f.tables[name] = newTable(g)
	}
	return f
}

func limited(log zerolog.Logger) zerolog.Logger {
	return log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
}

// Server returns a server whose connections speak a generation. Connections of
// other protocols go to other.
func (f *Front) Server(generation string, limits coro.Limits, other func(net.Conn)) (*coro.Server, error) {
	t, ok := f.tables[generation]
	if !ok {
		return nil, fmt.Errorf("there is no Mooncake generation %q; known are %s", generation, strings.Join(mooncake.Names(), ", "))
	}
	return coro.NewServer(&coro.Server{
		Open:   func(c *coro.Conn) coro.Handler { return f.open(t, c) },
		Other:  other,
		Limits: limits,
		Log:    zslog.New(f.Log),
	}), nil
}

// open begins a connection, if this node can do something for it.
func (f *Front) open(t *table, c *coro.Conn) coro.Handler {
	if !f.allows(c.RemoteAddr()) {
		f.Log.Warn().Stringer("peer", c.RemoteAddr()).Msg("refused a connection of Mooncake's protocol: --mooncake-allow does not have its address")
		return nil
	}
	if _, err := f.Gate.Master(); err != nil && !f.Relay {
		return nil
	}
	return &session{front: f, table: t, conn: c, peer: share.Host(c.RemoteAddr())}
}

func (f *Front) allows(peer net.Addr) bool {
	tcp, ok := peer.(*net.TCPAddr)
	return f.Allows == nil || ok && f.Allows(tcp.AddrPort().Addr().Unmap())
}

// Errors that close a connection: its client looks for the primary then.
//
// After errNotServing the call has changed nothing, and a relay may repeat it.
// After any other error that is open, and a client does not see which it was. A
// term may end in the middle of a call, after some of its changes: those are
// committed nevertheless, and a repeated call would hit what was put since.
var (
	errNotServing = errors.New("this node does not serve any more")
	errHalfway    = errors.New("this node stopped to serve in the middle of a call")
)

// A session is one client's connection. Its calls come one after the other.
type session struct {
	front   *Front
	table   *table
	conn    *coro.Conn
	peer    string // that its client counts for
	reader  structpack.Reader
	writer  structpack.Writer
	relay   relay
	relayed bool  // the peer is a relay
	order   order // that is being given
	puts    []put // reservations whose answers are not delivered yet
}

// A put is a reservation that was made.
type put struct {
	master *service.Master
	tenant string
	key    string
	id     metadata.ObjectID
	ends   int // where its answer ends, among those that are not sent yet; math.MaxInt before it is made
}

// Quick reports whether this node can answer calls of a function at once: reads, and
// changes of one object where a commit waits for nothing.
func (s *session) Quick(function uint32) bool {
	f, ok := s.table.functions[function]
	if !ok || !f.read && !f.single {
		return false
	}
	master, err := s.front.Gate.Master()
	return err == nil && (f.read || master.CommitsAtOnce())
}

func (s *session) Call(ctx context.Context, function uint32, body string, reply []byte) ([]byte, error) {
	if function == selectGeneration {
		return s.choose(body, reply)
	}
	master, err := s.front.Gate.Master()
	if err != nil && s.front.Relay && !s.relayed {
		if nowait.Asked(ctx) {
			return nil, nowait.Err
		}
		return s.forward(ctx, function, body, reply)
	}
	if err != nil {
		err = errNotServing
	} else {
		reply, err = s.serve(ctx, master, function, body, reply)
	}
	if s.relayed && errors.Is(err, errNotServing) {
		err = &coro.Error{Code: codeNotServing, Message: err.Error()}
	}
	return reply, err
}

func (s *session) serve(ctx context.Context, master *service.Master, function uint32, body string, reply []byte) ([]byte, error) {
	f, ok := s.table.functions[function]
	if ok && f.sweeps && s.front.NoOrders {
		s.logRefusal(f)
		ok = false
	}
	if !ok {
		return nil, &coro.Error{Code: coro.CodeNotRegistered, Message: "the rpc function not registered"}
	}
	if (!f.read || f.many) && !nowait.Asked(ctx) { // a deadline costs as much as a lookup
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.front.deadline)
		defer cancel()
	}
	end := func(error) {}
	if s.front.Trace != nil {
		ctx, end = s.front.Trace(ctx, f.method)
	}
	began, before := s.front.Clock(), len(s.puts)
	reply, err := f.serve(call{Context: ctx, session: s, master: master}, body, reply)
	if errors.Is(err, nowait.Err) {
		end(err)
		return nil, err // it is made again
	}
	if f.order {
		s.logOrder(f, err)
	}
	if len(s.puts) > before && s.front.Clock()-began > checkPeerAfter && s.conn.PeerGone() {
		s.abandon(before)
		err = errPeerGone
	}
	if err == nil {
		for i := range s.puts[before:] {
			s.puts[before+i].ends = len(reply)
		}
	}
	if s.front.Observer != nil {
		s.front.Observer.Call(ctx, f.method, codeOf(err), s.front.Clock()-began)
	}
	end(err)
	return reply, err
}

// codeOf is how a call counts for the observer. Its own errors are in its answer;
// here are those of the transport.
func codeOf(err error) codes.Code {
	var refused *coro.Error
	switch {
	case err == nil:
		return codes.OK
	case errors.As(err, &refused):
		return codes.InvalidArgument
	}
	return codes.Unavailable
}

// Delivered abandons the reservations whose answers cannot have arrived. The others stay:
// their writers may be at work.
func (s *session) Delivered(sent int) {
	first := slices.IndexFunc(s.puts, func(p put) bool { return p.ends > sent })
	if first >= 0 {
		s.abandon(first)
	}
	clear(s.puts)
	s.puts = s.puts[:0]
}

func (s *session) Close() { s.relay.close() }

// abandon gives up the reservations whose answers are not delivered, from an index on.
func (s *session) abandon(from int) {
	for _, p := range s.puts[from:] {
		p.master.Store.Abandon(p.tenant, p.key, p.id)
	}
	clear(s.puts[from:])
	s.puts = s.puts[:from]
}

// mistaken is the error of a request whose bytes are not what the function takes.
// The log names the generations that the client may be of.
func (s *session) mistaken(f *function, body string, err error) error {
	if errors.Is(err, structpack.ErrElements) {
		s.front.Log.Warn().Stringer("peer", s.conn.RemoteAddr()).Str("function", f.name).Err(err).Msg("refused a request")
		return &coro.Error{Code: coro.CodeInvalidArguments, Message: err.Error()}
	}
	e := s.front.Log.Warn().Stringer("peer", s.conn.RemoteAddr()).Str("function", f.name).Str("generation", s.table.name).Err(err)
	if names := s.front.speakers(f.id, body); len(names) > 0 && errors.Is(err, structpack.ErrType) {
		e = e.Strs("spoken_by", names)
	}
	e.Msg("refused a request; if it came from a client of another release, give it a port of its own with --mooncake-listen")
	return &coro.Error{Code: coro.CodeInvalidArguments, Message: "invalid rpc arg"}
}

// speakers are the generations in which a function takes such a message.
func (f *Front) speakers(id uint32, body string) []string {
	var names []string
	for name, t := range f.tables {
		if fn, ok := t.functions[id]; ok && fn.takes(body) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
