package app

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/understudy-store/understudy/internal/httpapi"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/share"
)

const (
	maxConnections     = 65_536 // of clients, on all ports but HTTP
	maxHTTPConnections = 512    // of each HTTP port
	maxEtcdConnections = 8_192  // of both ports of an etcd in this process
	// fewConnections is what another node or an operator needs. Several hosts that take
	// all that they can must not shut a standby out: it would not get the state, and
	// nobody could ask it for its own when the journal is lost.
	fewConnections = 16
	// fewMembers are the connections of several members on one host, of which each holds five.
	fewMembers = 64
	// ownDescriptors are kept for etcd, the journal, state files and other nodes: an
	// etcd in this process ends it when it cannot open its next file.
	ownDescriptors = 512
	// etcdDescriptors are those of one connection to that etcd: of the caller's, and of
	// both ends of the socket to which this process carries what it says.
	etcdDescriptors = 3
	// maxNamed lines a minute say that a connection was closed for its identity.
	maxNamed = 10
)

// A connectionBudget bounds the connections that clients hold, by what the operating
// system lets this process open. Past it a new connection is closed at once, so that
// its client does not wait for an answer.
type connectionBudget struct {
	*share.Budget               // on all ports but HTTP
	identities    *share.Budget // the same by whose certificates were shown; nil for those of etcd
	http          int           // of each HTTP port
	addresses     *share.Budget // the same by whole addresses; nil if those of a network count as one
	log           zerolog.Logger
	named         *access.FewLines // of connections that were closed for their identity
	refused       refusedConns
}

// refusedConns are how many connections were closed because there were too many.
type refusedConns struct{ ofPeers, ofIdentities atomic.Uint64 }

// newConnectionBudget shares out so many descriptors; one peer gets at most a part. A node
// that forwards calls may need a second one for each connection, to the primary.
func newConnectionBudget(descriptors int, part float64, forwards bool, log zerolog.Logger) *connectionBudget {
	http := min(maxHTTPConnections, descriptors/8)
	total := descriptors - min(ownDescriptors, descriptors/4) - 2*http
	if forwards {
		total /= 2
	}
	total = min(maxConnections, total)
	rule := share.NewRule("connections", "", int64(total), part, fewConnections)
	return &connectionBudget{
		Budget: share.NewBudget(rule), identities: share.NewBudget(rule), http: http,
		log: log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute}), named: access.NewFewLines(log, maxNamed),
	}
}

// newEtcdBudgets share out the connections to an etcd in this process, by how many descriptors
// there are: most for its clients, and a quarter for its other members, whom an address each tells
// from strangers in their network. They return how many descriptors are left.
func newEtcdBudgets(descriptors int, part float64, several bool, log zerolog.Logger) (clients, members *connectionBudget, left int) {
	n, ofMembers := min(maxEtcdConnections, descriptors/8), 0
	if several {
		ofMembers = max(n/4, min(n/2, fewMembers))
	}
	log = log.Sample(&zerolog.BurstSampler{Burst: 10, Period: time.Minute})
	budget := func(what string, n int) *connectionBudget {
		return &connectionBudget{Budget: share.NewBudget(share.NewRule(what, "", int64(n), part, fewConnections)), log: log}
	}
	clients, members = budget("connections to etcd", n-ofMembers), budget("connections of members of etcd", ofMembers)
	members.addresses = share.NewBudget(share.NewRule("", "", int64(ofMembers), part, fewConnections))
	members.Peer = members.Total - members.Total/4 // of a network
	return clients, members, descriptors - etcdDescriptors*n
}

// descriptors returns how many files and connections this process may have open.
func descriptors() (int, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("asking how many files may be open: %w", err)
	}
	return int(min(l.Cur, 1<<30)), nil
}

// admit counts a connection, if there is room for it, until leave is called.
func (b *connectionBudget) admit(from *net.TCPAddr) (leave func(), admitted bool) {
	peer, address := share.Host(from), from.IP.String()
	if !b.take(peer, b.Budget) {
		return nil, false
	}
	if b.addresses == nil {
		return func() { b.GiveBack(peer, 1) }, true
	}
	if !b.take(address, b.addresses) {
		b.GiveBack(peer, 1)
		return nil, false
	}
	return func() {
		b.addresses.GiveBack(address, 1)
		b.GiveBack(peer, 1)
	}, true
}

// admitAs counts a connection that was admitted for an identity, too, if that may have one more,
// until leave is called.
func (b *connectionBudget) admitAs(identity string, from net.Addr) (leave func(), admitted bool) {
	taken, open, own := b.identities.Take(identity, 1)
	if !taken {
		b.refused.ofIdentities.Add(1)
		b.named.WarnOf(identity).Str("identity", identity).Stringer("peer", from).Int64("connections", open).Int64("of_identity", own).
			Msg("too many connections of one identity; a new one was closed; --peer-share, and where it is low a higher ulimit -n, allow more")
		return nil, false
	}
	return func() { b.identities.GiveBack(identity, 1) }, true
}

func (b *connectionBudget) listener(l net.Listener) net.Listener { return &countedListener{l, b} }

// bound has a server of HTTP bound the connections of each identity, where callers have roles.
func (b *connectionBudget) bound(s *httpapi.Server, callers *access.Callers) {
	if callers != nil {
		s.BoundIdentities(callers, func() { b.refused.ofIdentities.Add(1) })
	}
}

// take counts a connection of a peer in a budget, if there is room for it, and logs if there is none.
func (b *connectionBudget) take(peer string, budget *share.Budget) bool {
	taken, open, ofPeer := budget.Take(peer, 1)
	if taken {
		return true
	}
	b.refused.ofPeers.Add(1)
	say := "too many " + b.What + "; a new one was closed"
	if b.Total < maxConnections {
		say += "; a higher ulimit -n allows more"
	}
	b.log.Warn().Str("peer", peer).Int64("connections", open).Int64("of_peer", ofPeer).Msg(say)
	return false
}

type countedListener struct {
	net.Listener
	budget *connectionBudget
}

// Accept returns the next connection that there is room for.
func (l *countedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp := c.(*net.TCPConn)
		if leave, ok := l.budget.admit(tcp.RemoteAddr().(*net.TCPAddr)); ok {
			return &countedConn{TCPConn: tcp, end: sync.OnceFunc(leave)}, nil
		}
		_ = tcp.SetLinger(0) // no TIME_WAIT: a peer may open any number of connections
		_ = tcp.Close()
	}
}

// A countedConn gives its place back when it is closed.
type countedConn struct {
	*net.TCPConn
	end func()
}

func (c *countedConn) Close() error {
	defer c.end()
	return c.TCPConn.Close()
}

// NetConn returns the connection itself, whose Close does not give the place back: for a
// server that goes on with the socket in another way, and closes the countedConn last.
func (c *countedConn) NetConn() net.Conn { return c.TCPConn }
