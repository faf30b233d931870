package command

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/ctl"
	"github.com/understudy-store/understudy/lab/bench"
	"github.com/understudy-store/understudy/lab/clitest"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/demo"
	"github.com/understudy-store/understudy/lab/replay"
	"github.com/understudy-store/understudy/lab/waittest"
)

// demoLoad is short, and large enough for eviction to have work.
var demoLoad = []string{"--requests=800"}

// What programs rely on in the demo's JSON.
type demoFields struct {
	OK             *bool            `json:"ok"`
	Violations     map[string]int   `json:"violations"`
	OutageMillis   *int64           `json:"outage_ms"`
	HitRate        map[string]any   `json:"hit_rate"`
	Objects        map[string]int   `json:"objects"`
	DigestEqual    *bool            `json:"digest_equal"`
	CallsPerSecond *float64         `json:"calls_per_s"`
	Latency        map[string]any   `json:"latency"`
	Checks         []map[string]any `json:"checks"`
}

func demoJSON(t *testing.T, args ...string) demoFields {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	o := run(t, append(append([]string{"demo", "-o", "json"}, demoLoad...), args...)...).Want(t, cli.StatusOK)
	var f demoFields
	if err := json.Unmarshal([]byte(o.Out), &f); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lost_puts", "resurrected", "wrong_bytes", "broken_leases"} {
		if n, there := f.Violations[name]; !there || n != 0 {
			t.Errorf("got violations %v, want each promise checked and none broken", f.Violations)
		}
	}
	switch {
	case f.OK == nil || !*f.OK, f.DigestEqual == nil || !*f.DigestEqual, f.OutageMillis == nil, f.CallsPerSecond == nil || *f.CallsPerSecond <= 0:
		t.Errorf("got %s, want ok, equal digests, an outage and calls a second", o.Out)
	case f.HitRate["before"] == nil || f.HitRate["after"] == nil:
		t.Errorf("got hit rates %v, want one before and one after", f.HitRate)
	case f.Objects["old_primary"] == 0 || f.Objects["new_primary"] == 0:
		t.Errorf("got objects %v, want some on both primaries", f.Objects)
	case f.Latency["BatchGetReplicaList"] == nil || f.Latency["BatchPutEnd"] == nil || len(f.Checks) < 4:
		t.Errorf("got latencies %v and checks %v, want those of reads and puts, and 4 checks", f.Latency, f.Checks)
	}
	if strings.ContainsAny(o.Err, "\r%") {
		t.Errorf("got the progress bar %q in a pipe, want none", o.Err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("got %v left behind, want nothing", left)
	}
	return f
}

func TestDemoKill(t *testing.T) {
	f := demoJSON(t, "--no-compare")
	if ms := *f.OutageMillis; ms < 500 || ms > 15000 {
		t.Errorf("got an outage of %d ms with a failover time of 1 s, want 0.5 to 15 s", ms)
	}
	if f.HitRate["undisturbed"] != nil {
		t.Errorf("got hit rates %v, want none of a second, undisturbed run", f.HitRate)
	}
}

// Over Mooncake's protocol, with clients who know the standby's address alone.
func TestDemoOverMooncake(t *testing.T) {
	for name, args := range map[string][]string{"by etcd": nil, "forwarded": {"--forward"}} {
		t.Run(name, func(t *testing.T) {
			f := demoJSON(t, append(args, "--no-compare", "--protocol=mooncake")...)
			if ms := *f.OutageMillis; ms < 500 || ms > 15000 {
				t.Errorf("got an outage of %d ms with a failover time of 1 s, want 0.5 to 15 s", ms)
			}
		})
	}
	run(t, "demo", "--forward").Want(t, cli.StatusUsage, "over the protocol mooncake only")
	run(t, "drill", "run", "1", "--as-original").Want(t, cli.StatusUsage, "over the protocol mooncake only")
	run(t, "demo", "--protocol=http").Want(t, cli.StatusUsage, `"http" is no protocol; there are grpc and mooncake`)
}

func TestDemoHandover(t *testing.T) {
	f := demoJSON(t, "--handover", "--failover-after=5s")
	if ms := *f.OutageMillis; ms > 4500 {
		t.Errorf("got an outage of %d ms, want a handover, which takes less than the failover time", ms)
	}
	if f.HitRate["undisturbed"] == nil {
		t.Errorf("got hit rates %v, want one of a second, undisturbed run", f.HitRate)
	}
}

// With --dir, data and logs stay; a trace is played; the shell's settings for
// other nodes do not matter.
func TestDemoOfATrace(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("UNDERSTUDY_ADDRESS", "127.0.0.1:1")
	t.Setenv("UNDERSTUDY_EVICTION_RATIO", "nonsense")
	var lines strings.Builder
	for i := range 40 {
		lines.WriteString(`{"timestamp": ` + strings.Repeat("1", 1+i/20) + `, "input_length": 1000, "output_length": 1, "hash_ids": [1, 2]}` + "\n")
	}
	file := filepath.Join(dir, "trace.jsonl")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(dir, "kept") // nobody has made it
	for range 2 {                      // the second demo finds what the first one has left
		// One worker, and this seed: a removal amid the handover would be half of the objects.
		run(t, "demo", "--handover", "--no-compare", "--workers=1", "--seed=1", "--trace", file, "--dir", kept).
			Want(t, cli.StatusOK, file+": 40 requests for 80 blocks, 2 of them distinct", "data and logs are under "+kept, "handing over half-way",
				"handover; no client got an answer for", "All promises were kept.")
	}
	if logs, _ := filepath.Glob(filepath.Join(kept, "*", "disturbed", "master", "log")); len(logs) != 2 {
		t.Errorf("got the logs %v, want two", logs)
	}
	run(t, "demo", "--trace", filepath.Join(dir, "none")).Want(t, cli.StatusFailed, "no such file")
}

// Ctrl-C in the middle leaves no process and no folder.
func TestDemoInterrupted(t *testing.T) {
	tmp := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "demo", "--no-compare", "--speed=1")
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+tmp)
	var said waittest.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	clitest.Eventually(t, "it plays", func() bool { return strings.Contains(said.String(), "half-way") })

	var children []int
	files, _ := filepath.Glob(filepath.Join(tmp, "*", "disturbed", "*", "ready.json"))
	for _, file := range files {
		var r app.Ready
		b, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(b, &r) != nil {
			t.Fatalf("%s: got %v, %s; want what a child is ready with", file, err, b)
		}
		children = append(children, r.PID)
	}
	if len(children) != 3 {
		t.Fatalf("got children %v, want 3", children)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != cli.StatusFailed {
		t.Errorf("the interrupted demo: got the end %v, want the exit status of a failure", err)
	}
	if !strings.Contains(said.String(), "error: interrupted") {
		t.Errorf("the interrupted demo: got %q, want error: interrupted", said.String())
	}
	for _, pid := range children {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("child %d still runs, want it ended", pid)
		}
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("got %v left behind, want nothing", left)
	}
}

func TestTimeoutEndsTheDemo(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	o := run(t, "demo", "--speed=1", "--timeout=2s").Want(t, cli.StatusFailed, "--timeout=2s has passed: ")
	if strings.Contains(o.Err, "the outcome is open") {
		t.Errorf("got %s, want no word of open outcomes", o.Err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("got %v left behind, want nothing", left)
	}
}

// startPair starts an etcd, a master and a standby that could take over.
func startPair(t *testing.T) (master, standby *cluster.Node) {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Config{
		Dir: t.TempDir(), ID: pb.DefaultClusterID, Etcd: 1, Names: []string{"a", "b"}, SessionTTL: 6 * time.Second, FailoverAfter: 3 * time.Second, LeaseTTL: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c.Nodes[0], c.Nodes[1]
}

func TestReplay(t *testing.T) {
	master, standby := startPair(t)
	b := clitest.Start(t, Command(), "replay", "-o", "json", "--address", master.RPC, "--requests=800")
	clitest.Eventually(t, "it plays", func() bool { return strings.Contains(b.Err.String(), "playing 800 requests") })
	master.Kill()
	clitest.Eventually(t, "the replay has ended", b.Ended)
	r := clitest.Decode[replay.Result](t, b.Wait().Want(t, cli.StatusOK))
	if r.Requests != 800 || r.Violations.Any() || r.Hits == 0 || r.Calls == 0 {
		t.Errorf("got %+v, want it measured, without violations", r)
	}
	if _, err := standby.UntilServes(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := "--address=" + standby.RPC
	masterctl := func(args ...string) clitest.Outcome { return clitest.Run(t, ctl.Command(), append(args, at)...) }
	unmounted := func() {
		t.Helper()
		if o := masterctl("segments").Want(t, cli.StatusOK); strings.Contains(o.Out, "host-") {
			t.Errorf("segments after a replay's end: got\n%s\nwant no memory of its hosts mounted", o.Out)
		}
	}
	unmounted()
	foreign := clitest.Start(t, ctl.Command(), "segments", "mount", "foreign", "--size=1MiB", at)
	clitest.Eventually(t, "it is mounted", func() bool { return strings.Contains(foreign.Err.String(), "stays mounted") })
	run(t, "replay", "--requests=10", at).Want(t, cli.StatusFailed, "other memory is mounted (foreign)", "--client_ttl")
	foreign.Interrupt().Want(t, cli.StatusOK)
	run(t, "replay", "--requests=200", "--capacity=2", "--hosts=2", "--prefix=mine/", at).
		Want(t, cli.StatusOK, "200 requests", "BatchPutStart", "No promise was broken.")
	unmounted()

	cut := clitest.Start(t, Command(), "replay", "--requests=800", "--speed=0.001", at)
	clitest.Eventually(t, "it plays", func() bool { return strings.Contains(cut.Err.String(), "playing 800 requests") })
	cut.Interrupt().Want(t, cli.StatusFailed, "No promise was broken.", "error: interrupted")
	unmounted()
}

func TestBenchRenewals(t *testing.T) {
	args := []string{"bench", "renewals", "--objects=2000", "--duration=300ms", "--rate=2000"}
	o := run(t, append(args, "-o", "json")...).Want(t, cli.StatusOK, "packed, 2000 renewals a second")
	r := clitest.Decode[bench.Renewals](t, o)
	if r.Packed.RenewalsPerSecond == 0 || r.Steady.BytesPerRenewal == 0 || r.Literal.RenewalsPerSecond == 0 || r.Txn128.RenewalsPerSecond == 0 {
		t.Errorf("got %+v, want it measured, without violations", r)
	}
	var table bytes.Buffer
	renewalsTable(&table, &r)
	clitest.Outcome{Out: table.String()}.Want(t, 0, "one lease and one put each", "packed, 2,000 a second", "times as fast")
}

func TestReportOfBrokenPromises(t *testing.T) {
	r := demo.Report{
		Violations: replay.Violations{LostPuts: 3}, Examples: []string{"object 7 is gone"},
		OutageMillis: 5123, Objects: demo.Objects{Old: 1000, New: 900},
		Settings: demo.Settings{Disturbance: "SIGKILL of the primary", Speed: 2, Workers: 8},
		Checks: []demo.Check{
			{Name: "no promise broken", Promise: true, Text: "lost puts 3"},
			{Name: "outage", Text: "too long"},
			{Name: "same state", OK: true, Promise: true},
		},
	}
	var b bytes.Buffer
	demoReport(&b, &r)
	clitest.Outcome{Out: b.String()}.Want(t, 0, "5,123 ms", "2 times as fast as it came", "BROKEN   no promise broken", "missed   outage", "ok       same state",
		"for example: object 7 is gone", "A PROMISE WAS BROKEN.")
}

// On a terminal a bar is drawn, and taken away at the end of its stage.
func TestProgressOnATerminal(t *testing.T) {
	var b waittest.Buffer
	p := newProgress(&b)
	p.terminal = true
	p.Stage("starting", 0)
	p.Stage("playing", 4)
	p.Done(2)
	p.Done(1) // out of order
	p.end()
	p.Done(3) // too late
	if s := b.String(); !strings.HasPrefix(s, "starting\n") || !strings.Contains(s, "(2/4)") || strings.Contains(s, "(1/4)") || strings.Contains(s, "(3/4)") || strings.Count(s, "\n") != 1 {
		t.Errorf("got %q, want one line for the start and one for the second step", s)
	}
}
