package ctl

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// silentMember returns the address of a member of etcd that takes connections and never answers,
// and a channel with an element for each connection.
func silentMember(t *testing.T) (address string, taken chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken = make(chan struct{}, 100)
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			taken <- struct{}{}
		}
	}()
	return l.Addr().String(), taken
}

// Commands end with their time limit, or by Ctrl-C, while no member of an etcd that demands a
// user answers.
func TestSilentEtcdThatDemandsAUser(t *testing.T) {
	t.Parallel()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"status": {"status"}, "doctor": {"doctor"}, "a read": {"exists", "k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, taken := silentMember(t)
			second, _ := silentMember(t)
			args = append(args, "--etcd-endpoints", first+","+second, "--etcd-user=root", "--etcd-password-file="+password)
			begun := time.Now()
			o := clitest.Run(t, Command(), append(args, "--timeout=1s")...)
			if took := time.Since(begun); took > 4*time.Second || o.Status == cli.StatusOK || !strings.Contains(o.Out+o.Err, "etcd") {
				t.Errorf("with a limit of 1 s it ended after %v, and said:\n%s%s\nwant 4 s at most, and an error about etcd", took, o.Out, o.Err)
			}
			for len(taken) > 0 {
				<-taken
			}
			b := clitest.Start(t, Command(), args...)
			<-taken
			begun = time.Now()
			b.Interrupt().Want(t, cli.StatusFailed, "interrupted")
			if took := time.Since(begun); took > 4*time.Second { // it would try for 5 s
				t.Errorf("it ended %v after it was interrupted, want 4 s at most", took)
			}
		})
	}
}
