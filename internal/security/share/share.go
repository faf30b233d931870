// Package share divides what is scarce between peers, so that one of them, or a few,
// leave something to the others.
//
// A peer is what callers of one name have together: an identity, where callers have
// roles, and else an address. It must never be what a caller may choose for itself.
package share

import (
	"fmt"
	"net"
	"sync"
)

// A Rule says how much there is of something, and how much of it one peer may have.
// The zero Rule has no bounds.
type Rule struct {
	What    string // in the plural, for people
	Setting string // that raises Total; empty if none does
	Total   int64
	Peer    int64 // of one peer
	Few     int64 // an eighth of Total is for peers that have no more than this
}

// NewRule returns a rule by which one peer may have a part of all.
func NewRule(what, setting string, total int64, part float64, few int64) Rule {
	return Rule{what, setting, total, max(1, int64(float64(total)*part)), min(few, total/16)}
}

// Room reports whether a peer that has its own of all may have n more.
func (r Rule) Room(all, own, n int64) bool {
	most := r.Total
	if own+n > r.Few {
		most -= r.Total / 8
	}
	return r.Total == 0 || all+n <= most && own+n <= r.Peer
}

// Refuse says why a peer that has its own of all may not have n more, and what to do;
// nothing if it may.
func (r Rule) Refuse(peer string, all, own, n int64) string {
	if r.Room(all, own, n) {
		return ""
	}
	raise := "--peer-share"
	if r.Setting != "" {
		raise = "--" + r.Setting + " or " + raise
	}
	return fmt.Sprintf("%d more %s are too many: %q has %d of all %d; there can be %d, of one peer %d, and an eighth is kept for peers with few; remove some, or raise %s",
		n, r.What, peer, own, all, r.Total, r.Peer, raise)
}

// A Budget counts what peers have. Its zero value has no bounds. It is safe for
// concurrent use.
type Budget struct {
	Rule

	mu      sync.Mutex
	all     int64
	of      map[string]int64
	waiting []*line // of Wait; the first one's turn is next
}

// NewBudget returns a budget of which nobody has anything.
func NewBudget(r Rule) *Budget { return &Budget{Rule: r, of: make(map[string]int64)} }

// Take gives a peer n more, if there is room. It returns what all and the peer had.
func (b *Budget) Take(peer string, n int64) (taken bool, all, own int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, own = b.all, b.of[peer]
	if !b.Room(all, own, n) {
		return false, all, own
	}
	b.take(peer, n)
	return true, all, own
}

// GiveBack takes n back from a peer.
func (b *Budget) GiveBack(peer string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.of[peer] -= n; b.of[peer] == 0 {
		delete(b.of, peer)
	}
	b.serve()
}

// Empty reports whether nobody has anything.
func (b *Budget) Empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all == 0 && len(b.of) == 0
}

// Host returns the peer that a caller without an identity counts as: its address, or of
// IPv6, where one host has many, the network of 64 bits.
func Host(from net.Addr) string {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return from.String()
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, err := address.Prefix(64)
	if err != nil {
		return address.String()
	}
	return network.String()
}
