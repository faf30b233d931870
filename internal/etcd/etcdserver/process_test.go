package etcdserver_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
)

// childDir is the environment variable that makes this test binary a process
// that runs an etcd in the directory it names.
const childDir = "UNDERSTUDY_TEST_ETCD_DIR"

// childMember makes that process a member: NAME=ADDRESS.
const childMember = "UNDERSTUDY_TEST_ETCD_MEMBER"

// child runs an etcd, says on stdout where it serves or why it does not, and
// ends with its stdin: with its parent, whatever becomes of that.
func child(dir string) int {
	settings := etcdserver.Settings{DataDir: dir}
	settings.Member.Name, settings.Member.PeerAddr, _ = strings.Cut(os.Getenv(childMember), "=")
	start := etcdserver.Start
	if settings.Member.Name != "" {
		start = runs
	}
	s, err := start(context.Background(), settings)
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println("ready:", s.Endpoints()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		return 1
	}
	return 0
}

// runs is Start of a member that ends by itself.
func runs(_ context.Context, settings etcdserver.Settings) (*etcdserver.Server, error) {
	s, err := etcdserver.Launch(settings)
	if err != nil {
		return nil, err
	}
	err = <-s.Err()
	return s, errors.Join(err, s.Close())
}

// childPatience is how long a child lives at most, so that one that says nothing fails its test.
const childPatience = 2 * time.Minute

// startChild runs an etcd in a process of its own and returns the one line it
// says. Kill stops it by SIGKILL.
func startChild(t *testing.T, dir string, env ...string) (said string, kill func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), childPatience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(append(os.Environ(), childDir+"="+dir), env...)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err = bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Errorf("the child said nothing: got %v, want no error", err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if stderr.Len() > 0 {
			t.Errorf("etcd wrote to stderr: %s, want nothing there", stderr.Bytes())
		}
	}
	return strings.TrimSpace(said), kill
}

func TestSurvivesSIGKILL(t *testing.T) {
	dir := t.TempDir()
	said, kill := startChild(t, dir)
	endpoint, ready := strings.CutPrefix(said, "ready: ")
	if !ready {
		t.Fatal(said)
	}
	put(t, dial(t, endpoint), "k", "v")

	_, err := etcdserver.Start(t.Context(), etcdserver.Settings{DataDir: dir})
	if !errors.Is(err, etcdserver.ErrLocked) || !strings.Contains(err.Error(), "locked by process") {
		t.Errorf("while another process uses the directory: got %v, want etcdserver.ErrLocked and \"locked by process\"", err)
	}

	kill()
	s := start(t, etcdserver.Settings{DataDir: dir})
	if got := get(t, dial(t, s.Endpoints()...), "k"); got != "v" {
		t.Errorf("after SIGKILL: got %q, want \"v\"", got)
	}
}

// A directory may be in use by an etcd that knows nothing of the lock file.
func TestRefusesDirectoryOfAForeignEtcd(t *testing.T) {
	dir := t.TempDir()
	said, kill := startChild(t, dir)
	defer kill()
	if !strings.HasPrefix(said, "ready: ") {
		t.Fatal(said)
	}
	if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	_, err := etcdserver.Start(t.Context(), etcdserver.Settings{DataDir: dir})
	if !errors.Is(err, etcdserver.ErrLocked) || !strings.Contains(err.Error(), "another etcd") {
		t.Errorf("got %v, want etcdserver.ErrLocked and \"another etcd\"", err)
	}
}

// etcd ends the process, or panics, when it finds damaged data; here both must
// be errors. In a process of its own, because what etcd had started by then
// stays behind.
func TestDamagedDataIsAnError(t *testing.T) {
	tests := map[string]func(t *testing.T, member string){
		"garbage in the log": func(t *testing.T, member string) {
			logs, err := filepath.Glob(filepath.Join(member, "wal", "*.wal"))
			if err != nil || len(logs) == 0 {
				t.Fatalf("write-ahead log: got %d files, error %v, want at least one", len(logs), err)
			}
			for _, path := range logs {
				write(t, path, strings.Repeat("garbage", 1000))
			}
		},
		"a file in place of a folder": func(t *testing.T, member string) {
			snap := filepath.Join(member, "snap")
			if err := os.RemoveAll(snap); err != nil {
				t.Fatal(err)
			}
			write(t, snap, "")
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := etcdserver.Start(t.Context(), etcdserver.Settings{DataDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			damage(t, filepath.Join(dir, "member"))
			said, kill := startChild(t, dir)
			defer kill()
			t.Log(said)
			if !strings.HasPrefix(said, "error: ") || !strings.Contains(said, "restore the directory, or move it away") {
				t.Errorf("it said %q, want an error with what to do", said)
			}
		})
	}
}

// A member that was restored from an older copy of its directory lacks what the others know
// that it had. raft panics then, in a goroutine of its own.
func TestAnOldCopyOfAMembersDataIsAnError(t *testing.T) {
	first, second := one(t, "a"), one(t, "b")
	first.Member.Founds = true
	a := start(t, first)
	client := dial(t, a.Endpoints()...)
	awaitVersion(t, etcdserver.PeerURL(first.Member.PeerAddr, etcdserver.TLS{}))
	url := etcdserver.PeerURL(second.Member.PeerAddr, etcdserver.TLS{})
	if _, err := client.MemberAddAsLearner(t.Context(), []string{url}); err != nil { // its silence deposes no leader
		t.Fatal(err)
	}
	second.Member.InitialCluster = "a=" + etcdserver.PeerURL(first.Member.PeerAddr, etcdserver.TLS{}) + ",b=" + url
	catchUp := func() {
		t.Helper()
		b, err := etcdserver.Launch(second)
		if err != nil {
			t.Fatal(err)
		}
		for b.Embedded().Server.AppliedIndex() < a.Embedded().Server.AppliedIndex() {
			select {
			case err := <-b.Err():
				t.Fatal(err)
			case <-time.After(time.Millisecond):
			}
		}
		// What b has acknowledged reaches a before this question: else a would send it again later.
		if err := b.Embedded().Server.LinearizableReadNotify(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	catchUp()
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(second.DataDir)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		put(t, client, "k", "v")
	}
	catchUp()
	said, kill := startChild(t, old, childMember+"=b="+second.Member.PeerAddr)
	defer kill()
	t.Log(said)
	if !strings.HasPrefix(said, "error: ") || !strings.Contains(said, "masterctl member replace --yes b") {
		t.Errorf("it said %q, want an error with what to do", said)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
