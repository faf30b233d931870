// Package waittest lets tests wait for what goes on beside them, without a fixed pause. It
// is for tests only, and must never judge what it has waited for.
package waittest

import (
	"bytes"
	"sync"
	"testing"
	"time"
)

// pause is between two questions: whoever asks without one takes the time of what it waits for.
const pause = 5 * time.Millisecond

// Until waits until so returns true, and fails the test if it does not within the limit.
func Until(t testing.TB, limit time.Duration, what string, so func() bool) {
	t.Helper()
	for end := time.After(limit); !so(); {
		select {
		case <-time.After(pause):
		case <-end:
			t.Fatalf("not so within %v: %s", limit, what)
		}
	}
}

// A Buffer may be read while others, such as a command or the log of a node, write to it.
type Buffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write appends to what is read.
func (s *Buffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String returns all that was written.
func (s *Buffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
