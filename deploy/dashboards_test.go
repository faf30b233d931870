package deploy_test

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
)

// A lab runs the program of that name.
type lab struct {
	t       *testing.T
	program string
	Nodes   []struct {
		PID       int
		RPC, HTTP string
	}
}

// startLab builds the program, and starts a cluster that ends with the test.
func startLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, program: filepath.Join(t.TempDir(), "lab")}
	build := exec.Command("go", "build", "-o", l.program, "./cmd/lab")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build of cmd/lab: got error %v, want none\n%s", err, out)
	}
	cluster := exec.Command(l.program, "cluster", "-o", "json", "--etcd-members=1", "--standbys=1", "--prometheus=false", "--", "--state-save-interval=500ms", "--quota_bytes=1GiB")
	cluster.Stderr = os.Stderr
	out, err := cluster.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cluster.Process.Signal(syscall.SIGINT)
		if err := cluster.Wait(); err != nil {
			t.Errorf("lab cluster: got exit %v, want 0", err)
		}
	})
	if err := json.NewDecoder(out).Decode(l); err != nil {
		t.Fatalf("lab cluster: got error %v, want JSON printed", err)
	}
	return l
}

// replay plays a load. It returns what waits for its end.
func (l *lab) replay(requests string) (wait func()) {
	l.t.Helper()
	var addresses []string
	for _, n := range l.Nodes {
		addresses = append(addresses, n.RPC)
	}
	var out bytes.Buffer
	cmd := exec.Command(l.program, "replay", "--cluster-id=lab", "--requests="+requests, "--address="+strings.Join(addresses, ","))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	return func() {
		if err := cmd.Wait(); err != nil {
			l.t.Errorf("lab replay: got exit %v, want 0\n%s", err, out.String())
		}
	}
}

// eventually waits until a query has an answer.
func eventually(t *testing.T, p prometheus, expr string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(scrapeEvery) {
		if ok, err := p.answers(expr); err != nil || time.Now().After(deadline) {
			t.Fatalf("%s after a minute: got no data, error %v, want an answer", expr, err)
		} else if ok {
			return
		}
	}
}

// has checks that a query had an answer.
func has(t *testing.T, p prometheus, what, expr string) {
	t.Helper()
	if ok, err := p.answers(expr); !ok || err != nil {
		t.Errorf("%s: got no data, error %v, want an answer to %s", what, err, expr)
	}
}

// All that our dashboard and Mooncake's ask has an answer in Prometheus, for a cluster with
// a load and a takeover.
func TestDashboardsHaveData(t *testing.T) {
	l := startLab(t)
	p := startPrometheus(t, []string{l.Nodes[0].HTTP, l.Nodes[1].HTTP})
	eventually(t, p, "sum(understudy_promotable) == 2") // it has scraped both
	wait := l.replay("1200")
	eventually(t, p, "sum(rate(master_evicted_key_count[5s])) > 0")
	wait() // an idle cluster is taken over in one step
	if err := syscall.Kill(l.Nodes[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, p, `sum(rate(understudy_takeover_duration_seconds_count[5s])) > 0`)
	put := strings.NewReplacer("$__rate_interval", "5s", "$job", sampleJob, "$instance", ".*")
	d, _ := readDashboard(t)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			has(t, p, panel.Title+" "+target.RefID, put.Replace(target.Expr))
		}
	}
	for what, expr := range mooncakeQueries(t) {
		has(t, p, "Mooncake's dashboard: "+what, expr)
	}
	for _, a := range d.Annotations.List {
		if a.Expr == "" { // of Grafana itself
			continue
		}
		if _, err := p.answers(put.Replace(a.Expr)); err != nil {
			t.Errorf("annotation %s: got error %v, want an answer or none", a.Expr, err)
		}
	}
}
