package coro

import (
	"bufio"
	"errors"
	"io"
	"net"
	"testing"
)

// FuzzClient has a server answer anything: the client gets what the answer says or an
// error, and makes no room for what is announced only.
func FuzzClient(f *testing.F) {
	answer := func(r response, body string) []byte {
		b := make([]byte, responseHeader)
		putResponse(b, r)
		return append(b, body...)
	}
	f.Add(answer(response{body: 3}, "abc"))
	f.Add(answer(response{code: 4, body: 3}, "abc"))
	f.Add(answer(response{body: MaxAnswer}, "abc"))
	f.Add(answer(response{seq: 9, body: 1}, "a"))
	f.Add([]byte{Magic, 0, 0})
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.ReadFull(theirs, make([]byte, requestHeader+4))
			_, _ = theirs.Write(sent)
			_ = theirs.Close()
		}()
		c := &Client{nc: ours, in: bufio.NewReaderSize(ours, readBuffer), MaxBody: 1 << 20}
		got, _, err := c.Call(t.Context(), 7, func(b []byte) []byte { return append(b, "body"...) })
		_ = ours.Close()
		<-done
		var refused *Error
		if err == nil && (len(got) > len(sent) || sent[2] != 0) || errors.As(err, &refused) && refused.Code == 0 {
			t.Fatalf("answer %x: got %q, error %v, want no more than was sent, or an error with its code", sent, got, err)
		}
	})
}
