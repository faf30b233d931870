package app

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/promote"
)

// A systemd hears what a process reports.
type systemd struct {
	t        *testing.T
	messages chan string
}

// newSystemd makes this process one that a systemd has started.
func newSystemd(t *testing.T) *systemd {
	t.Helper()
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	conn, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", at.Name)
	t.Setenv("WATCHDOG_USEC", "60000") // 60 ms
	s := &systemd{t, make(chan string, 1<<16)}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			select {
			case s.messages <- string(b[:n]):
			default: // nobody waits for any
			}
		}
	}()
	return s
}

// hears waits until a message has all of some lines.
func (s *systemd) hears(lines ...string) {
	s.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case message := <-s.messages:
			missing := func(line string) bool { return !slices.Contains(strings.Split(message, "\n"), line) }
			if !slices.ContainsFunc(lines, missing) {
				return
			}
		case <-deadline:
			s.t.Fatalf("messages to systemd in 30 s: got none with all of %q, want one", lines)
		}
	}
}

func TestSystemdHearsOfReadinessAndEnd(t *testing.T) {
	s := newSystemd(t)
	etcd := etcdtest.Start(t).Endpoints()
	primary := run(t, settings(config.Primary, "a", etcd))
	s.hears("WATCHDOG=1", "READY=1", "STATUS=serves in term 1")
	standby := run(t, settings(config.Standby, "b", etcd))
	s.hears("WATCHDOG=1", "READY=1", "STATUS=could take over")
	standby.end()
	s.hears("STOPPING=1")
	primary.end()
}

// A hungNode does not answer: it waits for a lock, say.
type hungNode struct {
	node
	hangs chan struct{} // until it is closed
	asked chan struct{}
}

func (n hungNode) promoteStatus() promote.Status {
	select {
	case n.asked <- struct{}{}:
	default:
	}
	<-n.hangs
	return promote.Status{}
}

func TestSystemdHearsNothingOfANodeThatHangs(t *testing.T) {
	s := newSystemd(t)
	a, err := New(settings(config.Primary, "a", nil), "v-test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer a.closeListeners()
	hung := hungNode{newLoneNode(a), make(chan struct{}), make(chan struct{}, 1)}
	a.node = hung
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.notifySystemd(ctx) }()
	<-hung.asked
	select {
	case message := <-s.messages:
		t.Errorf("heard %q of a node that hangs, want nothing", message)
	case <-time.After(200 * time.Millisecond): // several times the watchdog
	}
	close(hung.hangs)
	s.hears("WATCHDOG=1")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was canceled", err)
	}
}
