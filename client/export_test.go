package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

// NewAhead returns a client whose clock runs ahead of the machine's.
func NewAhead(config Config, ahead *atomic.Int64) (*Client, error) {
	boot := clock.Boot()
	return newClient(context.Background(), config, func() time.Duration { return boot() + time.Duration(ahead.Load()) })
}

// Candidates returns how many addresses a client keeps.
func Candidates(c *Client) int {
	c.finder.mu.Lock()
	defer c.finder.mu.Unlock()
	return len(c.finder.candidates)
}

// ParseLeader reads the value of a leader key, as the default Transport does.
var ParseLeader = grpcTransport{}.ParseLeader

// Calls returns how many calls are in progress.
func Calls(c *Client) int64 { return c.finder.calls.Load() }

// Announce gives a client a leader as if it had read it in etcd.
func Announce(c *Client, address string, term uint64) { c.finder.announced(address, term) }

// Terms returns the methods announce and served of a client's terms, by a clock.
func Terms(now clock.Clock) (announce func(term uint64), served func(term uint64, begun time.Duration) bool) {
	t := &terms{clock: now}
	return t.announce, t.served
}
