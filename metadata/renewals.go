package metadata

import "time"

// CollectRenewals calls emit with the leases of each shard that were renewed
// since they were journaled, at most about limit in all. Nothing is unmarked
// by it: a mark goes when a later call finds the lease journaled and not
// renewed again, or the object gone. So a batch that is not committed is
// simply collected once more.
//
// The slice passed to emit is reused. It reports whether the limit ended the
// collection; the next call goes on where this one stopped.
func (s *Store) CollectRenewals(from, limit int, emit func(shard uint16, renewals []Renewal)) (next int, more bool) {
	var batch []Renewal
	total := 0
	for i := range ShardCount {
		at := (from + i) % ShardCount
		if total >= limit {
			return at, true
		}
		batch = s.shards[at].collectDirty(uint16(at), batch[:0])
		if len(batch) > 0 {
			emit(uint16(at), batch)
			total += len(batch)
		}
	}
	return from, false
}

func (sh *shard) collectDirty(number uint16, batch []Renewal) []Renewal {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.dirty) == 0 {
		return batch
	}
	kept := sh.dirty[:0]
	for _, o := range sh.dirty {
		if o.has(flagGone) || o.live <= o.deadline {
			o.flags &^= flagDirty
			continue
		}
		kept = append(kept, o)
		batch = append(batch, Renewal{Ref{number, o.id}, o.live})
	}
	clear(sh.dirty[len(kept):])
	sh.dirty = kept
	return batch
}

// Dirty returns how many objects are on the dirty lists, about.
func (s *Store) Dirty() int {
	n := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n += len(sh.dirty)
		sh.mu.Unlock()
	}
	return n
}

// DropOverlay drops what this node holds beyond the state, on demotion:
// renewals not yet journaled, their marks, and the id counter. Prepared
// changes must have been aborted before.
func (s *Store) DropOverlay() {
	s.ids.stop()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, o := range sh.dirty {
			o.live = o.deadline
			o.flags &^= flagDirty
		}
		sh.dirty = nil
		sh.mu.Unlock()
	}
}

// LeaseHold returns how long the store honours a lease it grants now.
func (s *Store) LeaseHold() time.Duration { return s.inForce.Load().HoldTime() }
