package httpapi

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/share"
	"github.com/understudy-store/understudy/internal/service"
)

// fewRequests is how many requests a probe, a scrape or an operator needs at a time: an eighth
// of all is for hosts with no more.
const fewRequests = 8

// maxScrapes are answered at once.
const maxScrapes = 4

// A room has the connections of a server.
type room struct {
	rule       share.Rule    // of connections
	requests   *share.Budget // that are under way, without health checks
	identities *identities   // nil without a bound

	mu      sync.Mutex
	conns   map[net.Conn]*place
	of      map[string]int64 // connections, by host
	waiting *list.List       // of net.Conn without a request; the first one waits the longest
}

// A place is that of a connection.
type place struct {
	host     string
	identity string        // of the certificate that was shown; empty for none
	wait     *list.Element // nil while a request is under way
}

// identities bound the connections of those who show certificates.
type identities struct {
	callers *access.Callers
	taken   *share.Budget // connections, by identity
	log     *access.FewLines
	refused func() // is called for each connection that is closed
}

func newRoom(places int) *room {
	return &room{
		rule:     share.NewRule("connections", "", int64(places), 0.5, fewRequests),
		requests: share.NewBudget(share.NewRule("requests", "", int64(places-places/8), 0.5, fewRequests)),
		conns:    make(map[net.Conn]*place), of: make(map[string]int64), waiting: list.New(),
	}
}

// changed notes the state of a connection, and makes room for a new one.
func (r *room) changed(c net.Conn, state http.ConnState) {
	if goes := r.note(c, state); goes != nil {
		if t, ok := goes.(*tls.Conn); ok {
			goes = t.NetConn() // TLS would wait for the peer to take its closing alert
		}
		_ = goes.Close()
	}
	if secure, ok := c.(*tls.Conn); ok && state == http.StateNew && r.identities != nil {
		go r.greet(secure)
	}
}

// greet makes the handshake of a connection, for which net/http waits then, and counts the
// connection for who has shown a certificate. If that one has too many it ends the connection. It
// returns when the handshake has ended, which net/http bounds.
func (r *room) greet(c *tls.Conn) {
	if c.HandshakeContext(context.Background()) != nil { // net/http logs it
		return
	}
	state := c.ConnectionState()
	identity := r.identities.callers.CountedAs(&state)
	if identity == "" {
		return
	}
	if own, ok := r.enterAs(c, identity); !ok {
		r.identities.refused()
		r.identities.log.WarnOf(identity).Str("identity", identity).Stringer("peer", c.RemoteAddr()).Int64("of_identity", own).
			Msg("too many HTTP connections of one identity; a new one was closed")
		_ = c.NetConn().Close()
	}
}

// enterAs counts a connection for an identity, too. If that may have no more the connection loses
// its place. It returns how many the identity had.
func (r *room) enterAs(c net.Conn, identity string) (own int64, entered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.conns[c]
	if p == nil { // it had to go
		return 0, true
	}
	if entered, _, own = r.identities.taken.Take(identity, 1); !entered {
		r.leave(c)
		return own, false
	}
	p.identity = identity
	return own, true
}

// note returns the connection that is to go, or nil.
func (r *room) note(c net.Conn, state http.ConnState) (goes net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.conns[c]
	if p != nil && p.wait != nil {
		r.waiting.Remove(p.wait)
		p.wait = nil
	}
	switch {
	case state == http.StateNew:
		return r.enter(c)
	case p == nil: // it had to go
	case state == http.StateIdle:
		p.wait = r.waiting.PushBack(c)
	case state == http.StateHijacked, state == http.StateClosed:
		r.leave(c)
	}
	return nil
}

// enter gives a connection a place. It returns the one that has to go for it: of the same
// host if that has its share, or the new one itself if all are needed.
func (r *room) enter(c net.Conn) (goes net.Conn) {
	host := share.Host(c.RemoteAddr())
	own := r.of[host]
	if !r.rule.Room(int64(len(r.conns)), own, 1) {
		for e := r.waiting.Front(); e != nil && goes == nil; e = e.Next() {
			if oldest := e.Value.(net.Conn); own < r.rule.Peer || r.conns[oldest].host == host {
				goes = oldest
			}
		}
		if goes == nil {
			return c
		}
		r.leave(goes)
	}
	r.conns[c] = &place{host: host, wait: r.waiting.PushBack(c)}
	r.of[host]++
	return goes
}

func (r *room) leave(c net.Conn) {
	p := r.conns[c]
	if p.wait != nil {
		r.waiting.Remove(p.wait)
	}
	delete(r.conns, c)
	if p.identity != "" {
		r.identities.taken.GiveBack(p.identity, 1)
	}
	if r.of[p.host]--; r.of[p.host] == 0 {
		delete(r.of, p.host)
	}
}

// vital reports whether a path is for health checks. Its answer is short, and waits for
// nothing.
func vital(path string) bool {
	switch path {
	case "/health", "/readyz", "/role", "/leader", "/ha_status", "/node":
		return true
	}
	return false
}

// admit answers health checks in any case, within vitalTimeout, and other requests while
// there is room for them and their host has some left.
func (r *room) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if vital(req.URL.Path) {
			dropBody(w, req)
			within(w, vitalTimeout)
			next.ServeHTTP(w, req)
			return
		}
		host := hostOf(req)
		if taken, _, _ := r.requests.Take(host, 1); !taken {
			dropBody(w, req)
			within(w, vitalTimeout)
			w.Header().Set("Connection", "close")
			writeText(w, http.StatusServiceUnavailable, "too many requests are under way here, or from your host; try again")
			return
		}
		defer r.requests.GiveBack(host, 1)
		next.ServeHTTP(w, req.WithContext(service.From(req.Context(), service.Caller{Peer: host})))
	})
}

// dropBody keeps the server from waiting for a body that the answer does not need.
func dropBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a writer without deadlines has no body to wait for
	}
}

// within bounds the time for an answer.
func within(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(clock.Deadline(limit)) // a writer without deadlines needs none
}

func hostOf(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr) // net/http has it from the connection
	if err != nil {
		return r.RemoteAddr
	}
	return share.Host(net.TCPAddrFromAddrPort(from))
}

// scrapes answers scrapes: half of them at once for one host.
func scrapes(next http.Handler) http.Handler {
	places := share.NewBudget(share.Rule{Total: maxScrapes, Peer: maxScrapes / 2, Few: maxScrapes})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r)
		if taken, _, _ := places.Take(host, 1); !taken {
			writeText(w, http.StatusServiceUnavailable, "too many scrapes are under way here, or from your host; try again")
			return
		}
		defer places.GiveBack(host, 1)
		within(w, scrapeTimeout)
		next.ServeHTTP(w, r)
	})
}
