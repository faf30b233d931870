package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

const (
	// neededEvery is how often a search looks whether calls still need a leader.
	neededEvery = 100 * time.Millisecond
	// probeTimeout bounds the question to one node. It is asked again.
	probeTimeout = time.Second
	// mostMisses is how many questions in a row may get no answer on a connection before
	// another connection is dialled: a router may have forgotten this one, or the host
	// may have lost its power. gRPC's own probes notice too late: a server forgets a
	// client after 10 s.
	mostMisses = int(lostAfter / probeTimeout)
)

// A candidate is a node that may lead. Fields but the first two are guarded by
// the finder's mutex.
type candidate struct {
	address string
	kick    chan struct{} // makes the search ask it now

	configured bool
	forgotten  bool
	hinted     uint64 // the highest term that it was said to lead
	conn       Conn   // nil until it is needed
	state      candidateState
	problem    error         // why it did not lead when it was asked last
	misses     int           // questions on conn without any answer, one after the other
	vain       time.Duration // since when conn has brought no leader, on the client's clock; 0 if no question did
	patience   time.Duration // for how long it may, from then on
}

// A candidateState is the result of asking a candidate, in this search.
type candidateState uint8

const (
	unasked  candidateState = iota
	silent                  // it cannot be reached, or does not answer
	ours                    // it is a node of this cluster
	foreign                 // it is not, or speaks another protocol
	refusing                // it is a node of this cluster, and refuses this client
)

func (c *candidate) closeLocked() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (f *finder) run(ctx context.Context) {
	watch := time.NewTicker(quietFor / 5)
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			for again := true; again && ctx.Err() == nil; again = f.goOn() {
				f.search(ctx)
			}
		case <-watch.C:
			if f.quiet() {
				_, _ = f.look()
			}
		}
	}
}

// goOn ends the searching, unless calls still wait for a leader: they rely on the search
// that they found in progress. It reports whether another search must follow.
func (f *finder) goOn() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.searching = f.current.Load() == nil && f.calls.Load() > 0
	return f.searching
}

// search asks all candidates, each at its own pace, until one of them leads or
// no call needs a leader any more.
func (f *finder) search(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var probing sync.WaitGroup
	defer probing.Wait()
	defer cancel()
	found := make(chan struct{}, 1)
	needed := time.NewTicker(neededEvery)
	defer needed.Stop()
	var asked []*candidate
	for {
		f.mu.Lock()
		for _, c := range f.candidates {
			if !slices.Contains(asked, c) {
				asked = append(asked, c)
				probing.Go(func() { f.probe(ctx, c, found) })
			}
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-found:
			return
		case <-f.arrivals:
		case <-needed.C:
			if f.calls.Load() == 0 {
				return
			}
		}
	}
}

// probe asks a candidate again and again whether it leads.
func (f *finder) probe(ctx context.Context, c *candidate, found chan struct{}) {
	pauses := newPauses()
	for {
		known := f.view.terms.highest.Load()
		conn, err := f.connection(c)
		if err != nil {
			f.note(c, silent, err)
			if !errors.Is(err, errUnusable) {
				return
			}
		} else if f.ask(ctx, c, conn) {
			notify(found)
			return
		}
		if f.view.terms.highest.Load() > known { // a node was elected, and serves soon
			pauses.Reset()
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-c.kick:
			pauses.Reset()
			if conn != nil {
				conn.ResetConnectBackoff()
			}
		case <-ctx.Done():
			return
		}
	}
}

// ask asks a candidate once. It reports whether it leads.
func (f *finder) ask(ctx context.Context, c *candidate, conn Conn) bool {
	one, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req := &pb.ServiceReadyRequest{ContractRevision: pb.ContractRevision}
	resp := new(pb.ServiceReadyResponse)
	failed := f.view.attempt(one, conn, opServiceReady, req, resp)
	switch {
	case failed == nil:
		f.note(c, ours, nil)
		return f.elect(c, conn, resp.GetHeader())
	case ctx.Err() != nil:
		return false
	case failed.settles && failed.err.Kind == errs.IllegalClient:
		f.note(c, refusing, failed.err)
	case !failed.repeat:
		f.note(c, foreign, failed.err)
	case failed.from.NodeID == "":
		f.note(c, silent, failed.err)
		f.missed(c, conn, one.Err() != nil)
	default:
		f.note(c, ours, failed.err)
		if failed.from.Leader != "" {
			f.hint(failed.from.Leader, failed.from.Term)
		}
	}
	f.outdated(c, conn)
	return false
}

// outdated gives up a connection that has brought no leader for a while, if none is known:
// the name may have another address by now, or a load balancer may lead new connections to
// another node.
func (f *finder) outdated(c *candidate, conn Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.conn != conn || f.current.Load() != nil {
		return
	}
	if c.vain == 0 {
		c.vain, c.patience = f.clock(), patience()
	}
	if f.clock()-c.vain < c.patience {
		return
	}
	if l := f.latest; l != nil && l.conn == conn {
		if f.silence(l) < c.patience {
			return // calls that are under way there may still be answered
		}
		f.latest = nil
	}
	c.conn = nil
	f.closeLater(conn)
}

// patience is for how long a connection may bring no leader: lostAfter, or a third less or
// more, since thousands of clients lose one leader at once.
func patience() time.Duration { return lostAfter*2/3 + rand.N(lostAfter*2/3) }

// missed takes note of a question without an answer, in time or at all.
func (f *finder) missed(c *candidate, conn Conn, timedOut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.conn != conn {
		return
	}
	if c.misses++; !timedOut {
		c.misses = 0
	}
	l := f.latest
	if l != nil && l.conn != conn {
		l = nil
	}
	if c.misses < mostMisses || l != nil && f.silence(l) < lostAfter {
		return
	}
	if c.conn = nil; l != nil {
		f.latest = nil
		f.current.CompareAndSwap(l, nil)
	}
	_ = conn.Close()
}

// note keeps the result of asking a candidate, and whether waiting is no use.
func (f *finder) note(c *candidate, state candidateState, problem error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.state, c.problem = state, problem
	if state != silent {
		c.misses = 0
	}
	f.met = f.met || state == ours
	fault := f.faultLocked()
	if fault != nil && f.fault != nil && fault.Kind == f.fault.Kind {
		return
	}
	// The search that has found a fault may go on for as long as there are calls.
	if f.fault = fault; fault != nil {
		f.wakeCallersLocked()
	}
}

// faultLocked returns why no search will find a leader, and nil if one may. Until this client
// has met a node of its cluster that takes it, waiting is no use if all nodes that answer
// refuse it, as they do for a wrong token, or are of other clusters: then the addresses are
// wrong, unless etcd may name better ones.
func (f *finder) faultLocked() *errs.Error {
	some := func(s candidateState) bool {
		return slices.ContainsFunc(f.candidates, func(c *candidate) bool { return c.state == s })
	}
	switch {
	case f.met || some(unasked):
		return nil
	case some(refusing):
		return &errs.Error{Kind: errs.IllegalClient, Op: "client", Detail: "nodes of this cluster refuse this client: " + f.whyLocked()}
	case some(foreign) && len(f.config.EtcdEndpoints) == 0:
		return &errs.Error{Kind: errs.InvalidParams, Op: "client", Detail: "no node of this cluster answers: " + f.whyLocked()}
	}
	return nil
}

// errUnusable is in the chain of errors about addresses that cannot be dialled.
var errUnusable = errors.New("the address cannot be used")

// errForgotten ends the questions to a candidate.
var errForgotten = errors.New("the address was replaced by newer ones")

// connection returns the connection to a candidate. It may not be up yet.
func (f *finder) connection(c *candidate) (Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, ErrClosed
	case c.forgotten:
		return nil, errForgotten
	case c.conn == nil:
		conn, err := f.config.Transport.Dial(c.address, f.config)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnusable, err)
		}
		c.conn, c.misses, c.vain = conn, 0, 0
	}
	return c.conn, nil
}
