package drill

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/judge"
)

// work says what the recorded clients of an episode do. A zero field is its
// default.
type work struct {
	keys   int     // in use at once
	memory uint64  // bytes that each host lends
	rate   float64 // operations a second over all clients
	evicts bool    // memory is short, so objects that are not pinned may be evicted
	exact  bool    // no removals by pattern, which search all keys
	old    bool    // some nodes are of the last release
}

const (
	clients = judge.Clients
	// defaultRate keeps the history of an episode short enough to be judged within seconds,
	// and leaves CPU time for everything else.
	defaultRate = 1000
	// judgeTimeout bounds the end of a load with its judgement.
	judgeTimeout = 3 * time.Minute
)

// A load is the recorded clients of an episode, seen from a drill. All of what
// drills need of package judge stands in this file.
type load struct{ *judge.Load }

// config returns the configuration of the clients, except how they reach the cluster.
func (w *work) config() judge.Config {
	return judge.Config{
		Keys: w.keys, Memory: w.memory, Rate: cmp.Or(w.rate, defaultRate), NoPatterns: w.exact, Old: w.old, NoEviction: !w.evicts,
	}
}

// tenants reports whether some clients name a tenant, as on nodes with tenants all who
// write have to.
func (e *Env) tenants(w *work) bool { return !w.old && e.Access.Speaks().Fields.Tenants }

// arguments returns the arguments of nodes that serve the clients. It writes the quotas of
// their tenants to a file in dir.
func (w *work) arguments(dir string, tenants bool) ([]string, error) {
	if w.old {
		return nil, nil
	}
	args := []string{"--enable_offload", "--promotion_on_hit", "--promotion_admission_threshold=1"}
	if !tenants {
		return args, nil
	}
	c, file := w.config(), filepath.Join(dir, "quotas.yaml")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return append(args, "--enable_multi_tenants", "--tenant_quota_connector_uri="+file), os.WriteFile(file, []byte(c.Quotas()), 0o644)
}

// hasQuotas waits until the tenants may write.
func (e *Env) hasQuotas(ctx context.Context) {
	p, _ := e.primary(ctx, 0)
	until(ctx, time.Minute, "tenants have quotas", func(ctx context.Context) (bool, error) {
		now, err := p.Metrics(ctx)
		return now[`mooncake_tenant_quota_requested_bytes{tenant_id="`+judge.Tenant+`"}`] > 0, err
	})
}

func startLoad(ctx context.Context, c *cluster.Cluster, w work, seed uint64) (*load, error) {
	config := w.config()
	config.Client, config.Probes, config.Seed = c.ClientConfig(), c.Addrs(), seed
	l, err := judge.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	return &load{l}, nil
}

func (l *load) answers(ctx context.Context, n int64) {
	served := func() int64 {
		c := l.Counts()
		return int64(c.Calls - c.Unanswered)
	}
	want := served() + n
	until(ctx, time.Minute, fmt.Sprintf("the clients get %d more answers", n), func(context.Context) (bool, error) {
		return served() >= want, nil
	})
}

// failed counts the calls to which the cluster gave no answer, after all of the
// clients' own retries.
func (l *load) failed() int { return l.Counts().Unanswered }

// p99 returns the p99 latency of the calls that began between two times of the load's clock:
// of some kinds, or of all if none is named.
func (l *load) p99(from, to time.Duration, calls ...judge.Call) time.Duration {
	took := spent(l.History(), from, to, calls)
	if len(took) == 0 {
		do(fmt.Errorf("no client began a call of %v between %v and %v", calls, from, to))
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// spent returns the latencies of the clients' calls that began between two times.
func spent(history []judge.Record, from, to time.Duration, calls []judge.Call) (took []time.Duration) {
	for _, r := range history {
		isMeant := slices.Contains(calls, r.Call) || len(calls) == 0 && r.Call != judge.Mark
		if isMeant && r.Start >= from && r.Start < to && r.Client >= 0 {
			took = append(took, r.End-r.Start)
		}
	}
	return took
}

// slowest returns the latency of the clients' slowest call, and describes the calls that ended
// in a final error.
func (l *load) slowest() (took time.Duration, finals []string) {
	for _, r := range l.History() {
		if r.Call == judge.Mark || r.Client < 0 {
			continue
		}
		took = max(took, r.End-r.Start)
		if final(r.Kind) {
			finals = append(finals, fmt.Sprintf("%v: %v", r.Call, r.Kind))
		}
	}
	return took, finals
}

// final reports whether an error is final: it tells a client to give up, for another reason
// than the state or the owner of the object.
func final(k errs.Kind) bool {
	switch k {
	case errs.OK, errs.Unresolved, errs.ObjectNotFound, errs.ObjectExists, errs.InvalidWrite, errs.IllegalClient:
		return false
	default:
		return !k.Retryable()
	}
}

// A verdict is the judge's verdict with the figures for a result.
type verdict struct {
	judge.Verdict
	counts  map[string]int64
	slowest time.Duration // call of a client
	finals  []string      // calls that ended in a final error
}

func (l *load) judge(ctx context.Context, c *cluster.Cluster) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	if err := l.Stop(ctx); err != nil {
		return verdict{}, err
	}
	v, err := l.Judge(ctx, examinees(c), c.Endpoints(), c.Layout)
	if err != nil {
		return verdict{}, err
	}
	if v.Undecided > 0 {
		return verdict{}, fmt.Errorf("the history of %d keys is too entangled to be judged", v.Undecided)
	}
	n := l.Counts()
	slowest, finals := l.slowest()
	counts := map[string]int64{
		"calls": int64(v.Calls), "keys": int64(v.Keys), "calls_ok": int64(n.OK), "calls_ambiguous": int64(n.Ambiguous), "calls_unanswered": int64(n.Unanswered),
		"calls_final_error": int64(len(finals)), "looks": int64(v.Looks), "leases_kept": int64(v.Kept), "commits_read": int64(v.Commits),
	}
	maps.Copy(counts, l.OwnerCounts())
	return verdict{v, counts, slowest, finals}, nil
}

// examinees returns the nodes that the judge asks.
func examinees(c *cluster.Cluster) (list []judge.Node) {
	for _, n := range c.Alive() {
		list = append(list, judge.Node{Name: n.Name, Address: n.Conn.Target()})
	}
	return list
}

// compare judges the nodes of an episode that has no recorded clients.
func (e *Env) compare(ctx context.Context) {
	e.atRest(ctx)
	v, err := judge.Compare(ctx, examinees(e.cluster))
	if err != nil {
		do(fmt.Errorf("comparing the nodes: %w", err))
	}
	e.found(v)
	e.did("compared the nodes")
	e.lostStates()
}

func (e *Env) found(v judge.Verdict) {
	for letter, n := range v.Violations {
		e.result.violate(letter, n)
	}
	room := max(0, maxExamples-len(e.result.Examples))
	e.result.Examples = append(e.result.Examples, v.Examples[:min(len(v.Examples), room)]...)
}

// end stops the clients, and saves their history in dir if keep is set.
func (l *load) end(dir string, keep bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Stop(ctx) // does nothing if the load was judged
	if !keep {
		return nil
	}
	return l.Save(filepath.Join(dir, "history"))
}
