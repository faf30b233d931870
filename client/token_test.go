package client_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
)

// A file whose reading hangs, as one on a file system that does not answer, holds up no call: all
// have the token that was read last, and one goroutine waits for the file. Once it can be read,
// its token counts.
func TestTokenFileThatHangs(t *testing.T) {
	cl := newCluster(t, 1)
	cl.lead(0)
	node, mine := issued(t, "caller")
	g := newGuarded(t, cl.nodes[0].address, node)
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, []byte("one\n"))
	ahead := new(atomic.Int64)
	c, err := client.NewAhead(client.Config{Addresses: []string{g.address}, TLSFiles: client.TLSFiles(mine), TokenFile: token}, ahead)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	call := func(when string) any {
		t.Helper()
		_, err := c.ExistKey(soon(t, 10*time.Second), "k")
		wantKind(t, when, err, errs.OK)
		return g.token.Load()
	}

	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(token, 0o600); err != nil { // to open it waits for one who writes
		t.Fatal(err)
	}
	release := func() *os.File {
		f, err := os.OpenFile(token, os.O_RDWR, 0) // which waits for nobody
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	t.Cleanup(func() { _ = release().Close() }) // whatever still reads it then ends
	for range 5 {
		ahead.Add(int64(2 * time.Second))
		if got := call("while the file hangs"); got != "Bearer one" {
			t.Fatalf("while the file hangs: the server saw %v, want the token of before", got)
		}
	}
	stacks := make([]byte, 1<<20)
	if n := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "files.Read("); n != 1 {
		t.Errorf("%d goroutines read the file, want 1", n)
	}

	writer := release()
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	write(t, token, []byte("two\n"))
	if _, err := writer.WriteString("three\n"); err != nil { // to the one that hangs
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); call("once it can be read") != "Bearer two"; ahead.Add(int64(2 * time.Second)) {
		if time.Now().After(deadline) {
			t.Fatal("the new token, 20 s after its file can be read: got it not in use, want it sent")
		}
	}
}
