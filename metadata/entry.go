package metadata

import (
	"runtime"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/understudy-store/understudy/metadata/reftable"
)

// An Entry is an object with its shard locked. Other packages use it to read the object,
// and to change what is not journaled, such as its lease as granted. Whoever gets an
// Entry unlocks it within microseconds, does no I/O meanwhile, and does not use it
// afterwards.
type Entry struct {
	store *Store
	shard *shard
	o     object
}

// Lock locks the shard of a key and returns the object under the key.
func (s *Store) Lock(tenant, key string) Entry {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	return Entry{s, sh, s.lookup(sh, tenant, key)}
}

// LockRef locks a shard and returns the object with an id.
func (s *Store) LockRef(ref Ref) Entry {
	sh := &s.shards[ref.Shard]
	sh.mu.Lock()
	o := sh.withID(ref.ID)
	if !o.none() && !o.exists() {
		o = object{}
	}
	return Entry{s, sh, o}
}

// LockSettled is Lock for a change of the key. While another change of the key
// waits for its commit, it returns a channel that is closed with the outcome.
func (s *Store) LockSettled(tenant, key string) (Entry, <-chan struct{}) {
	sh := &s.shards[shardOf(tenant, key)]
	sh.mu.Lock()
	o, wait := s.settled(sh, tenant, key)
	return Entry{s, sh, o}, wait
}

// EachObject visits the objects of a shard, some hundred at a time under its lock, which visit
// must not take or give back; in between others go first. If the shard's table is resized
// meanwhile, it begins again: then it calls again first, if not nil, which drops what has been visited.
// It may miss an object that is put meanwhile, as in place of one that it has not visited.
func (s *Store) EachObject(shard int, again func(), visit func(Entry)) {
	sh := &s.shards[shard]
	from := reftable.Place{Again: again}
	part := func() (more bool) {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.part(&from, func(o object) {
			if o.exists() {
				visit(Entry{s, sh, o})
			}
		})
	}
	for part() {
		runtime.Gosched()
	}
	runtime.Gosched() // whoever visits a shard goes on with the next
}

// Unlock unlocks the shard.
func (e Entry) Unlock() { e.shard.mu.Unlock() }

// Exists reports whether there is an object.
func (e Entry) Exists() bool { return !e.o.none() }

// Readable reports whether the object has a readable replica.
func (e Entry) Readable() bool { return !e.o.none() && e.o.readable() }

// Ref returns what finds the object without its key.
func (e Entry) Ref() Ref { return e.o.name() }

// Key returns a copy of the object's key.
func (e Entry) Key() string { return e.o.key() }

// Tenant returns the name of the object's tenant.
func (e Entry) Tenant() string { return e.store.tenants.name(e.o.tenant) }

// Busy reports whether a mutation or an eviction of the object waits for its
// outcome.
func (e Entry) Busy() bool { return e.o.has(flagPending) || e.o.victim() }

// Outcome returns a channel that is closed when the mutation or the eviction
// that the object waits for has its outcome; nil if there is none.
func (e Entry) Outcome() <-chan struct{} { return e.store.outcomeOf(e.shard, e.o) }

// LeaseEnd returns the end of the lease as readers of the object got it last, or as
// journaled if that is later.
func (e Entry) LeaseEnd() Time { return max(e.o.live, e.o.deadline) }

// KeptUntil returns the time until which eviction must spare the object: the latest end
// of a lease on it or on a member of its group. While a client copies it, or an upsert in
// place is to reuse its memory, that is a whole lease from now at least.
func (e Entry) KeptUntil(now Time) Time {
	inPlace := e.o.has(flagPending) && e.shard.change(e.o).inPlace
	if inPlace || e.shard.copying[e.o.id].until > now {
		return max(e.o.leasedUntil(), now+e.store.inForce.Load().hold)
	}
	return e.o.leasedUntil()
}

// JournaledEnd returns the end of the lease as it stands in the journal.
func (e Entry) JournaledEnd() Time { return e.o.deadline }

// Grant extends the lease to end, for a read at now, unless it lasts that long already. It
// reports whether it did. Either way the reader relies on the lease. It journals nothing.
func (e Entry) Grant(end, now Time) (extended bool) {
	if e.shard.notes != nil {
		e.shard.notes.note(e.o)
	}
	if end <= e.LeaseEnd() {
		return false
	}
	e.shard.leases.grant(e.o, now)
	e.o.setLive(end)
	return true
}

// Mark puts the object on its shard's list of renewed ones, once.
func (e Entry) Mark() {
	if e.o.has(flagMarked) {
		return
	}
	e.shard.leases.Marks++
	e.o.flags |= flagMarked
	e.shard.marked = append(e.shard.marked, e.o.id)
}

// maxIdleMarks is the capacity, in marks, that a shard without any may keep.
const maxIdleMarks = 1024

// EachMarked visits the marked objects of a shard, under its lock. An object loses its
// mark unless visit returns true, or when it is gone.
func (s *Store) EachMarked(shard int, visit func(Entry) (keep bool)) {
	sh := &s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.marked) == 0 {
		return
	}
	kept := sh.marked[:0]
	for i, id := range sh.marked {
		if i%readAhead == 0 {
			sh.readAhead(sh.marked[i:min(len(sh.marked), i+readAhead)])
		}
		switch o := sh.withID(id); {
		case o.none():
		case visit(Entry{s, sh, o}):
			kept = append(kept, id)
		default:
			o.flags &^= flagMarked
		}
	}
	if sh.marked = kept; len(kept) == 0 && cap(kept) > maxIdleMarks {
		sh.marked = nil
	}
}

// Removable returns why the object must not be removed at a time, or nil:
// ObjectHasLease unless forced, ReplicaNotReady while a replica is in progress.
func (e Entry) Removable(force bool, now Time) error { return e.store.removable(e.o, force, now) }

// BeginRemoval marks the object for a removal, which the caller has committed or
// aborts.
func (e Entry) BeginRemoval(now Time) *Removal { return e.store.beginRemoval(e.shard, e.o, now) }

// DropOverlay drops what this node holds beyond the state, on demotion: renewals
// not yet journaled, their marks, copies under way, and the id counter. Prepared
// changes must have been aborted before.
func (s *Store) DropOverlay() {
	s.StartIDs(0)
	for i := range ShardCount {
		s.EachMarked(i, func(e Entry) bool {
			e.o.live = e.o.deadline
			return false
		})
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.copying = nil
		sh.mu.Unlock()
	}
	s.regroup()
}

// A ReplicaList answers a reader: where the bytes are, and for how long they
// will stay there.
type ReplicaList struct {
	ID       ObjectID
	Size     uint64        // bytes
	Replicas []Descriptor  // readable ones only
	LeaseTTL time.Duration // counted from before the call was sent
	Checksum *uint64       // as given at PutEnd, nil for none
}

// ReplicaList returns the object's readable replicas, for a reader who gets a lease with
// this TTL.
func (e Entry) ReplicaList(lease time.Duration) ReplicaList {
	return ReplicaList{
		ID:       e.o.id,
		Size:     e.o.size,
		Replicas: e.o.descriptors(func(r replica) bool { return r.readable() }),
		LeaseTTL: lease,
		Checksum: e.o.checksum(),
	}
}

// lookup returns the object under a key, none if there is none. Needs the
// shard's lock.
func (s *Store) lookup(sh *shard, tenant, key string) object {
	id, ok := s.tenants.find(tenant)
	if !ok {
		return object{}
	}
	return sh.there(s.hash.of(id, key), id, key)
}

// there is withKey for an object that is part of the state.
func (sh *shard) there(hash uint64, tenant tenantID, key string) object {
	if o := sh.withKey(hash, tenant, key); !o.none() && o.exists() {
		return o
	}
	return object{}
}

// settled returns the object under a key, none if there is none. Instead it returns a
// channel to wait on while a change of the key, an eviction of the object or an unmount
// of its memory has no outcome yet. Needs the shard's lock.
func (s *Store) settled(sh *shard, tenant, key string) (object, <-chan struct{}) {
	id, ok := s.tenants.find(tenant)
	if !ok {
		return object{}, nil
	}
	hash := s.hash.of(id, key)
	if p := sh.pending.find(hash); p != nil {
		return object{}, p.outcome()
	}
	o := sh.there(hash, id, key)
	if o.none() {
		return o, nil
	}
	return o, s.outcomeOf(sh, o)
}

// outcomeOf returns what to wait for before the object can be read, or nil.
// Needs the shard's lock.
func (s *Store) outcomeOf(sh *shard, o object) <-chan struct{} {
	for i := range o.replicaCount() {
		if p := o.replicaAt(i).segment; p != nil {
			if outcome := p.leaving.Load(); outcome != nil {
				return *outcome
			}
		}
	}
	if o.victim() {
		if v := s.victims.Load(); v != nil {
			return v.outcome
		}
	}
	if o.has(flagPending) {
		return sh.change(o).outcome()
	}
	return nil
}

// shardOf returns the shard of a key. Every node must agree on it.
func shardOf(tenant, key string) uint16 {
	h := xxh3.HashString(key)
	if tenant != DefaultTenant {
		h ^= xxh3.HashString(tenant) * mixFactor
	}
	return uint16(h % ShardCount)
}

// A tenantID is a node's own short name of a tenant; 0 is the default tenant.
// It is in no record: nodes may number tenants differently.
type tenantID uint32

// tenants gives tenants their short names. A name stays for ever; how many
// there may be is up to the caller that registers tenants.
type tenants struct {
	mu    sync.RWMutex
	ids   map[string]tenantID
	names []string // of ids from 1
}

// find returns the id of a tenant that has one.
func (t *tenants) find(name string) (tenantID, bool) {
	if name == DefaultTenant {
		return 0, true
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	id, ok := t.ids[name]
	return id, ok
}

// intern returns the id of a tenant, giving it one if it has none.
func (t *tenants) intern(name string) tenantID {
	if id, ok := t.find(name); ok {
		return id
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok := t.ids[name]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = make(map[string]tenantID)
	}
	t.names = append(t.names, name)
	id := tenantID(len(t.names))
	t.ids[name] = id
	return id
}

func (t *tenants) name(id tenantID) string {
	if id == 0 {
		return DefaultTenant
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.names[id-1]
}

// hash does not depend on the id.
func (t *tenants) hash(id tenantID) uint64 {
	if id == 0 {
		return 0
	}
	return xxh3.HashString(t.name(id))
}
