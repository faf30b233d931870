package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/lab/demo"
	"github.com/understudy-store/understudy/lab/procs"
)

// asProgram in the environment makes the test binary masterctl.
const asProgram = "MASTERCTL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	child := len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__")
	if child || os.Getenv(asProgram) != "" {
		root := Command()
		root.AddCommand(demo.Children()...)
		os.Exit(Main(root))
	}
	goleak.VerifyTestMain(m)
}

// An outcome is what a command came to.
type outcome struct {
	code     int
	out, err string
}

// run runs masterctl in this process.
func run(t *testing.T, args ...string) outcome {
	t.Helper()
	var out, err bytes.Buffer
	code := runWith(t.Context(), &out, &err, args...)
	return outcome{code, out.String(), err.String()}
}

func runWith(ctx context.Context, out, err io.Writer, args ...string) int {
	root := Command()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(err)
	return Execute(ctx, root)
}

// want fails the test unless the command came to a status and said all that.
func (o outcome) want(t *testing.T, code int, texts ...string) outcome {
	t.Helper()
	if o.code != code {
		t.Fatalf("exit status %d, want %d\n%s%s", o.code, code, o.out, o.err)
	}
	for _, text := range texts {
		if !strings.Contains(o.out+o.err, text) {
			t.Errorf("%q is missing in:\n%s%s", text, o.out, o.err)
		}
	}
	return o
}

// decode reads the command's JSON. Fields that the result does not have are
// errors.
func decode[T any](t *testing.T, o outcome) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(o.out))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in:\n%s%s", err, o.out, o.err)
	}
	return v
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline.C:
			t.Fatalf("still not so: %s", what)
		case <-tick.C:
		}
	}
}

// A cluster is an etcd with nodes, all processes of their own.
type cluster struct {
	t     *testing.T
	dir   string
	flags []string // of all nodes
	etcd  *procs.Process
}

func startCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), flags: flags}
	c.etcd = c.start("etcd", "__etcd", "--listen=127.0.0.1:0", "--data-dir="+c.dir+"/etcd/data")
	return c
}

func (c *cluster) start(name string, args ...string) *procs.Process {
	c.t.Helper()
	p, err := procs.Start(c.t.Context(), c.dir, name, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(p.Kill)
	return p
}

// node starts a node of the cluster: command is __master or __standby.
func (c *cluster) node(name, command string) *procs.Process {
	c.t.Helper()
	return c.start(name, append([]string{
		command, "--etcd_endpoints=" + strings.Join(c.etcd.Etcd, ","), "--session-ttl=2s", "--node-id=" + name,
		"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--journal-compact=on", "--log-format=json",
	}, c.flags...)...)
}

// pair starts a master and a standby, and waits until that could take over.
func (c *cluster) pair() (master, standby *procs.Process) {
	c.t.Helper()
	master = c.node("a", "__master")
	c.serves("a", master)
	standby = c.node("b", "__standby")
	eventually(c.t, "b could take over", func() bool {
		_, b := statusBy(c.t, "b", "--address", master.RPC)
		return b.Promotable
	})
	return master, standby
}

// serves waits until a node serves.
func (c *cluster) serves(id string, at *procs.Process) {
	c.t.Helper()
	eventually(c.t, id+" serves", func() bool {
		s, _ := statusBy(c.t, id, "--address", at.RPC)
		return s.Leader != nil && s.Leader.NodeID == id
	})
}

// lone starts a master without a cluster.
func lone(t *testing.T, name string) *procs.Process {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	return c.start(name, "__master", "--enable_ha=false", "--node-id="+name,
		"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--log-format=json")
}

// statusBy returns the status, and in it the one node of an id.
func statusBy(t *testing.T, id string, where ...string) (s statusResult, n nodeResult) {
	t.Helper()
	o := run(t, append([]string{"status", "-o", "json"}, where...)...)
	if o.code != exitOK {
		return s, n
	}
	s = decode[statusResult](t, o)
	for _, node := range s.Nodes {
		if node.NodeID == id {
			n = node
		}
	}
	return s, n
}

// A background is a command that runs until it is interrupted.
type background struct {
	out, err safeBuffer
	cancel   context.CancelFunc
	done     chan int
}

func start(t *testing.T, args ...string) *background {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b := &background{cancel: cancel, done: make(chan int, 1)}
	go func() { b.done <- runWith(ctx, &b.out, &b.err, args...) }()
	t.Cleanup(func() { b.interrupt() })
	return b
}

// interrupt ends the command, as Ctrl-C does, and returns its exit status.
func (b *background) interrupt() int {
	b.cancel()
	code := <-b.done
	b.done <- code // for the next one who asks
	return code
}

// mount mounts a segment and returns when that is done.
func mount(t *testing.T, args ...string) *background {
	t.Helper()
	b := start(t, append([]string{"segments", "mount"}, args...)...)
	eventually(t, "it is mounted", func() bool {
		if len(b.done) > 0 {
			t.Fatalf("it ended: %s", b.err.String())
		}
		return strings.Contains(b.err.String(), "stays mounted")
	})
	return b
}

// A safeBuffer may be read while a command writes it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
