package rpc

import (
	"math/bits"
	"sync"

	"github.com/understudy-store/understudy/internal/security/share"
)

// holders are a budget of bytes, with the connections that hold some of them. When a host has
// all of its share, its connection with the most is closed, not the one that needs a few more:
// there may be many peers behind one address.
type holders struct {
	*share.Budget

	mu sync.Mutex // taken last
	of map[string]*holdersOfHost
}

// sizes is how many bits a number of bytes may have.
const sizes = 64

// holdersOfHost are connections by the number of bits in their number of bytes. So the one
// with the most bytes is found at once, up to a factor of two.
type holdersOfHost struct {
	all    int
	bySize [sizes]map[*countedConn]struct{}
}

func newHolders(b *share.Budget) *holders {
	return &holders{Budget: b, of: make(map[string]*holdersOfHost)}
}

func sizeOf(bytes int64) int { return bits.Len64(uint64(bytes)) }

// move notes that a connection has another size.
func (h *holders) move(c *countedConn, from, to int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	host := h.of[c.peer]
	if host == nil {
		host = new(holdersOfHost)
		h.of[c.peer] = host
	}
	if from > 0 {
		delete(host.bySize[from], c)
		host.all--
	}
	if to > 0 {
		if host.bySize[to] == nil {
			host.bySize[to] = make(map[*countedConn]struct{})
		}
		host.bySize[to][c] = struct{}{}
		host.all++
	}
	if host.all == 0 {
		delete(h.of, c.peer)
	}
}

// larger returns the connection of a host with the most bytes, up to a factor of two, if these
// are more than a size; else nil.
func (h *holders) larger(peer string, size int) *countedConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	host := h.of[peer]
	if host == nil {
		return nil
	}
	for i := sizes - 1; i > size; i-- {
		for c := range host.bySize[i] {
			return c
		}
	}
	return nil
}
