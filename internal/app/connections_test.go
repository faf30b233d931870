package app

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
)

// Who opens as many connections as can be opened takes none of others, and none of
// this process's own files.
func TestConnectionBudget(t *testing.T) {
	for _, tc := range []struct {
		descriptors, http int
		total, peer       int64
	}{
		{64, 8, 32, 16}, {1024, 128, 512, 256}, {2000, 250, 1000, 500}, {20_000, 512, 18_464, 9_232}, {1 << 20, 512, 65_536, 32_768},
	} {
		b := newConnectionBudget(tc.descriptors, 0.5, zerolog.Nop())
		if b.Total != tc.total || b.Peer != tc.peer || b.http != tc.http {
			t.Errorf("%d descriptors: got %d connections, %d of one peer, %d of HTTP; want %d, %d, %d", tc.descriptors, b.Total, b.Peer, b.http, tc.total, tc.peer, tc.http)
		}
	}

	var log bytes.Buffer
	b := newConnectionBudget(64, 0.5, zerolog.New(&log))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	counted := b.listener(l)
	serving.Go(func() {
		for {
			c, err := counted.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				_, _ = c.Write([]byte("!"))
				_, _ = c.Read(make([]byte, 1))
			})
		}
	})
	// taken opens connections from an address until one is not served.
	taken := func(from string) (open []net.Conn) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		for {
			c, err := d.Dial("tcp", l.Addr().String())
			if err != nil {
				return open
			}
			if _, err := c.Read(make([]byte, 1)); err != nil {
				c.Close()
				return open
			}
			open = append(open, c)
		}
	}
	first, second := taken("127.0.0.1"), taken("127.0.0.2")
	rest := b.Total - b.Peer - b.Total/8
	if int64(len(first)) != b.Peer || int64(len(second)) != rest {
		t.Errorf("two peers: got %d and %d connections, want %d and %d", len(first), len(second), b.Peer, rest)
	}
	third := taken("127.0.0.3") // a standby, for example
	if int64(len(third)) != b.Few {
		t.Errorf("a third peer: got %d connections, want %d", len(third), b.Few)
	}
	for _, c := range slices.Concat(first, second, third) {
		c.Close()
	}
	l.Close()
	serving.Wait()
	if !strings.Contains(log.String(), `"peer":"127.0.0.3"`) || !strings.Contains(log.String(), "ulimit -n") {
		t.Errorf("the log does not say who was refused, and what helps: %s", log.String())
	}
	if !b.Empty() {
		t.Error("after all have ended, connections are counted")
	}
}
