package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// Who opens as many connections as can be opened takes none of others, and none of
// this process's own files.
func TestConnectionBudget(t *testing.T) {
	for _, tc := range []struct {
		descriptors, http int
		total, peer       int64
		forwards          bool
	}{
		{64, 8, 32, 16, false}, {1024, 128, 512, 256, false}, {2000, 250, 1000, 500, false}, {20_000, 512, 18_464, 9_232, false},
		{1 << 20, 512, 65_536, 32_768, false}, {1 << 20, 512, 65_536, 32_768, true}, {20_000, 512, 9_232, 4_616, true}, // two descriptors each
	} {
		b := newConnectionBudget(tc.descriptors, 0.5, tc.forwards, zerolog.Nop())
		if b.Total != tc.total || b.Peer != tc.peer || b.http != tc.http {
			t.Errorf("%d descriptors: got %d connections, %d of one peer, %d of HTTP; want %d, %d, %d", tc.descriptors, b.Total, b.Peer, b.http, tc.total, tc.peer, tc.http)
		}
	}

	var log bytes.Buffer
	b := newConnectionBudget(64, 0.5, false, zerolog.New(&log))
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
		t.Errorf("connections were refused: got the log %s, want in it the peer 127.0.0.3 and the advice ulimit -n", log.String())
	}
	if !b.Empty() {
		t.Error("all connections have ended: got some counted, want none: an ended one gives its place back")
	}
}

// An etcd in the process gets an eighth of the descriptors there are, three for each
// connection, and others what is left. A stranger leaves room for members, also of its own network,
// and one with many addresses for those of other networks.
func TestEtcdBudget(t *testing.T) {
	for _, tc := range []struct {
		descriptors                                     int
		several                                         bool
		clients, client, members, network, member, left int
	}{
		{1024, false, 128, 64, 0, 0, 1, 640}, {1024, true, 64, 32, 64, 48, 32, 640},
		{2000, true, 186, 93, 64, 48, 32, 1250}, {1 << 20, true, 6144, 3072, 2048, 1536, 1024, 1<<20 - 3*8192},
	} {
		clients, members, left := newEtcdBudgets(tc.descriptors, 0.5, tc.several, zerolog.Nop())
		got := []int64{clients.Total, clients.Peer, members.Total, members.Peer, members.addresses.Peer, int64(left)}
		if want := []int64{int64(tc.clients), int64(tc.client), int64(tc.members), int64(tc.network), int64(tc.member), int64(tc.left)}; !slices.Equal(got, want) {
			t.Errorf("%d descriptors: got %v connections of clients, of one, of members, of a network, of one, and left; want %v", tc.descriptors, got, want)
		}
		if !tc.several {
			continue
		}
		admitted := func(host string) bool {
			_, ok := members.admit(&net.TCPAddr{IP: net.ParseIP(host)})
			return ok
		}
		for admitted("2001:db8::bad") {
		}
		if !admitted("2001:db8::1") {
			t.Error("one stranger has all that it may: got a member of its network refused, want it admitted")
		}
		for i := 0; admitted(fmt.Sprintf("2001:db8::2:%x", i)); i++ {
		}
		if !admitted("2001:db9::1") || !admitted("10.0.0.1") {
			t.Error("one network has all that it may: got a member of another network refused, want it admitted")
		}
	}
}

// A connection keeps its place while a server goes on with its socket alone, and gives it
// back once.
func TestConnectionsOfALoopAreCounted(t *testing.T) {
	b := newConnectionBudget(64, 0.5, false, zerolog.Nop())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := coro.NewServer(&coro.Server{Open: func(*coro.Conn) coro.Handler { return echoes{} }, Loops: 1})
	served := make(chan error, 1)
	go func() { served <- s.Serve(b.listener(l)) }()
	var open []*coro.Client
	for range 8 {
		c, err := coro.Dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, _, err := c.Call(t.Context(), 1, func(b []byte) []byte { return append(b, 'a') }); err != nil {
				t.Fatal(err)
			}
		}
		open = append(open, c)
	}
	if _, n, _ := b.Take("somebody", 0); n != 8 {
		t.Errorf("%d connections are counted, want 8", n)
	}
	b.GiveBack("somebody", 0)
	for _, c := range open[:4] {
		c.Close()
	}
	if err := errors.Join(s.Stop(t.Context()), <-served); err != nil {
		t.Fatal(err)
	}
	if !b.Empty() {
		t.Error("all connections have ended: got some counted, want none: each gives its place back once")
	}
}

// echoes answers what it is asked.
type echoes struct{}

func (echoes) Call(_ context.Context, _ uint32, body string, reply []byte) ([]byte, error) {
	return append(reply, body...), nil
}
func (echoes) Quick(uint32) bool { return true }
func (echoes) Delivered(int)     {}
func (echoes) Close()            {}
