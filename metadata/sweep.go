package metadata

// Sweep tidies up after unmounts: it unlinks replicas on segments that are
// gone, and objects that have no other. For readers and for the digest they
// are gone already; what is left is memory. One call looks at up to shards
// shards and holds no lock for longer than one of them takes. It reports
// whether there is more to do.
func (s *Store) Sweep(shards int) bool {
	for range shards {
		if !s.sweepShard() {
			return false
		}
	}
	return true
}

func (s *Store) sweepShard() bool {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	if s.sweepLeft == 0 {
		return false
	}
	sh := &s.shards[s.sweepAt]
	tx := &Tx{s: s, seq: s.seq, now: s.now}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.byKey.all() {
		lost := false
		for i := range o.replicaCount() {
			lost = lost || !o.replicaAt(i).exists()
		}
		if lost {
			tx.dropSome(sh, o, 0, func(*replica) bool { return false })
		}
	}
	s.sweepAt = (s.sweepAt + 1) % ShardCount
	s.sweepLeft--
	return s.sweepLeft > 0
}
