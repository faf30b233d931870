package metadata

// Media are kinds of storage from which an object can be read.
type Media uint8

// The media.
const (
	InMemory Media = 1 << iota
	OnDisk         // a DISK replica, or one on a client's SSD
)

// A MediaChange is a change of the media from which an object can be read.
type MediaChange struct {
	Tenant, Key, Group string
	ID                 ObjectID
	Size               uint64
	Before, After      Media // 0 for none
	Evicted            bool  // it left a medium to make room
}

// A Watcher sees which objects come and go in the stores of a node. Stores that apply the
// same commits report the same changes, except that Sweep finds the objects of an
// unmounted segment a little later. Its methods must not block.
type Watcher interface {
	// MediaChanged is called under the lock of the object's shard, and under applyMu.
	MediaChanged(of *Store, at Seq, what *MediaChange)
	// Applied is called under applyMu. By then MediaChanged was called for all that the
	// commits up to at did, except for objects that Sweep has yet to find.
	Applied(of *Store, term Term, at Seq, sweeping bool)
}

// watch is how a store reports to its watcher. Guarded by Store.applyMu.
type watch struct {
	by       Watcher // nil for nobody
	before   Media   // of the object that is changed
	evicting bool    // objects leave a medium to make room
}

// media returns where an object can be read. An unmounted segment counts until Sweep
// has come by, so that each object is reported once.
func (o object) media() (m Media) {
	for i := range o.replicaCount() {
		switch r := o.replicaAt(i); {
		case r.status != Complete:
		case r.kind == Memory:
			m |= InMemory
		default:
			m |= OnDisk
		}
	}
	return m
}

// note remembers where an object can be read, before a change of it.
func (w *watch) note(o object) {
	if w.by != nil {
		w.before = o.media()
	}
}

// report tells the watcher where a changed object can be read now.
func (s *Store) report(o object, after Media) {
	if s.watch.by == nil || s.loading || after == s.watch.before {
		return
	}
	s.watch.by.MediaChanged(s, s.seq, s.mediaChange(o, s.watch.before, after))
	s.watch.before = after
}

func (s *Store) mediaChange(o object, before, after Media) *MediaChange {
	return &MediaChange{
		Tenant: s.tenants.name(o.tenant), Key: o.key(), Group: o.group(), ID: o.id, Size: o.size,
		Before: before, After: after, Evicted: s.watch.evicting,
	}
}

// applied tells the watcher that a commit, or the sweep of a shard, is done.
func (s *Store) applied() {
	if s.watch.by != nil && !s.loading {
		s.watch.by.Applied(s, s.inForce.Load().term, s.seq, s.sweepLeft > 0)
	}
}

// Present visits the objects of a shard that can be read, under its lock, which visit
// must not take or give back.
func (s *Store) Present(shard int, visit func(*MediaChange)) {
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for o := range sh.all {
		if o.readable() {
			visit(&MediaChange{Tenant: s.tenants.name(o.tenant), Key: o.key(), Group: o.group(), ID: o.id, Size: o.size, After: o.media()})
		}
	}
}

// RemoveForRoom is Remove, to make room.
func (tx *Tx) RemoveForRoom(r *Removal) error {
	tx.s.watch.evicting = true
	defer func() { tx.s.watch.evicting = false }()
	return tx.Remove(r)
}
