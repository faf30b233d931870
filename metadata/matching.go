package metadata

// A Candidate is an object that nothing kept from being removed when it was
// found.
type Candidate struct {
	Key string
	Ref
}

// Candidates appends the objects of a shard whose tenant is the given one (or
// any, if empty), leaving out those that are leased (unless forced), in progress,
// or waiting for another mutation. Keys are to be matched without any lock: a
// pattern may take its time.
func (s *Store) Candidates(dst []Candidate, shard int, tenant string, force bool, now Time) []Candidate {
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.byKey.all() {
		if o.idle(force, now) && (tenant == "" || s.tenants.name(o.tenant) == tenant) {
			dst = append(dst, Candidate{o.key, Ref{o.shard, o.id}})
		}
	}
	return dst
}

// PrepareRemovals decides the removal of candidates, leaving out what is gone by
// now, or may not be removed any more.
func (s *Store) PrepareRemovals(refs []Ref, force bool, now Time) []*Removal {
	list := make([]*Removal, 0, len(refs))
	for _, ref := range refs {
		sh := &s.shards[ref.Shard]
		sh.mu.Lock()
		if o := sh.byID[ref.ID]; o != nil && o.idle(force, now) {
			list = append(list, s.beginRemoval(sh, o, now))
		}
		sh.mu.Unlock()
	}
	return list
}

// idle reports whether nothing keeps an object from being removed. Needs the
// shard's lock.
func (o *object) idle(force bool, now Time) bool {
	return o.exists() && !o.has(flagPending|flagVictim) && o.removable(force, now) == nil
}
