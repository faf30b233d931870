package netfault_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-store/understudy/lab/netfault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo serves connections by sending back what comes, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return l.Addr().String()
}

func listen(t *testing.T, target string) *netfault.Proxy {
	t.Helper()
	p, err := netfault.Listen(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *netfault.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// expect reads so much text, within twenty seconds.
func expect(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("got %q, error %v; want %q", got, err, text)
	}
}

// silent checks that nothing comes for a while.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := c.Read(make([]byte, 1))
	if netErr := net.Error(nil); n != 0 || !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Fatalf("got %d bytes, error %v; want none and a timeout", n, err)
	}
}

// dead checks that a connection ends with an error.
func dead(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := c.Read(make([]byte, 1))
	if netErr := net.Error(nil); err == nil || errors.As(err, &netErr) && netErr.Timeout() {
		t.Fatalf("got error %v, want the connection to be reset", err)
	}
}

// dropped waits until so many bytes were lost.
func dropped(t *testing.T, p *netfault.Proxy, want netfault.Bytes) {
	t.Helper()
	for began := time.Now(); p.Dropped() != want; time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%+v were dropped, want %+v", p.Dropped(), want)
		}
	}
}

// refused checks that a new connection is reset, before or after it is there.
func refused(t *testing.T, p *netfault.Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	dead(t, c)
}

func TestPasses(t *testing.T) {
	c := dial(t, listen(t, echo(t)))
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = c.Write(want)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes back, error %v; want the %d that were sent", len(got), err, len(want))
	}
}

func TestCutClosesAndRefuses(t *testing.T) {
	p := listen(t, echo(t))
	open := dial(t, p)
	send(t, open, "a")
	expect(t, open, "a")
	p.Set(netfault.Cut)
	dead(t, open)
	refused(t, p)
	p.Heal()
	again := dial(t, p)
	send(t, again, "b")
	expect(t, again, "b")
}

func TestStallHoldsEverything(t *testing.T) {
	p := listen(t, echo(t))
	open := dial(t, p)
	send(t, open, "a")
	expect(t, open, "a")
	p.Set(netfault.Stall)
	late := dial(t, p)
	for _, c := range []net.Conn{open, late} {
		send(t, c, "held")
		silent(t, c)
	}
	p.Heal()
	expect(t, open, "held")
	expect(t, late, "held")
}

func TestDelayKeepsOrder(t *testing.T) {
	p := listen(t, echo(t))
	c := dial(t, p)
	p.Set(netfault.SlowAnswers(100 * time.Millisecond))
	sent := time.Now()
	for _, s := range []string{"a", "b", "c"} {
		send(t, c, s)
	}
	expect(t, c, "abc")
	if took := time.Since(sent); took < 100*time.Millisecond {
		t.Errorf("the answer took %v, want at least 100ms", took)
	}
	p.Set(netfault.SlowAnswers(time.Hour))
	send(t, c, "d")
	silent(t, c)
	p.Heal()
	expect(t, c, "d")
}

// One direction is lost: the target gets what is sent, the answer goes.
func TestDropsOneDirection(t *testing.T) {
	for name, fault := range map[string]netfault.Fault{"answers": netfault.LoseAnswers, "requests": netfault.LoseRequests} {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan string, 1)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			p := listen(t, l.Addr().String())
			c := dial(t, p)
			far, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = far.Close() }()
			p.Set(fault)
			go func() {
				b := make([]byte, 4)
				n, _ := io.ReadFull(far, b)
				arrived <- string(b[:n])
			}()
			send(t, c, "sent")
			if name == "answers" {
				if got := <-arrived; got != "sent" {
					t.Fatalf("the target got %q, want %q", got, "sent")
				}
				send(t, far, "answer")
				dropped(t, p, netfault.Bytes{Down: 6})
			} else {
				dropped(t, p, netfault.Bytes{Up: 4})
			}
			silent(t, c)
			p.Heal()
			dead(t, c) // it would make no sense to go on
		})
	}
}

// Of two connections the one that has carried more falls silent, without a word. A new
// one passes, and the next fault resets it.
func TestLosesTheBusiest(t *testing.T) {
	p := listen(t, echo(t))
	busy, idle := dial(t, p), dial(t, p)
	send(t, idle, "a")
	expect(t, idle, "a")
	send(t, busy, "aaaa")
	expect(t, busy, "aaaa")
	p.LoseBusiest()
	send(t, busy, "b")
	silent(t, busy)
	send(t, idle, "b")
	expect(t, idle, "b")
	fresh := dial(t, p)
	send(t, fresh, "c")
	expect(t, fresh, "c")
	p.Heal()
	dead(t, busy)
	send(t, idle, "d")
	expect(t, idle, "d")
}

func TestNoTargetRefuses(t *testing.T) {
	p := listen(t, "")
	refused(t, p)
	p.SetTarget(echo(t))
	c := dial(t, p)
	send(t, c, "a")
	expect(t, c, "a")
}

// Whatever is set while connections come and go, no goroutine stays behind: goleak
// checks that at the end.
func TestChangesUnderLoad(t *testing.T) {
	p := listen(t, echo(t))
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(5 * time.Millisecond))
				_, _ = io.WriteString(c, "hello")
				_, _ = io.ReadFull(c, make([]byte, 5))
				_ = c.Close()
			}
		})
	}
	faults := []netfault.Fault{netfault.Cut, {}, netfault.Stall, {}, netfault.LoseAnswers, netfault.SlowAnswers(time.Millisecond), {}}
	for i := range 200 {
		p.Set(faults[i%len(faults)])
		probe, err := net.Dial("tcp", p.Addr())
		if err == nil {
			_ = probe.Close()
		}
	}
	close(stop)
	clients.Wait()
}
