package rpc

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/understudy-store/understudy/internal/security/share"
)

// Of two connections whose peers send without a pause one is served at a time, where there are
// two processors.
func TestFloodsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := newTestPacer()
		p.slots = share.NewSlots(p.clock, 2)
		holds := func() *holders { return newHolders(share.NewBudget(share.Rule{})) }
		read := func(c net.Conn) {
			if _, err := c.Read(make([]byte, len(http2.ClientPreface))); err != nil {
				t.Errorf("Read: got %v, want no error", err)
			}
		}
		var conns []net.Conn
		for range 2 {
			client, server := net.Pipe()
			defer client.Close()
			go func() {
				for {
					if _, err := client.Write([]byte(http2.ClientPreface)); err != nil {
						return
					}
				}
			}()
			conns = append(conns, newCountedConn(server, counting{calls: holds(), requests: holds(), open: new(openConns), pacer: p}))
		}
		time.Sleep(2 * time.Millisecond)
		read(conns[0])
		has := make(chan struct{})
		go func() { read(conns[1]); close(has) }()
		synctest.Wait()
		select {
		case <-has:
			t.Error("two floods: got both served at a time, want the second to wait for the first")
		default:
		}
		if err := conns[0].Close(); err != nil {
			t.Error(err)
		}
		began := p.clock()
		if <-has; p.clock() > began {
			t.Errorf("a flood has ended: got its slot kept for %v more, want it free at once", p.clock()-began)
		}
		_ = conns[1].Close()
	})
}
