package metrics

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/eviction"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/journal"
	"github.com/understudy-store/understudy/lab/lonetest"
	"github.com/understudy-store/understudy/leasesync"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/promote"
	"github.com/understudy-store/understudy/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var params = metadata.Params{LeaseTTL: 10 * time.Second, DiscardTimeout: 30 * time.Second, ReleaseTimeout: 600 * time.Second}

// A rig is a primary whose figures are read. Tests change what etcd and the
// cluster would say.
type rig struct {
	*Metrics
	t      testing.TB
	p      *lonetest.Primary
	master *service.Master
	status promote.Status // but for the position
	store  *metadata.Store
	clock  time.Duration
	head   journal.Head
	away   bool // etcd does not answer
	differ int  // settings
}

// newRig returns a primary with a segment of 1 MiB under the name "a".
func newRig(t testing.TB) *rig {
	t.Helper()
	p := lonetest.Start(t, metadata.Options{}, params, 1<<20)
	r := &rig{t: t, p: p, store: p.Store, status: promote.Status{
		Self:   promote.NodeInfo{ID: "n", Role: promote.Primary, Promotable: true, Version: "v1"},
		Leader: promote.Leader{NodeID: "n", Term: 1, State: promote.Serving},
	}}
	gate := service.NewGate()
	clk := func() time.Duration { return r.clock }
	calls := service.NewCounters()
	r.Metrics = New(Sources{
		Clock: clk, Gate: gate, Calls: calls, Renewals: new(leasesync.Counters), Evictions: new(eviction.Counters),
		Store: func() *metadata.Store { return r.store },
		Status: func() promote.Status {
			s := r.status
			if s.Position == (metadata.Position{}) && r.store != nil {
				s.Position = r.store.Position()
			}
			return s
		},
		Head: func(ctx context.Context) (journal.Cursor, error) {
			if r.away {
				<-ctx.Done()
				return journal.Cursor{}, ctx.Err()
			}
			return journal.Cursor{Head: r.head, Revision: 1}, nil
		},
		EtcdSize: func(context.Context) (used, quota uint64) {
			if r.away {
				return 0, 0
			}
			return 3 << 20, 16 << 20
		},
	})
	r.src.Certificates = func() map[string]time.Time { return map[string]time.Time{"node": time.Unix(1_800_000_000, 0)} }
	r.src.SettingsDiffer = func() int { return r.differ }
	calls.Reserved = r.Reserved
	r.master = service.NewMaster(service.Master{
		Settings: service.Settings{MaxSoftPin: time.Hour, SoftPinTTL: time.Minute}, Term: 1, Store: p.Store, Leases: p.Leases, Queue: p.Queue, Now: p.Now,
		Fence: func(context.Context) error { return nil }, Answers: func() bool { return true }, Liveness: service.NewLiveness(time.Minute, 0, clk, p.Store), Counters: calls,
		AllocationFailed: func(uint64, metadata.Time) {},
	})
	gate.Open(r.master)
	return r
}

// follow makes the rig look like a standby that stands at a position.
func (r *rig) follow(seq metadata.Seq, at metadata.Time) {
	r.status.Self.Role = promote.Standby
	r.status.Position = metadata.Position{Seq: seq, Term: 1, Time: at}
}

func (r *rig) put(size uint64, keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		start := service.PutRequest{Tenant: metadata.DefaultTenant, Client: segment.ClientID{1}, Config: service.PutConfig{Replicas: 1}}
		if _, err := r.master.PutStart(r.t.Context(), start, service.PutItem{Key: key, Size: size}); err != nil {
			r.t.Fatal(err)
		}
		end := service.UpdateRequest{Tenant: metadata.DefaultTenant, Client: segment.ClientID{1}, Selector: metadata.SelectMemory}
		if err := r.master.PutEnd(r.t.Context(), end, service.UpdateItem{Key: key}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// want compares some metrics with their text form.
func (r *rig) want(what, expected string, names ...string) {
	r.t.Helper()
	var withHelp strings.Builder
	for line := range strings.Lines(expected) {
		if name, kind, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			withHelp.WriteString("# HELP " + name + " " + help(name) + "\n# TYPE " + name + " " + kind + "\n")
			continue
		}
		withHelp.WriteString(strings.TrimSpace(line) + "\n")
	}
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(withHelp.String()), names...); err != nil {
		r.t.Errorf("%s: got %v, want no error", what, err)
	}
}

func help(name string) string {
	for _, f := range Families() {
		if f.Name == name {
			return f.Help
		}
	}
	return ""
}

// value returns a metric that has one value, and whether it is shown.
func (r *rig) value(name string) (float64, bool) {
	r.t.Helper()
	for _, f := range r.gather() {
		if f.GetName() == name && len(f.GetMetric()) == 1 {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
		}
	}
	return 0, false
}

func (r *rig) gather() []*dto.MetricFamily {
	r.t.Helper()
	all, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// values checks some metrics that have one value.
func (r *rig) values(what string, want map[string]float64) {
	r.t.Helper()
	for name, v := range want {
		if got, ok := r.value(name); !ok || got != v {
			r.t.Errorf("%s: %s is %v (shown: %v), want %v", what, name, got, ok, v)
		}
	}
}

// hidden checks that some metrics are not shown.
func (r *rig) hidden(what string, names ...string) {
	r.t.Helper()
	for _, f := range r.gather() {
		for _, name := range names {
			if f.GetName() == name {
				r.t.Errorf("%s: got %s shown, want it hidden", what, name)
			}
		}
	}
}
