package metadata

// A Pending is a mutation of one key that was prepared and waits for its
// commit. Meanwhile no other mutation of the key is prepared, and readers of
// the object wait for the outcome.
//
// A nil Pending stands for a change that this node did not prepare.
type Pending struct {
	shard   *shard
	key     objectKey
	id      ObjectID // of the object it marks, 0 for none
	put     ObjectID // of the object it makes, 0 for none
	settled bool
	// abandoned says that nobody is there to be told of the object it makes.
	abandoned bool
	wait      chan struct{} // made by the first waiter, closed with the outcome
}

// begin marks a key, and the object under it unless nil, for a mutation.
// Needs the shard's lock.
func (sh *shard) begin(key objectKey, o *object) *Pending {
	p := &Pending{shard: sh, key: key}
	if o != nil {
		p.id = o.id
		o.flags |= flagPending
	}
	if sh.pending == nil {
		sh.pending = make(map[objectKey]*Pending)
	}
	sh.pending[key] = p
	return p
}

// outcome returns a channel that is closed when the mutation has been applied
// or taken back. Needs the shard's lock.
func (p *Pending) outcome() <-chan struct{} {
	if p.wait == nil {
		p.wait = make(chan struct{})
	}
	return p.wait
}

// resolveLocked ends the waiting. Needs the shard's lock.
func (p *Pending) resolveLocked() {
	if p == nil || p.settled {
		return
	}
	p.settled = true
	if p.shard.pending[p.key] == p {
		delete(p.shard.pending, p.key)
	}
	if o := p.shard.byID[p.id]; o != nil {
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
	p.resolveLocked()
}
