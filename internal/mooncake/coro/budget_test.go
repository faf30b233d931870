package coro_test

import (
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/mooncake/coro"
)

// A large request waits for memory before it is read, and no longer than a frame may
// take. Small ones go on.
func TestLargeRequestsAreBounded(t *testing.T) {
	const large = 256 << 10
	r := newRig(t, coro.Limits{Budget: coro.NewBudget(large), Frame: time.Second}, nil)
	write(t, r.raw(t), frame(0, wait, strings.Repeat("x", large), ""))
	<-r.waiting // and has all that there is
	good := r.dial(t)
	if got, _, err := good.Call(t.Context(), echo, body("small")); err != nil || got != "small" {
		t.Errorf("a small request beside it: got %q, %v; want \"small\" and no error", got, err)
	}
	closes(t, r, frame(0, echo, strings.Repeat("y", large), ""))
	if !strings.Contains(r.log.String(), "too many large requests and answers") {
		t.Errorf("the log says %q, want why", r.log.String())
	}
	close(r.released)
	want := strings.Repeat("y", large)
	if got, _, err := good.Call(t.Context(), echo, body(want)); err != nil || got != want {
		t.Errorf("a large request after it: got %d bytes, %v; want %d and no error", len(got), err, large)
	}
}

// Answers that nobody reads take no more memory than there is for them: who asks for
// more is cut off.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const large = 16 // MiB, more than the system takes without a reader
	r := newRig(t, coro.Limits{Budget: coro.NewBudget(large << 20)}, nil)
	request := frame(0, much, strings.Repeat("x", large), "")
	silent := r.raw(t)
	if _, err := silent.Write(request); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err != nil { // the answer is there
		t.Fatal(err)
	}
	closes(t, r, request)
	if !strings.Contains(r.log.String(), "too many large requests and answers") {
		t.Errorf("the log says %q, want why", r.log.String())
	}
	if got, _, err := r.dial(t).Call(t.Context(), much, body("")); err != nil || got != "" {
		t.Errorf("a small answer beside it: %v", err)
	}
	silent.Close()
	until(t, "there is room again", func() bool {
		got, _, err := r.dial(t).Call(t.Context(), much, body(strings.Repeat("x", large)))
		return err == nil && len(got) == large<<20
	})
}
