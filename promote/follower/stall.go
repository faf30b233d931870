package follower

import (
	"cmp"
	"fmt"
	"time"

	"github.com/understudy-store/understudy/metadata"
)

// stallAfter is how long a watch may bring no commit although etcd's head has moved on. The
// reader begins its watch anew after 5 s without an event, and then after 10 s, so two watches
// in a row have brought nothing by then.
const stallAfter = 20 * time.Second

// A stall says for how long the watch owes commits that etcd's head says are there. The
// head is read by a call of its own, so it moves also if the watch brings nothing.
type stall struct {
	since time.Duration // by the clock; 0 if the watch owes nothing
	head  metadata.Seq  // as read last
	ended error         // why the last watch ended; nil if none did since a commit was applied
}

// readLocked takes in that etcd's head was read. Needs mu.
func (f *Follower) readLocked(head metadata.Seq) {
	switch {
	case head <= f.at.Head.Seq:
		f.stall.since = 0
	case f.stall.since == 0:
		f.stall.since = f.Clock()
	}
	f.stall.head = head
}

// watchEnded notes why a watch of the journal ended.
func (f *Follower) watchEnded(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stall.ended = err
}

// Stalled returns an error if the state is complete and cannot be brought up to date: the
// watch of the journal has brought nothing for StallAfter, though etcd's head has moved on.
// It returns nil again once something was applied.
func (f *Follower) Stalled() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stalledLocked()
}

func (f *Follower) stalledLocked() error {
	after := cmp.Or(f.StallAfter, stallAfter)
	if !f.complete || f.loss.Err != nil || f.stall.since == 0 || f.Clock()-f.stall.since < after {
		return nil
	}
	err := fmt.Errorf("its watch of etcd brings nothing: etcd's head is at sequence %d, and this node has applied nothing behind %d for more than %v",
		f.stall.head, f.at.Head.Seq, after)
	if f.stall.ended != nil {
		err = fmt.Errorf("%w (the last watch ended: %w)", err, f.stall.ended)
	}
	return err
}
