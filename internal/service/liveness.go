package service

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// MaxClients bounds how many clients are remembered (the C++ master's queue of
// pings holds as many).
const MaxClients = 128 << 10

// livenessTick is how often silent clients are looked for (C++ master).
const livenessTick = time.Second

// Liveness remembers until when each client counts as alive. It belongs to one
// term and is no part of the state: a new primary gives every owner of a
// segment a full TTL.
//
// Only time counts in which this node was answering: a tick that comes late,
// because the process was stopped or starved, moves all deadlines by as much.
type Liveness struct {
	ttl   time.Duration
	clock clock.Clock

	mu      sync.Mutex
	clients map[segment.ClientID]time.Duration // deadline by the clock
	last    time.Duration                      // tick
}

// NewLiveness returns the liveness of a term that begins, with the owners of
// the store's segments alive.
func NewLiveness(ttl time.Duration, clk clock.Clock, store *metadata.Store) *Liveness {
	l := &Liveness{ttl: ttl, clock: clk, clients: make(map[segment.ClientID]time.Duration), last: clk()}
	for _, s := range store.Segments() {
		l.clients[s.Client] = l.last + ttl
	}
	return l
}

// TTL returns how long a client may be silent.
func (l *Liveness) TTL() time.Duration { return l.ttl }

// Add makes a client known and alive. It fails with Unavailable when there are
// MaxClients others.
func (l *Liveness) Add(client segment.ClientID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.clients[client]; !known && len(l.clients) >= MaxClients {
		return errs.New(errs.Unavailable, "liveness", "%d clients are known, which is the most there can be", MaxClients)
	}
	l.clients[client] = l.clock() + l.ttl
	return nil
}

// Touch keeps a client alive. It reports false if the client is not known.
func (l *Liveness) Touch(client segment.ClientID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.clients[client]; !known {
		return false
	}
	l.clients[client] = l.clock() + l.ttl
	return true
}

// Active returns how many clients are alive.
func (l *Liveness) Active() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.clients)
}

// expire forgets and returns the clients that have been silent for too long.
func (l *Liveness) expire() []segment.ClientID {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	if late := now - l.last - livenessTick; late > livenessTick/2 {
		for client := range l.clients {
			l.clients[client] += late
		}
	}
	l.last = now
	var silent []segment.ClientID
	for client, deadline := range l.clients {
		if deadline <= now {
			silent = append(silent, client)
			delete(l.clients, client)
		}
	}
	return silent
}

// WatchClients unmounts the segments of clients that go silent, until the
// context ends.
func (m *Master) WatchClients(ctx context.Context, log zerolog.Logger) error {
	tick := time.NewTicker(livenessTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for _, client := range m.Liveness.expire() {
			n, err := m.ExpireClient(ctx, client)
			switch {
			case err == nil:
				log.Info().Stringer("client", client).Int("segments", n).Msg("client went silent, its segments were unmounted")
			case ctx.Err() == nil:
				log.Warn().Err(err).Stringer("client", client).Msg("unmounting a silent client's segments failed, it will be tried again")
				m.Liveness.retry(client)
			}
		}
	}
}

// retry makes a client that could not be expired come up at the next tick.
func (l *Liveness) retry(client segment.ClientID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.clients[client]; !known {
		l.clients[client] = l.clock()
	}
}
