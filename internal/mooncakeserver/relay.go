package mooncakeserver

import (
	"context"
	"crypto/md5" //nolint:gosec // as the protocol numbers its functions; it protects nothing
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/coro"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/internal/structpack"
)

// selectGeneration is a function that only other nodes call: it says in which
// generation the requests on this connection are. A node relays requests as
// they are, and the port that it relays them to may speak another one.
var selectGeneration = func() uint32 {
	sum := md5.Sum([]byte("understudy::Relay::SelectGeneration")) //nolint:gosec // see above
	return binary.BigEndian.Uint32(sum[:])
}()

// codeNotServing is what such a connection is answered with when its node does
// not serve: nothing was changed, and the relay asks another one.
const codeNotServing = 200

var generationName = structpack.NewMessage(structpack.Text())

// choose serves selectGeneration.
func (s *session) choose(body string, reply []byte) ([]byte, error) {
	var name string
	if err := structpack.Unpack(&s.reader, body, generationName, &name); err != nil {
		return nil, &coro.Error{Code: coro.CodeInvalidArguments, Message: err.Error()}
	}
	t, ok := s.front.tables[name]
	if !ok {
		return nil, &coro.Error{Code: coro.CodeInvalidArguments, Message: fmt.Sprintf("this node does not know the generation %q", name)}
	}
	s.table, s.relayed = t, true
	return structpack.Pack(&s.writer, reply, generationName, &name), nil
}

// A relay passes the requests of one connection on to the primary, over a
// connection of its own. So their order stays, and their number is bounded by
// that of the clients' connections.
type relay struct {
	up      *coro.Client
	address string        // where up leads to
	done    chan struct{} // closed when up is not used any more
	watch   sync.WaitGroup
}

func (r *relay) close() {
	if r.up != nil {
		close(r.done)
		_ = r.up.Close()
		r.watch.Wait()
		r.up = nil
	}
}

// open makes a connection the relay's, as long as it leads to the primary. A
// primary that hangs takes the calls under way along, until another one serves.
func (r *relay) open(gate *service.Gate, up *coro.Client, address string) {
	r.up, r.address, r.done = up, address, make(chan struct{})
	r.watch.Go(func() {
		for {
			changed := gate.Changed()
			if gate.Serves() || gate.Hint().RPC != address && gate.Hint().RPC != "" {
				_ = up.Close()
				return
			}
			select {
			case <-changed:
			case <-r.done:
				return
			}
		}
	})
}

// forward answers a request with the primary's answer. While there is no
// primary it waits, within the time that a client does; a request that may have
// reached one is not sent again, and costs the client its connection.
func (s *session) forward(ctx context.Context, function uint32, body string, reply []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	const pause = 20 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		if s.front.Gate.Serves() {
			return s.Call(ctx, function, body, reply) // this node is the one by now
		}
		err := s.connect(ctx)
		if err == nil {
			answer, sent, err := s.relay.up.Call(ctx, function, func(b []byte) []byte { return append(b, body...) })
			var refused *coro.Error
			switch {
			case err == nil:
				return append(reply, answer...), nil
			case errors.As(err, &refused) && refused.Code != codeNotServing:
				return nil, err
			}
			s.relay.close()
			if sent && refused == nil {
				return nil, fmt.Errorf("relaying to %s: %w", s.relay.address, err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("nobody serves: %w", errors.Join(err, ctx.Err()))
		}
		if s.conn.PeerGone() {
			return nil, errPeerGone
		}
	}
}

var errPeerGone = errors.New("the client has closed the connection")

// connect makes the relay lead to the primary that this node knows of.
func (s *session) connect(ctx context.Context) error {
	primary := s.front.Gate.Hint().RPC
	if s.relay.up != nil && s.relay.address == primary {
		return nil
	}
	s.relay.close()
	if primary == "" {
		return errNoPrimary
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	up, err := coro.Dial(ctx, primary)
	if err != nil {
		return err
	}
	var w structpack.Writer
	_, _, err = up.Call(ctx, selectGeneration, func(b []byte) []byte { return structpack.Pack(&w, b, generationName, &s.table.name) })
	if err != nil {
		_ = up.Close()
		return fmt.Errorf("choosing generation %s at %s: %w", s.table.name, primary, err)
	}
	s.relay.open(s.front.Gate, up, primary)
	return nil
}

var errNoPrimary = errors.New("no primary is known")
