package client_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
)

// waits makes a call while the client's clock runs fast: it advances by half a second whenever
// the node is asked whether it leads. It returns the error of the call, and how long the call
// took. If the node was not asked for a second, the time counts from then on: a busy machine
// stopped this process, and the client waits anew.
func waits(t *testing.T, c *client.Client, by *atomic.Int64, n *node) (took time.Duration, err error) {
	t.Helper()
	done := make(chan error, 1)
	ctx := soon(t, 60*time.Second)
	go func() { _, err := c.ExistKey(ctx, "k"); done <- err }()
	last := time.Now()
	for asked := n.asked.Load(); ; {
		select {
		case err := <-done:
			return took, err
		case <-time.After(time.Millisecond):
			if now := n.asked.Load(); now > asked {
				if time.Since(last) > time.Second {
					took = 0
				}
				asked, last = now, time.Now()
				took += 500 * time.Millisecond
				by.Add(int64(500 * time.Millisecond))
			}
		}
	}
}

// If there is a higher term than the primary's that no node serves, the client drops the
// primary's answers for a while, but not for ever, whether that term was only announced or the
// cluster was started anew.
func TestHigherTermThatNobodyServes(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*cluster, *client.Client){
		"in an error": func(cl *cluster, c *client.Client) {
			cl.nodes[0].gate.Close(service.Hint{Term: 9})
			within(t, "the term to be known", func() bool { // a busy machine may need more than one call
				_, err := c.ExistKey(soon(t, 200*time.Millisecond), "k")
				wantKind(t, "nobody serves", err, errs.Unavailable)
				return err != nil && strings.Contains(err.Error(), cl.nodes[0].address)
			})
		},
		"announced": func(_ *cluster, c *client.Client) { client.Announce(c, "127.0.0.1:1", 9) },
		"served before": func(cl *cluster, c *client.Client) {
			cl.term = 8
			cl.lead(0)
			_, err := c.ExistKey(soon(t, 30*time.Second), "k")
			wantKind(t, "in term 9", err, errs.OK)
			cl.term = 0
		},
	} {
		cl := newCluster(t, 1)
		c, by := ahead(t, cl.nodes[0].address)
		begun := time.Now() // the clock does not stand still either
		begin(cl, c)
		n := cl.lead(0)
		took, err := waits(t, c, by, n)
		wantKind(t, name, err, errs.OK)
		if took+time.Since(begun) < 5*time.Second || took > 11*time.Second { // and while it was waited for an answer
			t.Errorf("%s: answers were taken after %v, want 10 s", name, took)
		}
		client.Announce(c, "127.0.0.1:1", 9)
		if took, err := waits(t, c, by, n); err != nil || took > 5*time.Second {
			t.Errorf("%s, announced again: got %v after %v, want an answer at once", name, err, took)
		}
		cl.term = 9
		cl.lead(0)
		_, err = c.ExistKey(soon(t, 30*time.Second), "k")
		wantKind(t, name+", later", err, errs.OK)
		cl.nodes[0].gate.Open(cl.newMaster(1))
		_, err = c.ExistKey(soon(t, 200*time.Millisecond), "k")
		wantKind(t, name+", before it was served", err, errs.Unavailable)
	}
}

// A client whose calls are short and far apart takes the answers of a cluster that began anew.
func TestSparseCallsAfterTheClusterBeganAnew(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 1)
	cl.term = 8
	cl.lead(0)
	c, by := ahead(t, cl.nodes[0].address)
	_, err := c.ExistKey(soon(t, 30*time.Second), "k")
	wantKind(t, "before", err, errs.OK)
	cl.term = 0
	cl.lead(0)
	within(t, "an answer of term 1", func() bool {
		_, err = c.ExistKey(soon(t, 200*time.Millisecond), "k")
		if err != nil {
			by.Add(int64(3 * time.Second))
		}
		return err == nil
	})
}

// An answer that was long under way does not make the client go back to a lower term, and nor
// does one that was asked for within 10 s of the first that was refused.
func TestLateAnswerOfAReplacedPrimary(t *testing.T) {
	now := 100 * time.Second
	announce, served := client.Terms(func() time.Duration { return now })
	if !served(1, now) {
		t.Error("an answer of the first term: got it refused, want it taken")
	}
	announce(2)
	for _, c := range []struct {
		at, begun time.Duration
		want      bool
	}{
		{101 * time.Second, 99 * time.Second, false},
		{200 * time.Second, 99 * time.Second, false},
		{200 * time.Second, 110 * time.Second, false},
		{200 * time.Second, 111 * time.Second, true},
	} {
		if now = c.at; served(1, c.begun) != c.want {
			t.Errorf("an answer at %v to a question of %v: got %v, want %v", c.at, c.begun, !c.want, c.want)
		}
	}
	announce(3)
	for _, at := range []time.Duration{300 * time.Second, 309 * time.Second} {
		if now = at; served(1, at) {
			t.Errorf("at %v an answer of term 1 is taken, want it refused until 310 s", at)
		}
	}
	if !served(3, now) {
		t.Error("an answer of the highest term: got it refused, want it taken")
	}
	if now = 400 * time.Second; served(1, now) {
		t.Error("an answer of term 1 is taken after one of term 3, want the 10 s to begin anew")
	}
}
