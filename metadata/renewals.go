package metadata

import "time"

// CollectRenewals appends to dst the leases of each shard from the given one on
// that were renewed since they were journaled, until dst has about limit of
// them. It returns the shard to go on with, ShardCount at the end.
//
// Nothing is unmarked by it: a mark goes when a later call finds the lease
// journaled and not renewed again, or the object gone. So a batch that is not
// committed is simply collected once more.
func (s *Store) CollectRenewals(dst []Renewal, from, limit int) ([]Renewal, int) {
	for ; from < ShardCount && len(dst) < limit; from++ {
		dst = s.shards[from].collectDirty(uint16(from), dst)
	}
	return dst, from
}

// CheckRenewal reports whether a journaled renewal shows in the state: the
// object has that deadline or a later one, or is gone.
func (s *Store) CheckRenewal(r Renewal) bool {
	sh := &s.shards[r.Shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.byID[r.ID]
	return o == nil || o.deadline >= r.Deadline
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
