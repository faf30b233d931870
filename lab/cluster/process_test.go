package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/internal/app"
	"github.com/understudy-store/understudy/lab/cluster"
)

// TestMain makes this binary one of the children below, when it was started as
// one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		if run := children[os.Args[1]]; run != nil {
			run(strings.TrimPrefix(os.Args[len(os.Args)-1], "--ready-file="))
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m)
}

// children are what this binary can be started as. Each gets the path of its
// ready file.
var children = map[string]func(ready string){
	"good": func(ready string) {
		cluster.DieWithParent()
		term := catchSIGTERM() // before anybody may send it
		beReady(ready)
		<-term
	},
	"deaf": func(ready string) { signal.Ignore(syscall.SIGTERM); cluster.DieWithParent(); beReady(ready); select {} },
	"orphan": func(ready string) {
		cluster.DieWithParent()
		defer runtime.KeepAlive(newConnection()) // or the collector closes it
		beReady(ready)
		select {}
	},
	"mute": func(string) { cluster.DieWithParent(); fmt.Println("thinking"); select {} },
	"broken": func(string) {
		for i := range 20 {
			fmt.Println("line", i)
		}
		os.Exit(3)
	},
	"gives up": func(string) {},
	"nonsense": func(ready string) { cluster.DieWithParent(); publish(ready, []byte("nonsense")); select {} },
	"fails at the end": func(ready string) {
		cluster.DieWithParent()
		term := catchSIGTERM()
		beReady(ready)
		<-term
		fmt.Println("cannot tidy up")
		os.Exit(4)
	},
	// A parent that is killed, with a child of its own.
	"parent": func(dir string) {
		if _, err := cluster.StartProcess(context.Background(), "", filepath.Dir(dir), "orphan", "orphan"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		select {}
	},
}

func beReady(path string) {
	b, _ := json.Marshal(app.Ready{PID: os.Getpid(), NodeID: "n", RPC: "r:1", HTTP: "h:2", Etcd: []string{"e:3"}})
	publish(path, b)
}

// publish writes a file that appears whole.
func publish(path string, b []byte) {
	_ = os.WriteFile(path+".new", b, 0o600)
	_ = os.Rename(path+".new", path)
}

func catchSIGTERM() <-chan os.Signal {
	came := make(chan os.Signal, 1)
	signal.Notify(came, syscall.SIGTERM)
	return came
}

// witnessVariable names the address where somebody waits for a child's death.
const witnessVariable = "PROCS_TEST_WITNESS"

// newConnection opens a connection that is to end with this process.
func newConnection() net.Conn {
	c, err := net.Dial("tcp", os.Getenv(witnessVariable))
	if err != nil {
		panic(err)
	}
	return c
}

func start(t *testing.T, name string) *cluster.Process {
	t.Helper()
	p, err := cluster.StartProcess(t.Context(), "", t.TempDir(), name, name, "argument")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestStartAndStop(t *testing.T) {
	p := start(t, "good")
	if p.PID == 0 || p.NodeID != "n" || p.RPC != "r:1" || p.HTTP != "h:2" || len(p.Etcd) != 1 {
		t.Errorf("got %+v of a process that is ready, want node n at r:1 and h:2, one etcd", p.Ready)
	}
	if !p.Alive() {
		t.Error("the process does not run, want it alive")
	}
	if err := p.Stop(30 * time.Second); err != nil {
		t.Error(err)
	}
	if p.Alive() {
		t.Error("the process still runs, want it ended")
	}
	if err := p.Stop(time.Second); err != nil {
		t.Errorf("stopping it again: got error %v, want none", err)
	}
	p.Kill()
}

// A child may be started again in the folder of one before, whose ready file
// counts for nothing.
func TestStartAgain(t *testing.T) {
	dir := t.TempDir()
	pids := map[int]bool{}
	for range 3 {
		p, err := cluster.StartProcess(t.Context(), "", dir, "same", "good", "x")
		if err != nil {
			t.Fatal(err)
		}
		p.Kill()
		pids[p.PID] = true
	}
	if len(pids) != 3 {
		t.Errorf("after 3 starts: got process ids %v, want 3", pids)
	}
}

func TestKill(t *testing.T) {
	p := start(t, "deaf")
	p.Kill()
	if p.Alive() {
		t.Error("the process still runs, want it ended")
	}
	p.Kill()
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal to it: got error %v, want os.ErrProcessDone", err)
	}
}

func TestStopOfADeafChild(t *testing.T) {
	p := start(t, "deaf")
	if err := p.Stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "deaf did not stop within 50ms and was killed") {
		t.Errorf("got error %v, want that it was killed after 50 ms", err)
	}
	if p.Alive() {
		t.Error("the process still runs, want it ended")
	}
}

func TestChildThatFailsAtTheEnd(t *testing.T) {
	p := start(t, "fails at the end")
	err := p.Stop(30 * time.Second)
	want := "fails at the end: exit status 4; the end of " + p.Log + ":\ncannot tidy up"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A child that does not become ready is gone when Start returns, and the error
// says where it printed, and what.
func TestChildrenThatDoNotBecomeReady(t *testing.T) {
	for name, want := range map[string]string{
		"broken":   "starting broken: it ended before it was ready: exit status 3; the end of LOG:\nline 10\nline 11\nline 12\nline 13\nline 14\nline 15\nline 16\nline 17\nline 18\nline 19",
		"gives up": "starting gives up: it ended before it was ready: exit status 0; the end of LOG:\n",
		"nonsense": "starting nonsense: its ready file: invalid character 'o' in literal null (expecting 'u'); the end of LOG:\n",
		"mute":     "starting mute: context canceled; the end of LOG:\nthinking",
	} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		if name == "mute" { // the caller has no patience once it has printed
			waiting.Go(func() { whenPrinted(t, filepath.Join(dir, name, "log"), "thinking", cancel) })
		}
		p, err := cluster.StartProcess(ctx, "", dir, name, name, "x")
		waiting.Wait()
		cancel()
		if p != nil || err == nil || err.Error() != strings.ReplaceAll(want, "LOG", filepath.Join(dir, name, "log")) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
}

// whenPrinted calls f as soon as a file holds a text.
func whenPrinted(t *testing.T, path, text string, f func()) {
	defer f()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
			return
		}
		select {
		case <-deadline:
			t.Errorf("%s after 20 s: got no %q in it, want it printed", path, text)
			return
		case <-tick.C:
		}
	}
}

func TestFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.StartProcess(t.Context(), "", file, "x", "good"); err == nil {
		t.Error("a start in a file: got no error, want one")
	}
}

// However a parent ends, its children end too: here it is killed without a word.
func TestChildrenDieWithTheirParent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(exe, "parent", filepath.Join(t.TempDir(), "x"))
	parent.Env = append(os.Environ(), witnessVariable+"="+l.Addr().String())
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Process.Kill(); _ = parent.Wait() }()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept() // the grandchild runs
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v while its parent lives, want the connection open", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v after its parent died, want the connection closed", err)
	}
}
