package mooncakeserver

import (
	"context"
	"crypto/md5" //nolint:gosec // as the protocol numbers its functions; it protects nothing
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/mooncake/structpack"
	"github.com/understudy-store/understudy/internal/service"
)

// selectGeneration is a function that only other nodes call: it sets the
// generation of the requests on this connection. A node relays requests as they
// are, and the port that it relays them to may speak another generation.
var selectGeneration = func() uint32 {
	sum := md5.Sum([]byte("understudy::Relay::SelectGeneration")) //nolint:gosec // see above
	return binary.BigEndian.Uint32(sum[:])
}()

// codeNotServing is the answer on such a connection when its node does not serve:
// nothing was changed, and the relay repeats the request. See errNotServing.
const codeNotServing = 200

var generationName = structpack.NewMessage(structpack.Text)

// choose serves selectGeneration. A node that does not serve refuses it, before any
// request.
func (s *session) choose(body string, reply []byte) ([]byte, error) {
	var name string
	if err := structpack.Unpack(&s.reader, body, generationName, &name); err != nil {
		return nil, &coro.Error{Code: coro.CodeInvalidArguments, Message: err.Error()}
	}
	t, ok := s.front.tables[name]
	if !ok {
		return nil, &coro.Error{Code: coro.CodeInvalidArguments, Message: fmt.Sprintf("this node does not know the generation %q", name)}
	}
	if !s.front.Gate.Serves() {
		return nil, &coro.Error{Code: codeNotServing, Message: errNotServing.Error()}
	}
	s.table, s.relayed = t, true
	return structpack.Pack(&s.writer, reply, generationName, &name), nil
}

// A relay passes the requests of one connection on to the primary, over a
// connection of its own. So their order stays, and their number is bounded by
// that of the clients' connections.
type relay struct {
	up     *coro.Client // nil if there is none
	turn   turn         // in which up was made
	proven bool         // up has brought an answer
	stop   func()       // ends the watch for another primary
}

func (r *relay) close() {
	if r.up != nil {
		r.stop()
		_ = r.up.Close()
		r.up = nil
	}
}

// leads reports whether there is a connection to the primary. That of an earlier
// term was closed with it, even if it led to the same node.
func (r *relay) leads(gate *service.Gate) bool {
	return r.up != nil && r.turn.hint == gate.Hint()
}

// open takes over a connection, until another node is the primary. So calls at a
// primary that hangs end when another one serves.
func (r *relay) open(gate *service.Gate, up *coro.Client, t turn) {
	r.up, r.turn, r.proven = up, t, false
	r.stop = whenReplaced(gate, t.hint.RPC, func() { _ = up.Close() })
}

// whenReplaced calls end once another node serves than the one at an address,
// unless stop was called before.
func whenReplaced(gate *service.Gate, address string, end func()) (stop func()) {
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			changed := gate.Changed()
			if primary := gate.Hint().RPC; gate.Serves() || primary != address && primary != "" {
				end()
				return
			}
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		watch.Wait()
	}
}

// Errors that close a client's connection. Their causes are logged already, and
// are no fault of the client's.
var (
	errPeerGone = errors.New("the client has closed the connection")
	errNobody   = errors.New("no node serves")
	errLost     = errors.New("a relayed request got no answer")
)

// forward answers a request with the primary's answer. While there is no
// primary it waits, within the time that a client does; a request that may have
// reached one is not sent again, and costs the client its connection.
func (s *session) forward(ctx context.Context, function uint32, body string, reply []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.front.deadline)
	defer cancel()
	r, upstream := &s.relay, s.front.upstream
	for {
		serves, err := s.connect(ctx)
		switch {
		case err != nil:
			return nil, err
		case serves:
			return s.Call(ctx, function, body, reply) // this node is the primary by now
		}
		answer, sent, err := r.up.Append(ctx, function, func(b []byte) []byte { return append(b, body...) }, reply, func(n int) error { return s.room(ctx, n) })
		var refused *coro.Error
		if answered := errors.As(err, &refused) && refused.Code != codeNotServing; err == nil || answered {
			if !r.proven {
				r.proven = true
				upstream.answered(r.turn)
			}
			return answer, err
		}
		r.close()
		if sent && refused == nil { // the next connection will show whether the primary fails
			return nil, s.lost(ctx, function, err)
		}
		s.failed(ctx, r.turn, err)
	}
}

// room waits until a relayed answer of n bytes may be read. An answer that is larger than one
// host may take needs a place for answers of unknown size, as it did at the primary.
func (s *session) room(ctx context.Context, n int) error {
	err := s.conn.Room(n)
	if errors.Is(err, coro.ErrLargeAnswer) {
		err = s.conn.Reserve(ctx)
	}
	return err
}

// connect waits until the relay leads to the primary, or this node serves.
func (s *session) connect(ctx context.Context) (serves bool, err error) {
	gate, upstream := s.front.Gate, s.front.upstream
	for {
		changed := gate.Changed()
		if gate.Serves() {
			return true, nil
		}
		if s.relay.leads(gate) {
			return false, nil
		}
		s.relay.close()
		t, wait, recovered := upstream.take()
		if wait == 0 {
			up, err := s.dial(ctx, t.hint.RPC)
			if err == nil {
				upstream.connected(t)
				s.relay.open(gate, up, t)
				return false, nil
			}
			s.failed(ctx, t, err)
		}
		if err := s.await(ctx, wait, changed, recovered); err != nil {
			return false, err
		}
	}
}

// await waits before the next attempt at the primary, for as long as the client
// does.
func (s *session) await(ctx context.Context, wait time.Duration, changed, recovered <-chan struct{}) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-recovered:
	case <-ctx.Done():
		return s.nobody(ctx)
	}
	if s.conn.PeerGone() {
		return errPeerGone
	}
	return nil
}

// dial connects to the primary, which must say that it serves.
func (s *session) dial(ctx context.Context, primary string) (*coro.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	defer whenReplaced(s.front.Gate, primary, cancel)()
	up, err := coro.Dial(ctx, primary)
	if err != nil {
		return nil, err
	}
	var w structpack.Writer
	_, _, err = up.Call(ctx, selectGeneration, func(b []byte) []byte { return structpack.Pack(&w, b, generationName, &s.table.name) })
	if err != nil {
		_ = up.Close()
		return nil, fmt.Errorf("choosing generation %s: %w", s.table.name, err)
	}
	return up, nil
}

// failed notes that the primary could not be reached, or refused to serve, unless
// there was no time left for it.
func (s *session) failed(ctx context.Context, t turn, err error) {
	if ctx.Err() == nil && s.front.upstream.failed(t, err) {
		s.front.logs.primary.Warn().Str("primary", t.hint.RPC).Err(err).Msg("cannot relay to the primary; requests wait until a node serves")
	}
}

// lost logs that a request may have reached a primary which did not answer it.
func (s *session) lost(ctx context.Context, function uint32, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errLost // this server was stopped
	}
	name := "unknown"
	if f, ok := s.table.functions[function]; ok {
		name = f.name
	}
	s.front.logs.lost.Warn().Str("primary", s.relay.turn.hint.RPC).Stringer("client", s.conn.RemoteAddr()).Str("function", name).Err(err).
		Msg("a relayed request got no answer; it may have been done, so its client's connection was closed")
	return errLost
}

// nobody logs that a client has waited and no node served.
func (s *session) nobody(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errNobody // this server was stopped
	}
	s.front.logs.nobody.Warn().Str("primary", s.front.Gate.Hint().RPC).Stringer("client", s.conn.RemoteAddr()).AnErr("failure", s.front.upstream.why()).
		Msgf("no node has served for %v; a request was not done, and its client's connection was closed", s.front.deadline)
	return errNobody
}
