package metadata

import (
	"sync"

	"github.com/understudy-store/understudy/internal/safeguard"
)

// MaxRequests is how many applied removals are remembered by request id. A
// caller that lost the answer repeats its call within seconds, most of them
// seconds without a primary, so that few other removals come between.
const MaxRequests = 1 << 17

// A requestLog remembers the request ids of the last removals applied, so that
// a repeated call gets the answer of the first one instead of removing a later
// object. It is part of the state: the oldest go by count, not by age, and so
// at the same commit on every node.
type requestLog struct {
	mu    sync.Mutex // guards all; a leaf
	ring  []uint64
	next  int
	known map[uint64]struct{}
}

// add remembers a request and returns the one it displaces, or 0. It reports
// false if the request is known already.
func (l *requestLog) add(request uint64) (displaced uint64, added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[request]; ok {
		return 0, false
	}
	if l.known == nil {
		l.known = make(map[uint64]struct{})
	}
	l.known[request] = struct{}{}
	if len(l.ring) < MaxRequests {
		l.ring = append(l.ring, request)
		return 0, true
	}
	displaced = l.ring[l.next]
	delete(l.known, displaced)
	l.ring[l.next] = request
	l.next = (l.next + 1) % MaxRequests
	return displaced, true
}

func (l *requestLog) has(request uint64) bool {
	if request == 0 || safeguard.Off(safeguard.RequestIDs) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.known[request]
	return ok
}

// all returns the requests, the oldest first.
func (l *requestLog) all() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(append([]uint64(nil), l.ring[l.next:]...), l.ring[:l.next]...)
}

// Applied reports whether a removal with a request id was applied, so that the
// call is a repeated one. The shard of its key must be locked.
func (s *Store) Applied(request uint64) bool { return s.requests.has(request) }
