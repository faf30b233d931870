package metadata

import "slices"

// PrepareRemoveMatching decides the removal of up to limit objects of a shard
// whose tenant is the given one (or any, if empty) and whose keys match,
// skipping those that are leased (unless forced), in progress, or waiting for
// another mutation. It reports whether the limit ended the search.
//
// Keys are matched without the shard's lock: a pattern may take its time.
func (s *Store) PrepareRemoveMatching(dst []*Removal, shardNumber int, tenant string, match func(key string) bool,
	force bool, now Time, limit int,
) ([]*Removal, bool) {
	sh := &s.shards[shardNumber]
	found := s.idle(sh, tenant, force, now)
	if match != nil {
		found = slices.DeleteFunc(found, func(c candidate) bool { return !match(c.key) })
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, c := range found {
		o := sh.byID[c.id]
		if o == nil || !o.idle(force, now) {
			continue
		}
		if limit == 0 {
			return dst, true
		}
		dst = append(dst, s.beginRemoval(sh, o, now))
		limit--
	}
	return dst, false
}

// A candidate is an object that may be removed if its key matches.
type candidate struct {
	key string
	id  ObjectID
}

// idle returns a tenant's objects of a shard (all, if it is empty) that nothing
// keeps from being removed.
func (s *Store) idle(sh *shard, tenant string, force bool, now Time) (found []candidate) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.byKey.all() {
		if o.idle(force, now) && (tenant == "" || s.tenants.name(o.tenant) == tenant) {
			found = append(found, candidate{o.key, o.id})
		}
	}
	return found
}

// idle reports whether nothing keeps an object from being removed. Needs the
// shard's lock.
func (o *object) idle(force bool, now Time) bool {
	return o.exists() && !o.has(flagPending|flagVictim) && o.removable(force, now) == nil
}
