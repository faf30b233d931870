package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/promote"
)

// asProgram in the environment makes this test binary the program itself.
const asProgram = "TEST_AS_PROGRAM"

// TestMain makes this binary the program, a node or an etcd, when it was started
// as one: the tests start it again as real processes.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	if status, child := cluster.RunChild(); child {
		os.Exit(status)
	}
	if cmd := nodeCommand(); cmd != nil {
		cluster.DieWithParent()
		os.Exit(app.Main(cmd, os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// nodeCommand is the program that a test started by its name, with the settings
// of the environment.
func nodeCommand() *cobra.Command {
	if os.Getenv(cluster.Parented) == "" || len(os.Args) < 2 {
		return nil
	}
	switch os.Args[1] {
	case "master":
		return app.Command("master", promote.Primary)
	case "standby":
		return app.Command("standby", promote.Standby)
	default:
		return nil
	}
}

// startEtcd runs an etcd in a process of its own until the test ends.
func startEtcd(t *testing.T) *cluster.Process {
	t.Helper()
	return start(t, t.TempDir(), "etcd", "__etcd", "--data-dir=data", "--listen=127.0.0.1:0")
}

func start(t *testing.T, dir, name string, args ...string) *cluster.Process {
	t.Helper()
	p, err := cluster.StartProcess(t.Context(), "", dir, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, printed(p))
		}
	})
	return p
}

// A node is a process, and a way to ask it.
type node struct {
	*cluster.Process
	t     *testing.T
	admin pb.AdminServiceClient
}

// local makes a node listen on free ports of this machine only, with short leases. Its term
// outlasts a stall of a slow machine.
var local = []string{"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--log-format=json",
	"--session-ttl=6s", "--failover-after=3s", "--handover-timeout=20s", "--default_kv_lease_ttl=1s"}

// startNode runs "master" or "standby" until the test ends, in a folder of its
// name under dir.
func startNode(t *testing.T, dir, name, program string, args ...string) *node {
	t.Helper()
	p := start(t, dir, name, append(append([]string{program}, local...), args...)...)
	conn, err := grpc.NewClient(p.RPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &node{p, t, pb.NewAdminServiceClient(conn)}
}

// printed is all that a process has printed so far.
func printed(p *cluster.Process) string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// until waits until a node's status is as wanted.
func (n *node) until(what string, cond func(*pb.StatusResponse) bool) *pb.StatusResponse {
	n.t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := n.admin.Status(n.t.Context(), &pb.StatusRequest{})
		if err == nil && cond(s) {
			return s
		}
		select {
		case <-deadline:
			n.t.Fatalf("node %s after 30 s: got status %v, error %v, want that it %s", n.Name, s, err, what)
		case <-tick.C:
		}
	}
}

func (n *node) serves() *pb.StatusResponse {
	n.t.Helper()
	return n.until("serves", func(s *pb.StatusResponse) bool { return s.GetNode().GetRole() == pb.Role_ROLE_PRIMARY })
}

func (n *node) promotable() *pb.StatusResponse {
	n.t.Helper()
	return n.until("could take over", func(s *pb.StatusResponse) bool { return s.GetNode().GetPromotable() })
}

// sameState demands that two nodes have the same digest at one sequence.
func sameState(t *testing.T, primary, follower *node) {
	t.Helper()
	a, err := primary.admin.Digest(t.Context(), &pb.DigestRequest{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := follower.admin.Digest(t.Context(), &pb.DigestRequest{Sequence: a.GetSequence()})
	if err != nil {
		t.Fatal(err)
	}
	if a.GetDigest() != b.GetDigest() {
		t.Errorf("digest at sequence %d: got %s on %s, want that of %s: %s", a.GetSequence(), b.GetDigest(), follower.Name, primary.Name, a.GetDigest())
	}
}

// gone waits until a process has ended by itself.
func gone(t *testing.T, p *cluster.Process) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for p.Alive() {
		select {
		case <-deadline:
			t.Fatalf("process %s: got it running after 30 s, want it ended by itself", p.Name)
		case <-tick.C:
		}
	}
}

// connect returns a client, closed with the test.
func connect(t *testing.T, c client.Config) *client.Client {
	t.Helper()
	cl, err := client.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// refused runs a program that must end with status 1, and returns what it says
// last: its error.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	text, status := runToEnd(t, args...)
	if status != 1 {
		t.Errorf("%v: exit status %d, want 1", args, status)
	}
	at := strings.LastIndex("\n"+text, "\nerror: ")
	if at < 0 {
		t.Fatalf("%v: got %q, want an error printed", args, text)
	}
	return strings.TrimSuffix(text[at:], "\n")
}

// runToEnd runs a program until it ends, and returns what it printed to stderr.
func runToEnd(t *testing.T, args ...string) (stderr string, status int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), cluster.Parented+"=1")
	stdin, err := cmd.StdinPipe() // the child ends with it
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	var out bytes.Buffer
	cmd.Stderr = &out
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// write writes a file for a program to read, and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// endpoints is the flag that names a process's etcd.
func endpoints(etcd *cluster.Process) string {
	return "--etcd_endpoints=" + strings.Join(etcd.Etcd, ",")
}

func sigterm(t *testing.T, p *cluster.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("SIGTERM to %s: got error %v, want it sent", p.Name, err)
	}
}

// drain reads a connection to its end.
func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
