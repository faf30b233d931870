package metadata

// Evictable gives the objects that may be evicted, in the order of the journaled ends of
// their leases: those complete in memory, without a hard pin and without a replica in
// progress. It is valid until the next commit is applied: in the function given to
// Store.WithEvictable, and in Change.Apply.
type Evictable struct {
	s  *Store
	tx *Tx // that evicts what is visited, nil for none
}

// WithEvictable calls f while no commit is applied. f takes a few milliseconds at
// most: callers wait for their commits meanwhile.
func (s *Store) WithEvictable(f func(Evictable)) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	f(Evictable{s: s})
}

// Evictable returns the objects that may be evicted by this commit.
func (tx *Tx) Evictable() Evictable { return Evictable{tx.s, tx} }

// Now returns the time of the last commit.
func (x Evictable) Now() Time { return x.s.now }

// EndPins ends soft pins that expire by the given time, the earliest first, and at most as
// many as it is told. It reports whether more remain.
func (x Evictable) EndPins(at Time, most int) (more bool) {
	for ; ; most-- {
		end, ok := x.s.pinEnds.Min()
		if !ok || end.at > at {
			return false
		}
		if most == 0 {
			return true
		}
		x.endPin(x.s.object(end.ref))
	}
}

// endPin files an object anew whose soft pin has ended. Its flags are its shard's.
func (x Evictable) endPin(o object) {
	sh := o.home()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	goes := o.has(flagGoes)
	x.s.unindex(o)
	x.s.indexes[inUnpinned].insert(o)
	x.s.setGoes(o, goes)
}

// Tidy files objects anew whose leases were renewed, or whose soft pins have ended, so
// that the next cutoff does not have to do it for all of them. It changes no state. A
// call looks at about most objects of each index, and ends no more than most pins. Call
// it again and again.
func (s *Store) Tidy(most int) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	Evictable{s: s}.EndPins(s.now, most)
	s.indexes[inUnpinned].tidy(s.now, most)
	s.indexes[inPinned].tidy(s.now, most)
}

// Walk visits the objects up to a rank, by the journaled ends of their leases: those with a
// soft pin, or those without. It goes through spans of bucketWidth milliseconds or less,
// the first ones first; inside a span there is no order. visit may evict the object it
// gets, and no other. done can end the walk between spans: it learns through which rank
// everything was visited. Walk returns that rank.
//
// It files anew the objects that it finds renewed since it was there last. When it would
// file more than most of them, it returns with cut set: the caller gives the lock to
// others, and begins again.
func (x Evictable) Walk(pinned bool, until Rank, most int, visit func(Candidate), done func(through Rank) bool) (through Rank, cut bool) {
	w := bucketWalk{until: until, most: most, ahead: x.tx != nil, visit: func(o object) bool {
		visit(Candidate{o})
		return true
	}}
	if x.tx != nil {
		defer x.tx.gather()()
	}
	return x.index(pinned).walkBuckets(&w, done)
}

func (x Evictable) index(pinned bool) *stampIndex {
	if pinned {
		return &x.s.indexes[inPinned]
	}
	return &x.s.indexes[inUnpinned]
}

// A Candidate is an object that may be evicted. All but Lock is about journaled state.
type Candidate struct{ o object }

// Ref returns what finds the object without its key.
func (c Candidate) Ref() Ref { return c.o.name() }

// ID returns the object's id.
func (c Candidate) ID() ObjectID { return c.o.id }

// Deadline returns the end of the object's lease.
func (c Candidate) Deadline() Time { return c.o.deadline }

// Rank returns the object's place in the order of eviction: by the end of its lease, then
// by id.
func (c Candidate) Rank() Rank { return Rank{c.o.deadline, c.o.id} }

// Group returns a value that identifies the object's group, nil for none.
func (c Candidate) Group() any {
	if g := c.o.memberOf(); g != nil {
		return g
	}
	return nil
}

// SoftPinned reports whether a soft pin holds at a time.
func (c Candidate) SoftPinned(at Time) bool { return c.o.softPinned(at) }

// Lock locks the object's shard, so that its lease as granted can be read, which is not
// journaled.
func (c Candidate) Lock() Entry {
	sh := c.o.home()
	sh.mu.Lock()
	return Entry{c.o.s, sh, c.o}
}

// Evict drops the object's memory replicas, and the object if it has no others.
// It reports whether there was one.
func (tx *Tx) Evict(c Candidate) bool {
	o, sh := c.o, c.o.home()
	if tx.has(sh) {
		return false
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o.has(flagVictim) {
		o.flags &^= flagVictim
		tx.s.victims.Load().left--
	}
	freed := false
	tx.s.watch.evicting = true
	tx.dropSome(sh, o, 0, func(r replica) bool {
		freed = freed || r.kind == Memory
		return r.kind == Memory
	})
	tx.s.watch.evicting = false
	if freed {
		tx.s.counts.evicted.Add(1)
	}
	return freed
}

// Victims are the objects that an eviction under way will take. They grant no
// lease, and their readers wait for the outcome.
type Victims struct {
	s        *Store
	outcome  chan struct{} // closed by Release
	objects  []Ref
	left     int             // of objects, those not evicted yet
	groups   map[*group]Time // until when they are kept
	released bool
}

// NewVictims returns a set of victims, with room for so many; there is one at a time.
func (s *Store) NewVictims(room int) *Victims {
	v := &Victims{s: s, outcome: make(chan struct{}), objects: make([]Ref, 0, room)}
	s.victims.Store(v)
	return v
}

// Claim makes a candidate a victim and returns the bytes of memory that it holds, unless
// eviction must spare it or another member of its group beyond a time. keptUntil is until
// when it must.
func (v *Victims) Claim(c Candidate, beyond, now Time) (bytes uint64, keptUntil Time) {
	if g := c.o.memberOf(); g != nil {
		keptUntil = v.decide(g, beyond, now)
	}
	e := c.Lock()
	defer e.Unlock()
	if keptUntil = max(keptUntil, e.KeptUntil(now)); keptUntil <= beyond {
		bytes = v.add(e)
	}
	return bytes, keptUntil
}

func (v *Victims) add(e Entry) (bytes uint64) {
	e.o.flags |= flagVictim
	v.objects = append(v.objects, e.Ref())
	v.left++
	for i := range e.o.replicaCount() {
		if r := e.o.replicaAt(i); r.kind == Memory && r.exists() {
			bytes += r.segment.Bytes(r.rng.Length)
		}
	}
	return bytes
}

// Release ends the waiting: the eviction has its outcome. A nil Victims, of an
// eviction that another node decided, has nothing to release.
func (v *Victims) Release() {
	if v == nil || v.released {
		return
	}
	v.released = true
	if v.left > 0 { // else the cutoff took them all, as it does nearly always
		v.unmark()
	}
	for g := range v.groups {
		g.evicting.Store(false)
	}
	v.s.victims.CompareAndSwap(v, nil)
	close(v.outcome)
}

func (v *Victims) unmark() {
	for _, ref := range v.objects {
		sh := &v.s.shards[ref.Shard]
		sh.mu.Lock()
		if o := sh.withID(ref.ID); !o.none() {
			o.flags &^= flagVictim
		}
		sh.mu.Unlock()
	}
}
