package metadata

// A Pending is a mutation of one key that was prepared and waits for its
// commit. Meanwhile no other mutation of the key is prepared, and readers of
// the object wait for the outcome.
//
// A nil Pending stands for a change that this node did not prepare.
type Pending struct {
	shard   *shard
	hash    uint64   // of the key, as keyHash has it
	next    *Pending // in pendings
	id      ObjectID // of the object it marks, 0 for none
	put     ObjectID // of the object it makes, 0 for none
	inPlace bool     // the object it makes gets the memory of the one it marks
	charge  *charge  // what the put holds of a quota; nil for none
	settled bool
	// abandoned says that the answer with the object it makes reached nobody, see
	// Store.Abandon.
	abandoned bool
	wait      chan struct{} // made by the first waiter, closed with the outcome
}

// begin makes p the mutation of the key with a hash, and marks the object under the key
// unless there is none. Needs the shard's lock.
func (sh *shard) begin(p *Pending, hash uint64, o object) *Pending {
	p.shard, p.hash = sh, hash
	if !o.none() {
		p.id = o.id
		o.flags |= flagPending
	}
	sh.pending.add(p)
	return p
}

// hold marks an object for a mutation. Needs the shard's lock.
func (sh *shard) hold(o object) objectChange {
	return objectChange{sh.begin(new(Pending), o.hash(), o)}
}

// outcome returns a channel that is closed when the mutation has been applied
// or taken back. Needs the shard's lock.
func (p *Pending) outcome() <-chan struct{} {
	if p.wait == nil {
		p.wait = make(chan struct{})
	}
	return p.wait
}

// resolveLocked ends the waiting. o is the object that the mutation marks, none if that is
// gone. Needs the shard's lock.
func (p *Pending) resolveLocked(o object) {
	if p == nil || p.settled {
		return
	}
	p.settled = true
	p.shard.pending.remove(p)
	if !o.none() && o.id == p.id {
		o.flags &^= flagPending
	}
	if p.wait != nil {
		close(p.wait)
	}
}

// resolve ends the waiting.
func (p *Pending) resolve() {
	if p == nil {
		return
	}
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	p.resolveLocked(p.shard.withID(p.id))
}

// pendings finds the prepared mutations of a shard by the hashes of their keys. Two keys
// with one hash, of 64 bits and a secret seed, would only wait for each other.
//
// It is a table of lists, as most shards have no mutation, or one: a lookup then reads one
// pointer, where Go's map reads three cache lines.
type pendings struct {
	lists []*Pending // by the lowest bits of the hash; 2^n of them, or none
	count int
}

// fewPendings is how many lists there are first: one cache line.
const fewPendings = 8

func (t *pendings) list(hash uint64) **Pending { return &t.lists[hash&uint64(len(t.lists)-1)] }

// find returns the newest mutation with a hash, nil for none.
func (t *pendings) find(hash uint64) *Pending {
	if t.count == 0 {
		return nil
	}
	p := *t.list(hash)
	for p != nil && p.hash != hash {
		p = p.next
	}
	return p
}

func (t *pendings) add(p *Pending) {
	if t.count == len(t.lists) {
		t.grow()
	}
	list := t.list(p.hash)
	p.next, *list = *list, p
	t.count++
}

// grow doubles the lists. Of equal hashes the newest stays in front.
func (t *pendings) grow() {
	before := t.lists
	t.lists = make([]*Pending, max(fewPendings, 2*len(before)))
	for _, p := range before {
		var reversed *Pending
		for p != nil {
			p.next, reversed, p = reversed, p, p.next
		}
		for p = reversed; p != nil; {
			next, list := p.next, t.list(p.hash)
			p.next, *list = *list, p
			p = next
		}
	}
}

func (t *pendings) remove(p *Pending) {
	for at := t.list(p.hash); *at != nil; at = &(*at).next {
		if *at == p {
			*at, p.next = p.next, nil
			t.count--
			return
		}
	}
}
