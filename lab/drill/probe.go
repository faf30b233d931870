package drill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/lab/cluster"
)

// An answer is the outcome of one call that was sent to one node directly: not through the
// client package, which would try another node, nor through a proxy with a fault.
type answer struct {
	write     bool // the call would change something
	sent, got time.Duration
	kind      errs.Kind // errs.OK: the node has served it
	term      uint64
	hint      string // the leader that the answer names
	err       error
}

func (a answer) String() string {
	what := "a read"
	if a.write {
		what = "a write"
	}
	return fmt.Sprintf("%s sent at %v and answered at %v: %v (term %d)", what, a.sent, a.got, a.kind, a.term)
}

// A prober sends calls to one node continuously, half of them reads.
type prober struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	answers []answer
}

const (
	probeCalls = 8 // under way at once
	// probePause is the time from the start of one call to the next, in each of probeCalls.
	probePause = 2 * time.Millisecond
	// maxAnswers bounds the answers that are kept; probing ends when it is reached.
	maxAnswers = 200_000
)

// probe begins to send calls to a node, each with a time limit. Writes reserve
// a few bytes under keys of their own.
func (e *Env) probe(ctx context.Context, n *cluster.Node, limit time.Duration) *prober {
	p := &prober{}
	ctx, p.stop = context.WithCancel(ctx)
	objects := pb.NewObjectServiceClient(n.Conn)
	writer := uuid.NewString()
	for i := range probeCalls {
		write := i%2 == 1
		p.running.Go(func() {
			pause := time.NewTicker(probePause)
			defer pause.Stop()
			for ctx.Err() == nil && p.count() < maxAnswers {
				a := e.ask(ctx, objects, write, writer, limit)
				if ctx.Err() == nil {
					p.add(a)
				}
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return p
}

type probers []*prober

func (e *Env) probeAll(ctx context.Context) (all probers) {
	for _, n := range e.cluster.Nodes {
		all = append(all, e.probe(ctx, n, time.Second))
	}
	return all
}

func (p probers) stop() {
	for _, one := range p {
		one.stop()
	}
}

func (p probers) end() (answers []answer) {
	for _, one := range p {
		answers = append(answers, one.end()...)
	}
	return answers
}

func (e *Env) ask(ctx context.Context, objects pb.ObjectServiceClient, write bool, writer string, limit time.Duration) answer {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a := answer{write: write, sent: e.Now()}
	var header interface{ GetHeader() *pb.ResponseHeader }
	if write {
		header, a.err = objects.PutStart(ctx, &pb.PutStartRequest{
			RequestId: 1 + rand.Uint64N(1<<62), ClientId: writer, Key: "probe/" + uuid.NewString(), Size: 1,
		})
	} else {
		header, a.err = objects.ExistKey(ctx, &pb.ExistKeyRequest{Key: "probe"})
	}
	a.got = e.Now()
	if a.err == nil {
		a.term = header.GetHeader().GetTerm()
		return a
	}
	failed, from := rpcerr.Parse(a.err)
	a.kind, a.term, a.hint = failed.Kind, from.Term, from.Leader
	switch {
	case from.NodeID == "": // nobody has answered
		a.kind = errs.Unresolved
	case a.kind == errs.NoAvailableHandle: // the node serves, but its memory is full
		a.kind = errs.OK
	}
	return a
}

func (p *prober) add(a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = append(p.answers, a)
}

func (p *prober) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.answers)
}

// refusals counts the answers of a kind to calls that were sent at or after from.
func (p *prober) refusals(kind errs.Kind, from time.Duration) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.answers {
		if a.kind == kind && a.sent >= from {
			n++
		}
	}
	return n
}

func (p *prober) end() []answer {
	p.stop()
	p.running.Wait()
	return p.answers
}

// fenced checks that no answer of a term serves a call that was sent at or after from. A call
// that was sent earlier may be answered later, since a write in the journal stays true.
func (e *Env) fenced(answers []answer, term uint64, from time.Duration) {
	e.result.violate("F", 0)
	silent := 0
	for _, a := range answers {
		switch {
		case a.kind == errs.NotLeader:
			silent++
		case a.kind == errs.OK && a.term <= term && a.sent >= from:
			e.result.violate("F", 1, "a node whose right to answer may have ended has served "+a.String())
		}
	}
	e.result.Counts["probes"] += int64(len(answers))
	e.result.Counts["probes_not_leader"] += int64(silent)
}
