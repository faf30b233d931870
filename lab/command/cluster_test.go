package command

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// startLocal starts a cluster, and returns it as it was printed.
func startLocal(t *testing.T, args ...string) (*clitest.Background, local) {
	t.Helper()
	b := clitest.Start(t, Command(), append([]string{"cluster", "-o", "json"}, args...)...)
	var l local
	clitest.Eventually(t, "the cluster is printed", func() bool {
		if b.Ended() {
			t.Fatalf("lab cluster before it printed anything: got its end %+v, want it to run", b.Wait())
		}
		return json.Unmarshal([]byte(b.Out.String()), &l) == nil
	})
	return b, l
}

func TestClusterStaysUntilInterrupted(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	b, l := startLocal(t, "--standbys=1", "--prometheus=false")
	if len(l.Nodes) != 2 || len(l.Etcd) != 3 || l.Prometheus != "" {
		t.Fatalf("got %+v, want 2 nodes and 3 members", l)
	}
	var table strings.Builder
	if l.print(&table); !strings.Contains(table.String(), "UNDERSTUDY_ADDRESS="+l.Nodes[0].RPC+","+l.Nodes[1].RPC) {
		t.Errorf("printed %s, want what masterctl needs", table.String())
	}
	for _, n := range l.Nodes {
		if !strings.Contains(table.String(), "console: http://"+n.HTTP+"/ ") {
			t.Errorf("printed %s, want the console of %s", table.String(), n.Name)
		}
	}
	if err := syscall.Kill(l.Nodes[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clitest.Eventually(t, "the dead node is named", func() bool { return strings.Contains(b.Err.String(), "master has ended") })
	standby := []string{"--cluster-id", l.ClusterID, "--address", l.Nodes[1].RPC}
	run(t, append([]string{"replay", "--requests=5", "--timeout=30s"}, standby...)...).Want(t, cli.StatusOK) // the standby has taken over
	b.Interrupt().Want(t, cli.StatusOK)
	for _, p := range append(l.Nodes, l.Etcd...) {
		if syscall.Kill(p.PID, 0) == nil {
			t.Errorf("%s runs on, want no process left behind", p.Name)
		}
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("got %v left behind, want nothing", left)
	}
}

// A node goes on beside a witness when the other one dies with its member of etcd. What
// they store stays in a folder that is named from where the command runs.
func TestClusterWithWitness(t *testing.T) {
	t.Chdir(t.TempDir())
	b, l := startLocal(t, "--standbys=1", "--own-etcd", "--witness", "--prometheus=false", "--dir=kept")
	if len(l.Nodes) != 2 || len(l.Etcd) != 3 {
		t.Fatalf("got %+v, want 2 nodes and 3 members", l)
	}
	if err := syscall.Kill(l.Nodes[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	standby := []string{"--cluster-id", l.ClusterID, "--address", l.Nodes[1].RPC}
	run(t, append([]string{"replay", "--requests=5", "--timeout=30s"}, standby...)...).Want(t, cli.StatusOK)
	b.Interrupt().Want(t, cli.StatusOK)
	for _, p := range append(l.Nodes, l.Etcd...) {
		if syscall.Kill(p.PID, 0) == nil {
			t.Errorf("%s runs on, want no process left behind", p.Name)
		}
	}
	if kept, _ := filepath.Glob("kept/*/master/log"); len(kept) != 1 {
		t.Errorf("got logs %v, want one kept", kept)
	}
}

func TestClusterWithPrometheus(t *testing.T) {
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip("prometheus is not installed (Debian: apt-get install prometheus), so what it scrapes of a local stack is not checked")
	}
	dir := t.TempDir()
	t.Chdir("../..") // of the clone, with the alerts
	b, l := startLocal(t, "--standbys=1", "--etcd-members=1", "--dir", dir)
	for _, query := range []string{"sum(up)==2", "sum(understudy_promotable)==2"} {
		clitest.Eventually(t, "Prometheus answers "+query, func() bool { return answers(t, l.Prometheus+"/api/v1/query?query="+query) })
	}
	if rules := get(t, l.Prometheus+"/api/v1/rules"); !strings.Contains(rules, "UnderstudyNoPrimary") {
		t.Errorf("got rules %s, want ours", rules)
	}
	b.Interrupt().Want(t, cli.StatusOK)
	if kept, _ := filepath.Glob(filepath.Join(dir, "*", "prometheus", "log")); len(kept) != 1 {
		t.Errorf("got logs %v, want one kept", kept)
	}
}

// answers reports whether a query of Prometheus has a result.
func answers(t *testing.T, url string) bool {
	t.Helper()
	return strings.Contains(get(t, url), `"value":[`)
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // of this machine
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var text strings.Builder
	if err := resp.Write(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}
