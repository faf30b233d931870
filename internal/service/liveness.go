package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

// livenessTick is how often silent clients are looked for (C++ master).
const livenessTick = time.Second

// Liveness remembers until when each client counts as alive. It belongs to one
// term and is no part of the state.
//
// A new primary gives every owner of a segment or SSD a grace: the longest that a
// client waits for an answer, and a TTL. The Ping of a client may hang at the
// previous primary for that long, and nothing tells such a client from a dead one.
// The first Ping ends the grace.
//
// Only time in which this node could hear clients counts. Other time moves all
// deadlines by as much, but leaves no client more than its full TTL:
//
//   - how late a tick comes, because the process was stopped or starved;
//   - a tick at which this node may not answer, because no commit came through;
//   - a silence of more than half a TTL, counted from its beginning, in which nobody
//     calls though there are several clients: probably this node was cut off, rather
//     than all hosts dead at once. While nobody calls, nobody is led to a dead host.
//     After the silence the clients have about a TTL to come back, also if this node
//     is cut off again before that. Each tick with calls from others costs them one
//     tick, so dead clients expire in the end.
type Liveness struct {
	ttl   time.Duration
	clock clock.Clock

	store *metadata.Store
	share share.Rule // of clients

	mu      sync.Mutex // guards all below; held while the store is asked
	mass    massSilence
	clients map[segment.ClientID]heard
	of      map[string]int64              // how many of them each peer has made known
	expired map[segment.ClientID]struct{} // in this term, and not made known since
	askAll  bool                          // any client may have segments that are not in the store
	last    tick
	called  time.Duration // when the last call of anybody is known to have come
	alone   bool          // nobody has called for so long that this node assumes that it is cut off
}

// A tick is a moment at which silent clients are looked for.
type tick struct {
	at        time.Duration // by the clock
	answering bool          // this node may answer
	calls     int64         // of all clients so far
}

// heard is what is remembered of a client.
type heard struct {
	deadline time.Duration // by the clock
	ttl      time.Duration // how long it may be silent until then: the TTL, or the grace
	known    bool          // it has mounted its segments here, and need not again
	peer     string        // that made it known; empty if that was before the term
	// displaced says that another client has mounted memory at its endpoint since
	// it was heard: its process is probably gone.
	displaced bool
}

// displacedTTL is how long a client may be silent if another one has taken its endpoint.
const displacedTTL = 3 * time.Second

// NewLiveness returns the liveness of a term that begins, with the owners of
// the store's segments alive, and those of its SSDs watched. Clients may wait for
// as long as patience for the answer to a Ping.
func NewLiveness(ttl, patience time.Duration, clk clock.Clock, store *metadata.Store) *Liveness {
	l := &Liveness{ttl: ttl, clock: clk, store: store, clients: make(map[segment.ClientID]heard), of: make(map[string]int64), expired: make(map[segment.ClientID]struct{})}
	l.last.at = clk()
	l.called = l.last.at
	grace := heard{deadline: l.last.at + patience + ttl, ttl: patience + ttl}
	for _, disk := range store.LocalDisks() {
		l.clients[disk.Client] = grace
	}
	grace.known = true
	last := make(map[string]segment.ClientID) // owner of the newest segment at each endpoint
	for s := range store.EachSegment() {
		l.clients[s.Client], last[s.Endpoint] = grace, s.Client
	}
	grace.ttl = patience + min(ttl, displacedTTL)
	grace.deadline = l.last.at + grace.ttl
	for s := range store.EachSegment() {
		if s.Endpoint != "" && last[s.Endpoint] != s.Client {
			l.clients[s.Client] = grace
		}
	}
	return l
}

// AskAll says that the store may lack what clients have mounted before the term: the next
// Ping of each asks for all of it. Call it before the first client is heard.
func (l *Liveness) AskAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.askAll = true
	for client, c := range l.clients {
		c.known = false
		l.clients[client] = c
	}
}

// TTL returns how long a client may be silent.
func (l *Liveness) TTL() time.Duration { return l.ttl }

// Share sets how many clients there may be, before the first of them calls.
func (l *Liveness) Share(r share.Rule) { l.share = r }

// Add makes a client that has mounted all its segments known and alive. It fails with
// Unavailable when there are too many others, of all peers or of the caller's.
func (l *Liveness) Add(by Caller, client segment.ClientID) error { return l.add(by.Peer, client, true) }

// Watch starts the client's TTL. A client that is not known stays unknown: it may have
// segments to mount, and its next Ping must ask for them. It fails as Add does.
func (l *Liveness) Watch(by Caller, client segment.ClientID) error {
	return l.add(by.Peer, client, false)
}

// Join makes a client that has mounted one segment alive, and known unless it may have
// other segments: some that went when it expired, or that the store lacks. Its next Ping
// then asks for them. It fails as Add does.
func (l *Liveness) Join(by Caller, client segment.ClientID) error {
	l.mu.Lock()
	_, expired := l.expired[client]
	asks := expired || l.askAll
	l.mu.Unlock()
	return l.add(by.Peer, client, !asks)
}

func (l *Liveness) add(peer string, client segment.ClientID, known bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, watched := l.clients[client]
	if !watched {
		if text := l.share.Refuse(peer, int64(len(l.clients)), l.of[peer], 1); text != "" {
			return errs.New(errs.Unavailable, "liveness", "%s", text)
		}
		c.peer = peer
		l.of[peer]++
	}
	if known {
		delete(l.expired, client)
	}
	l.clients[client] = l.hear(c, known || c.known)
	return nil
}

// maxExpired bounds how many expired clients are remembered. Beyond it all are asked.
const maxExpired = 1 << 16

// forget ends a client that has expired. Needs the lock.
func (l *Liveness) forget(client segment.ClientID) {
	if l.expired[client] = struct{}{}; len(l.expired) > maxExpired {
		l.askAll = true
		clear(l.expired)
	}
	peer := l.clients[client].peer
	if l.of[peer]--; l.of[peer] <= 0 {
		delete(l.of, peer)
	}
	delete(l.clients, client)
}

// Ping keeps a client alive. It reports false if the client is not known.
func (l *Liveness) Ping(client segment.ClientID) bool {
	known, _ := l.ping(client)
	return known
}

// ping is Ping. early says that the client was there before the term, so that it counts
// for no peer yet.
func (l *Liveness) ping(client segment.ClientID) (known, early bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, watched := l.clients[client]
	if watched {
		l.clients[client] = l.hear(c, c.known)
	}
	return c.known, watched && c.peer == ""
}

// attribute counts a client that was there before the term for a peer.
func (l *Liveness) attribute(client segment.ClientID, peer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, watched := l.clients[client]; watched && c.peer == "" {
		c.peer = peer
		l.clients[client] = c
		l.of[peer]++
	}
}

// hear returns what is remembered of a client from now on.
func (l *Liveness) hear(c heard, known bool) heard {
	return heard{deadline: l.clock() + l.ttl, ttl: l.ttl, known: known, peer: c.peer}
}

// left returns how long a client must still stay silent until a caller may mount in its
// place, 0 if no longer, and how long in all. Both are 0 if the client has expired.
func (l *Liveness) left(client segment.ClientID, by Caller) (left, silent time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, watched := l.clients[client]
	if !watched {
		return 0, 0
	}
	if silent = l.ttl; c.yieldsTo(by) {
		silent = min(silent, displacedTTL)
	}
	return max(0, silent-c.silence(l.clock())), silent
}

// yieldsTo reports whether a caller may be a process that has started in the client's
// place. An identified caller is that only with the identity that made the client known.
func (c heard) yieldsTo(by Caller) bool { return !by.Identified || c.peer == by.Peer }

// Displace notes that somebody has mounted memory at another client's endpoint.
// Unless that client is heard again, it expires when it has been silent for
// displacedTTL. A caller with another identity displaces nobody.
func (l *Liveness) Displace(client segment.ClientID, by Caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c, watched := l.clients[client]; watched && c.yieldsTo(by) {
		c.displaced = true
		l.clients[client] = c
	}
}

// Active returns how many clients are alive.
func (l *Liveness) Active() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.clients)
}

// Deadlines returns how much longer each client counts as alive if it is not heard; below
// 0 for those that are kept because many are silent.
func (l *Liveness) Deadlines() map[segment.ClientID]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left, now := make(map[segment.ClientID]time.Duration, len(l.clients)), l.clock()
	for client, c := range l.clients {
		left[client] = c.deadline - now
	}
	return left
}

// Watches reports whether a client is alive.
func (l *Liveness) Watches(client segment.ClientID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, watched := l.clients[client]
	return watched
}

// expire forgets and returns the clients that have been silent for too long, at
// a tick. alone says that this node assumes that it is cut off itself.
func (l *Liveness) expire(now tick) (silent []segment.ClientID, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.lost(now)
	if lost > 0 {
		for client, c := range l.clients {
			c.deadline = min(c.deadline+lost, now.at+c.ttl)
			l.clients[client] = c
		}
	}
	l.last = now
	var due []segment.ClientID
	for client, c := range l.clients {
		switch {
		case c.displaced && c.silence(now.at) >= min(l.ttl, displacedTTL):
			silent = append(silent, client)
		case c.deadline <= now.at:
			due = append(due, client)
		}
	}
	silent = append(silent, l.pace(now.at, lost, due)...)
	for _, client := range silent {
		l.forget(client)
	}
	return silent, l.alone
}

// lost returns how much of the time since the last tick does not count. Needs
// the lock.
func (l *Liveness) lost(now tick) time.Duration {
	since, lost := now.at-l.last.at, time.Duration(0)
	switch late := since - livenessTick; {
	case !now.answering: // this is neither silence, nor the end of one
		lost = since
	case late > livenessTick/2:
		lost = late
	}
	l.called += lost
	if now.calls != l.last.calls {
		l.called = now.at
	}
	silence, before := now.at-l.called, l.alone
	l.alone = len(l.clients) > 1 && silence > l.ttl/2
	switch {
	case l.alone && before:
		return since
	case l.alone: // the silence so far does not count either
		return lost + silence
	}
	return lost
}

// WatchClients unmounts the segments of clients that go silent, and closed ones
// that are due, until the context ends.
func (m *Master) WatchClients(ctx context.Context, log zerolog.Logger) error {
	alone, held := false, 0
	return clock.Every(ctx, livenessTick, func() error {
		before := alone
		var silent []segment.ClientID
		silent, alone = m.Liveness.expire(tick{m.Liveness.clock(), m.Answers(), m.Counters.calls()})
		if alone && !before {
			log.Warn().Int("clients", m.Liveness.Active()).Msg("no client pings: this node may be cut off, so no client expires")
		}
		wasHeld := held
		switch held = m.Liveness.Held(); {
		case held > 0 && wasHeld == 0:
			log.Warn().Int("clients", held).Msg("many clients are silent at once, as when the network fails: they expire slowly, a tenth of the memory at a time")
		case held == 0 && wasHeld > 0:
			log.Info().Msg("no silent client is kept any more")
		}
		for _, client := range silent {
			m.expireSilent(ctx, client, log)
		}
		m.unmountClosed(ctx, log)
		return nil
	})
}

// expireSilent unmounts the segments of a silent client, unless it is back by
// the time its turn comes.
func (m *Master) expireSilent(ctx context.Context, client segment.ClientID, log zerolog.Logger) {
	back, names := false, m.namesOf(client)
	n, err := m.ExpireClient(ctx, client, func() bool {
		back = m.Liveness.Watches(client)
		return back
	})
	switch {
	case err == nil && !back:
		log.Info().Stringer("client", client).Int("segments", n).Msg("client went silent, its segments were unmounted")
		// A process that restarted in the place of a dead one has mounted under the same name, and
		// publishes its entry under that name only once, so the entry must stay.
		if names = slices.DeleteFunc(names, m.Store.HasSegmentNamed); len(names) > 0 {
			m.Expired(ctx, names)
		}
	case err != nil && ctx.Err() == nil:
		log.Warn().Err(err).Stringer("client", client).Msg("unmounting a silent client's segments failed, it will be tried again")
		m.Liveness.retry(client)
	}
}

// namesOf returns the names of a client's segments, if somebody asks for them.
func (m *Master) namesOf(client segment.ClientID) (names []string) {
	if m.Expired == nil {
		return nil
	}
	for s := range m.Store.SegmentsOwnedBy(client) {
		names = append(names, s.Name)
	}
	return names
}

// retry makes a client that could not be expired come up at the next tick.
func (l *Liveness) retry(client segment.ClientID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, watched := l.clients[client]; !watched {
		l.clients[client] = heard{deadline: l.clock(), ttl: l.ttl}
	}
}
