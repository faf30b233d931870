package rpcbench

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/lab/bench/caller"
	"github.com/understudy-store/understudy/lab/cluster"
)

// TestMain makes this binary a child of a cluster, when it was started as one.
func TestMain(m *testing.M) {
	if status, child := cluster.RunChild(); child {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}

// small is a run of all calls, in a while that tests can take.
func small() Options {
	o := Defaults()
	o.HA, o.Connections, o.Duration = []Mode{Off}, []int{3}, minDuration
	o.Segments, o.Objects = 4, 2000
	return o
}

func startLone(t *testing.T) *target {
	t.Helper()
	c, err := startTarget(t.Context(), t.TempDir(), Off, 4, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

func TestAllCells(t *testing.T) {
	o := small()
	o.HA = []Mode{Off, On}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	type id struct {
		ha       Mode
		batch    int
		call     string
		protocol Protocol
	}
	var have, want []id
	for _, c := range r.Cells {
		have = append(have, id{c.HA, c.Batch, c.Call, c.Protocol})
		if c.Connections != 3 || c.Calls == 0 || c.Keys == 0 || c.Seconds <= 0 || c.CallsPerSecond <= 0 || c.KeysPerSecond <= 0 || c.OtherProcessors < 0 {
			t.Errorf("got %+v, want calls of 3 connections, measured", c)
		}
		rpcs := int64(len(c.Latency))
		if c.Call == "put" && rpcs != 2 || c.Call != "put" && rpcs != 1 || c.Keys*rpcs != c.Calls*int64(c.Batch) {
			t.Errorf("got %+v, want as many keys as calls times batch", c)
		}
		for _, l := range c.Latency {
			if strings.HasPrefix(l.RPC, "Batch") != (c.Batch > 1) || l.P50 > l.P99 || l.P99 > l.Max || l.Max == 0 {
				t.Errorf("%s of a batch of %d: got %+v, want ascending latencies of the call of that size", c.Call, c.Batch, l)
			}
		}
	}
	for _, ha := range o.HA {
		for _, batch := range o.Batches {
			for _, call := range CallNames() {
				for _, p := range o.Protocols {
					want = append(want, id{ha, batch, call, p})
				}
			}
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("cells are %v, want %v", have, want)
	}
	if r.Processors == 0 || r.Go == "" || r.Segments != 4 || r.Objects != 2000 {
		t.Errorf("got %+v, want 4 segments, 2000 objects and the machine", r)
	}
}

// Masters with an etcd of their own are measured as others are.
func TestOwnEtcd(t *testing.T) {
	o := small()
	o.HA, o.Batches, o.Calls, o.Protocols = []Mode{Own, Alone}, []int{1}, []string{"get"}, []Protocol{Mooncake}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 2 || r.Cells[0].HA != Own || r.Cells[1].HA != Alone || r.Cells[0].Keys == 0 || r.Cells[1].Keys == 0 {
		t.Errorf("got cells %+v, want one of each mode, with keys", r.Cells)
	}
}

// Removals alone need puts, which are not reported.
func TestRemovalsAlone(t *testing.T) {
	o := small()
	o.Calls, o.Batches = []string{"remove"}, []int{7}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 2 || r.Cells[0].Call != "remove" || r.Cells[0].Keys == 0 || r.Cells[1].Keys == 0 {
		t.Errorf("got cells %+v, want two, with keys", r.Cells)
	}
}

// A group leaves only the pool behind.
func TestNothingIsLeft(t *testing.T) {
	c := startLone(t)
	pool, err := c.fill(t.Context(), 300)
	if err != nil {
		t.Fatal(err)
	}
	o := small()
	o.Calls = []string{"put"}
	g := group{shape: shape{connections: 2, batch: 4}, target: c, pool: pool, options: &o, space: 1}
	cells, err := g.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 2 || cells[0].Keys == 0 {
		t.Errorf("got cells %+v, want two, with keys", cells)
	}
	s, err := c.master.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := s.GetState().GetObjects(); n != 300 {
		t.Errorf("%d objects are left, want 300", n)
	}
}

// Every failed key ends the run, in both protocols, single and in batches.
func TestErrors(t *testing.T) {
	c := startLone(t)
	pool, err := c.fill(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	absent := [][]string{{keyOf(1 << 60)}, {pool[0], keyOf(1 << 60)}}
	there := [][]string{pool[:1], {keyOf(1 << 59), pool[0]}}
	for _, p := range []Protocol{GRPC, Mooncake} {
		one, err := caller.Dial(t.Context(), p, c.master.RPC)
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		for _, keys := range absent {
			if err := one.Exist(keys); err == nil {
				t.Errorf("%s: got no error for keys %v, want one, for one of them is absent", p, keys)
			}
			for name, do := range map[string]func([]string) error{"get": one.Get, "put end": one.PutEnd, "remove": one.Remove} {
				if err := do(keys); err == nil || !strings.Contains(err.Error(), "NOT_FOUND") && !strings.Contains(err.Error(), "HAS_LEASE") {
					t.Errorf("%s: %s of %d keys, one of them absent: got error %v, want NOT_FOUND or HAS_LEASE", p, name, len(keys), err)
				}
			}
		}
		for _, keys := range there {
			if err := one.PutStart(keys); err == nil || !strings.Contains(err.Error(), "ALREADY_EXISTS") {
				t.Errorf("%s: a put start of %d keys, one of them there: got error %v, want ALREADY_EXISTS", p, len(keys), err)
			}
		}
	}
}

// A master that says nothing more, or is gone, ends the run with a clear
// message.
func TestMasterThatIsLost(t *testing.T) {
	for _, p := range []Protocol{GRPC, Mooncake} {
		c := startLone(t)
		pool, err := c.fill(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		o := small()
		g := group{target: c, pool: pool, options: &o, shape: shape{connections: 2, batch: 1}, space: 1}
		get := calls()[0]
		for _, way := range []struct {
			lose func()
			want string
		}{
			{func() { _ = c.master.Signal(syscall.SIGSTOP) }, "the master does not answer within 300ms"},
			{c.master.Kill, "GetReplicaList: "},
		} {
			_ = c.master.Signal(syscall.SIGCONT)
			l, err := g.connect(t.Context(), p, 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.disconnect)
			way.lose()
			err = l.each(t.Context(), 300*time.Millisecond, func(w *worker) error {
				w.begin(get)
				return w.play(l.clock, get, func() bool { return false })
			})
			if err == nil || !strings.Contains(err.Error(), way.want) {
				t.Errorf("%s: %v, want %q", p, err, way.want)
			}
		}
	}
}

// A stranger's processor time is not the master's.
func TestProcessorTime(t *testing.T) {
	earlier := spent{master: 1, others: 10}
	if got, want := (spent{master: 3, others: 10.5}).since(earlier), (spent{2, 0.5}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (spent{master: 3, others: 9.9}).since(earlier); got.others != 0 {
		t.Errorf("got %v spent by others, want 0", got.others)
	}
	c := startLone(t)
	before, err := c.cpu()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.fill(t.Context(), 20_000); err != nil {
		t.Fatal(err)
	}
	after, err := c.cpu()
	if err != nil {
		t.Fatal(err)
	}
	if used := after.since(before).master; used <= 0 || used > 20 {
		t.Errorf("20,000 puts: got %v s of processor time of the master, want more than 0 and at most 20", used)
	}
	c.master.Kill()
	if _, err := c.cpu(); err == nil {
		t.Error("a master that is gone: got its processor time, want an error")
	}
}

func TestKeys(t *testing.T) {
	if k := keyOf(0x0123456789abcdef); k != "model-7b/layer-00/block-0123456789abcdef" || len(k) != 40 {
		t.Errorf("got %q of %d bytes, want model-7b/layer-00/block-0123456789abcdef of 40", k, len(k))
	}
	w := newWorker(nil, nil, 3, 2, 5)
	first, second := slices.Clone(w.fresh()), slices.Clone(w.fresh())
	if first[0] != keyOf(2<<48|5<<32) || len(first) != 3 || second[0] != keyOf(2<<48|5<<32|3) {
		t.Errorf("got %v, then %v; want three keys, then those that follow", first, second)
	}
	if l := w.leftover(); !slices.Equal(l, first) {
		t.Errorf("got %v left, want %v", l, first)
	}
	w.batch = 1000
	if l := w.leftover(); !slices.Equal(l, second) {
		t.Errorf("left are then %d keys, want %d", len(l), len(second))
	}
	if l := w.leftover(); l != nil {
		t.Errorf("got %d keys left in the end, want none", len(l))
	}
}

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"":                       func(*Options) {},
		"--ha is empty":          func(o *Options) { o.HA = nil },
		"--connections is 0":     func(o *Options) { o.Connections = []int{4, 0} },
		"--connections is 1001":  func(o *Options) { o.Connections = []int{1001, 4} },
		"--batch is 10001":       func(o *Options) { o.Batches = []int{10_001} },
		"--segments is 0":        func(o *Options) { o.Segments = 0 },
		"--objects is 127":       func(o *Options) { o.Objects = 127 },
		"--think is -1ns":        func(o *Options) { o.Thinks = []time.Duration{0, -1} },
		"--think is 2s":          func(o *Options) { o.Thinks = []time.Duration{2 * time.Second} },
		"--think is empty":       func(o *Options) { o.Thinks = nil },
		`--keys has "hot"`:       func(o *Options) { o.Choices = []Choice{"hot"} },
		"--rounds is 0":          func(o *Options) { o.Rounds = 0 },
		"--duration is 1ms":      func(o *Options) { o.Duration = time.Millisecond },
		`--calls has "PutStart"`: func(o *Options) { o.Calls = []string{"get", "PutStart"} },
		`--protocols has "http"`: func(o *Options) { o.Protocols = []Protocol{"http"} },
		"--protocols is empty":   func(o *Options) { o.Protocols = nil },
	} {
		o := Defaults()
		change(&o)
		err := o.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Two masters get the same calls, and each round of each is there.
func TestComparison(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := small()
	o.Before, o.Rounds, o.Batches = program, 3, []int{5}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 0 || len(r.Comparisons) != len(CallNames())*len(o.Protocols) {
		t.Fatalf("got %d cells and %d comparisons, want none and %d", len(r.Cells), len(r.Comparisons), len(CallNames())*len(o.Protocols))
	}
	for _, c := range r.Comparisons {
		if len(c.Before) != 3 || len(c.After) != 3 || c.Calls == 0 || c.Calls%3 != 0 {
			t.Errorf("got %+v, want three rounds of each, of 3 connections with equally many calls", c)
		}
	}
}

func TestRatios(t *testing.T) {
	c := Comparison{Before: []float64{4, 2, 8}, After: []float64{5, 5, 2}}
	before, after := c.Medians()
	lowest, highest := c.Spread()
	if before != 4 || after != 5 || c.Ratio() != 1.25 || lowest != 0.25 || highest != 2.5 {
		t.Errorf("got medians %v and %v, ratio %v from %v to %v; want 4 and 5, 1.25 from 0.25 to 2.5", before, after, c.Ratio(), lowest, highest)
	}
	if got := median([]float64{1, 2, 4, 3}); got != 2.5 {
		t.Errorf("got a median of %v, want 2.5", got)
	}
}

// A round leaves nothing behind that the next one would find.
func TestComparedRoundsLeaveNothing(t *testing.T) {
	o := small()
	o.Rounds = 2
	var loads [2]*load
	for i := range loads {
		c := startLone(t)
		pool, err := c.fill(t.Context(), 20)
		if err != nil {
			t.Fatal(err)
		}
		g := group{shape: shape{connections: 2, batch: 4}, target: c, pool: pool, options: &o, space: 1}
		if loads[i], err = g.connect(t.Context(), Mooncake, 1); err != nil {
			t.Fatal(err)
		}
		defer loads[i].disconnect()
	}
	list, err := compareCalls(t.Context(), &loads, calls()[2:], &o)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Calls != 2*list[1].Calls {
		t.Errorf("got %+v, want as many removals as puts, which are two calls", list)
	}
	for _, l := range loads {
		s, err := l.target.master.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := s.GetState().GetObjects(); n != 20 {
			t.Errorf("%d objects are left, want 20", n)
		}
	}
}

// A client that thinks calls less often, and says how long it thought.
func TestThinking(t *testing.T) {
	o := small()
	o.Calls, o.Batches, o.Protocols = []string{"put"}, []int{1}, []Protocol{Mooncake}
	o.Thinks, o.Choices = []time.Duration{0, 5 * time.Millisecond}, []Choice{Zipf}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 2 || r.Cells[0].ThoughtMicros != 0 || r.Cells[1].ThinkMicros != 5000 || r.Cells[1].ThoughtMicros < 5000 {
		t.Fatalf("got %+v, want a cell without pauses and one with pauses of 5 ms at least", r.Cells)
	}
	if c := r.Cells[1]; c.Calls > int64(3*c.Seconds*1000/5)+6 {
		t.Errorf("3 connections with pauses of 5 ms: got %d calls in %v s, want at most %d", c.Calls, c.Seconds, int64(3*c.Seconds*1000/5)+6)
	}
}

func TestThinkerCloses(t *testing.T) {
	th, err := newThinker(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- th.pause() }()
	if err := th.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a pause of an hour whose timer is closed: got no error, want one")
	}
}

func TestZipf(t *testing.T) {
	const n, draws = 1000, 200_000
	r, z := rand.New(rand.NewPCG(1, 2)), newZipf(n)
	var counts [n]int
	for range draws {
		counts[z.next(r)]++
	}
	for _, i := range []int{0, 1, 9, 99} {
		want := draws / z.zeta / math.Pow(float64(i+1), zipfExponent)
		if got := float64(counts[i]); math.Abs(got-want) > 0.2*want {
			t.Errorf("%d was chosen %v times, want about %.0f", i, got, want)
		}
	}
	for _, few := range []int{1, 2, 3} {
		z := newZipf(few)
		for range 1000 {
			if got := z.next(r); got < 0 || got >= few {
				t.Fatalf("a choice of %d: got %d, want 0 to %d", few, got, few-1)
			}
		}
	}
}

// A batch of Zipf's choice is a run of the pool.
func TestZipfBatches(t *testing.T) {
	pool := make([]string, 103)
	for i := range pool {
		pool[i] = keyOf(uint64(i))
	}
	w := newWorker(nil, pool, 10, 1, 1)
	w.zipf = newZipf(len(pool) / 10)
	first := 0
	for range 1000 {
		keys := w.stored()
		if len(keys) != 10 || !slices.Equal(keys, pool[slices.Index(pool, keys[0]):][:10]) {
			t.Fatalf("got %v, want a run of 10", keys)
		}
		if keys[0] == pool[0] {
			first++
		}
	}
	if first < 200 {
		t.Errorf("the first run came %d times of 1,000, want about a third", first)
	}
}

func TestPlot(t *testing.T) {
	o := small()
	o.Batches, o.Protocols, o.Connections = []int{4}, []Protocol{Mooncake}, []int{1, 2}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	charts := r.Charts()
	if len(charts) != 2 || len(charts[0].Lines) != len(CallNames()) || !slices.Equal(charts[0].Values, []string{"1", "2"}) {
		t.Fatalf("got %+v, want two charts of all calls, over 1 and 2 connections", charts)
	}
	if y := charts[0].Lines[0].Y; len(y) != 2 || y[1] != r.Cells[4].ServerMicrosPerKey {
		t.Errorf("got %v of %s, want the processor time by the key of two cells", y, charts[0].Lines[0].Name)
	}
}
