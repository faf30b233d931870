package app

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// The system keeps few bytes for a peer that reads nothing.
func TestUnreadBytesInTheSystem(t *testing.T) {
	l, err := listen("127.0.0.1:0", "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if err := peer.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	kept, some := 0, make([]byte, 4<<10)
	for err == nil {
		_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) // the system takes what it takes at once
		var n int
		n, err = c.Write(some)
		kept += n
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) || kept > 512<<10 {
		t.Errorf("the system keeps %d bytes for a peer that reads nothing (%v), want 512 KiB at most", kept, err)
	}
	t.Logf("it keeps %d bytes", kept)
}
