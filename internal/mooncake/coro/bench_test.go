package coro_test

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// Many small requests that come at once: their answers go out together.
func BenchmarkPipelined(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := coro.NewServer(&coro.Server{Open: func(*coro.Conn) coro.Handler { return new(handler) }})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- s.Serve(l) }()
			b.Cleanup(func() {
				s.Disconnect()
				_ = s.Stop(b.Context())
				if err := <-served; err != nil {
					b.Error(err)
				}
			})
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			var all bytes.Buffer
			for seq := range uint32(n) {
				all.Write(frame(seq, echo, "a key of a block", ""))
			}
			answers := make([]byte, n*(16+16))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(all.Bytes()); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, answers); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
