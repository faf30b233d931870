package kvpublisher

import (
	"bufio"
	"io"
	"net"
	"testing"
)

// FuzzSubscriber has a subscriber send anything: it is refused, or counts what it has
// subscribed to, and what it announces takes no memory.
func FuzzSubscriber(f *testing.F) {
	whole := append(greeting(), ready()...)
	f.Add(append(whole, 0, 1, 1))
	f.Add(append(whole, 0, 1, 0, flagLong, 0, 0, 0, 0, 0, 0, 0, 1, 1))
	f.Add(append(whole, flagLong, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF))
	f.Add(greeting()[:20])
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			_, _ = theirs.Write(sent)
			_ = theirs.Close()
		}()
		r := bufio.NewReader(ours)
		s := &subscriber{conn: ours, more: make(chan struct{}, 1)}
		if handshake(ours, r) == nil {
			_ = s.read(r)
		}
		_ = ours.Close()
		<-done
		if s.topics < 0 || s.topics > len(sent) {
			t.Fatalf("%x: got %d subscriptions, want 0 to %d", sent, s.topics, len(sent))
		}
	})
}
