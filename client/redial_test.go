package client_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// A load balancer leaves a connection at the former primary, and leads new ones to its
// successor, which cannot be reached at the address by which it is named.
func TestLoadBalancerKeepsTheConnectionToAFormerPrimary(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 2)
	for _, n := range cl.nodes {
		n.hint = "127.0.0.1:1"
	}
	l := newLink(t, cl.nodes[0].address)
	cl.lead(0)
	c, by := ahead(t, l.address)
	_, err := c.ExistKey(soon(t, 30*time.Second), "k")
	wantKind(t, "before", err, errs.OK)
	l.turn(cl.nodes[1].address)
	cl.lead(1)
	callLater(t, c, by)
}

// A name may come to mean another server, which refuses the calls of this client.
func TestAnotherServerAnswersOnAnOldConnection(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 1)
	cl.lead(0)
	stranger := newNode(cl, "stranger", "elsewhere")
	stranger.gate.Open(cl.newMaster(99))
	l := newLink(t, cl.nodes[0].address)
	c, by := ahead(t, l.address)
	_, err := c.ExistKey(soon(t, 30*time.Second), "k")
	wantKind(t, "before", err, errs.OK)
	l.turn(stranger.address)
	l.cut()
	within(t, "the stranger to answer", func() bool {
		_, _ = c.ExistKey(soon(t, 100*time.Millisecond), "k")
		return stranger.asked.Load() > 0
	})
	l.turn(cl.nodes[0].address)
	callLater(t, c, by)
}

// callLater demands that a client, for which a few seconds pass, finds the primary over a new
// connection.
func callLater(t *testing.T, c *client.Client, by *atomic.Int64) {
	t.Helper()
	by.Add(int64(4 * time.Second))
	_, err := c.ExistKey(soon(t, 30*time.Second), "k")
	wantKind(t, "over a new connection", err, errs.OK)
}
