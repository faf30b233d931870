package service

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/safeguard"
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
// segment or SSD a full TTL.
//
// Only time counts in which clients could have been heard. What does not count
// moves all deadlines by as much:
//
//   - how late a tick comes, because the process was stopped or starved;
//   - a tick at which this node may not answer, because its session with etcd may
//     have ended;
//   - of several clients all silent, what goes beyond half a TTL: that this node
//     was cut off is more likely than that all hosts died at once.
type Liveness struct {
	ttl   time.Duration
	clock clock.Clock

	mu      sync.Mutex
	clients map[segment.ClientID]heard
	last    time.Duration // tick
	ping    time.Duration // last one of any client
	alone   bool          // all have been silent for too long to believe it
}

// heard is what is remembered of a client.
type heard struct {
	deadline time.Duration // by the clock
	known    bool          // it has mounted its segments here, and need not again
}

// NewLiveness returns the liveness of a term that begins, with the owners of
// the store's segments alive, and those of its SSDs watched.
func NewLiveness(ttl time.Duration, clk clock.Clock, store *metadata.Store) *Liveness {
	l := &Liveness{ttl: ttl, clock: clk, clients: make(map[segment.ClientID]heard), last: clk()}
	l.ping = l.last
	for _, disk := range store.LocalDisks() {
		l.clients[disk.Client] = heard{l.last + ttl, false}
	}
	for _, s := range store.Segments() {
		l.clients[s.Client] = heard{l.last + ttl, true}
	}
	return l
}

// TTL returns how long a client may be silent.
func (l *Liveness) TTL() time.Duration { return l.ttl }

// Add makes a client known and alive. It fails with Unavailable when there are
// MaxClients others.
func (l *Liveness) Add(client segment.ClientID) error { return l.add(client, true) }

// Watch has a client expire unless it is heard of. One that is not known stays
// so: it may have segments to mount, and must be told. It fails as Add does.
func (l *Liveness) Watch(client segment.ClientID) error { return l.add(client, false) }

func (l *Liveness) add(client segment.ClientID, known bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, watched := l.clients[client]
	if !watched && len(l.clients) >= MaxClients {
		return errs.New(errs.Unavailable, "liveness", "%d clients are known, which is the most there can be", MaxClients)
	}
	l.ping = l.clock()
	l.clients[client] = heard{l.ping + l.ttl, known || c.known}
	return nil
}

// Touch keeps a client alive. It reports false if the client is not known.
func (l *Liveness) Touch(client segment.ClientID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ping = l.clock()
	c, watched := l.clients[client]
	if watched {
		l.clients[client] = heard{l.ping + l.ttl, c.known}
	}
	return c.known
}

// Active returns how many clients are alive.
func (l *Liveness) Active() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.clients)
}

// expire is a tick, at which this node answers or not. It forgets and returns
// the clients that have been silent for too long.
func (l *Liveness) expire(answering bool) []segment.ClientID {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	if lost := l.lost(now, answering); lost > 0 && !safeguard.Off(safeguard.StallAllowance) {
		for client, c := range l.clients {
			l.clients[client] = heard{c.deadline + lost, c.known}
		}
	}
	l.last = now
	var silent []segment.ClientID
	for client, c := range l.clients {
		if c.deadline <= now {
			silent = append(silent, client)
			delete(l.clients, client)
		}
	}
	return silent
}

// lost returns how much of the time since the last tick does not count. Needs
// the lock.
func (l *Liveness) lost(now time.Duration, answering bool) time.Duration {
	l.alone = len(l.clients) > 1 && now-l.ping > l.ttl/2
	if l.alone || !answering {
		return now - l.last
	}
	if late := now - l.last - livenessTick; late > livenessTick/2 {
		return late
	}
	return 0
}

// isAlone reports whether nobody was heard of for so long that this node rather
// takes itself to be cut off.
func (l *Liveness) isAlone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alone
}

// WatchClients unmounts the segments of clients that go silent, until the
// context ends.
func (m *Master) WatchClients(ctx context.Context, log zerolog.Logger) error {
	tick := time.NewTicker(livenessTick)
	defer tick.Stop()
	for alone := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		silent := m.Liveness.expire(m.Fence() == nil)
		before := alone
		if alone = m.Liveness.isAlone(); alone && !before {
			log.Warn().Int("clients", m.Liveness.Active()).Msg("no client is heard of: this node may be cut off, so none is taken for dead")
		}
		for _, client := range silent {
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
	if _, watched := l.clients[client]; !watched {
		l.clients[client] = heard{deadline: l.clock()}
	}
}
