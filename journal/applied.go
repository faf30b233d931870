package journal

import "sync"

// applied wakes up those who wait for a commit to be applied. A commit for which nobody
// waits costs it nothing.
type applied struct {
	mu   sync.Mutex
	next chan struct{} // nil if nobody waits
}

// Applied returns a channel that is closed when the next commit has been applied. Safe for
// concurrent use.
func (q *Queue) Applied() <-chan struct{} {
	q.applied.mu.Lock()
	defer q.applied.mu.Unlock()
	if q.applied.next == nil {
		q.applied.next = make(chan struct{})
	}
	return q.applied.next
}

func (a *applied) send() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next != nil {
		close(a.next)
		a.next = nil
	}
}
