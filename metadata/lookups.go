package metadata

import "github.com/understudy-store/understudy/metadata/slab"

// Lookups look up many keys of one tenant. Over millions of objects a lookup mostly
// waits for memory: for its group in the shard's table, then for the record that this
// leads to. Lookups read the groups of many keys ahead, and then their records, so that
// the processor waits for many of them at once. What they read ahead decides nothing: Lock
// looks the key up anew, under its shard's lock.
type Lookups struct {
	s      *Store
	tenant tenantID
	known  bool // the tenant
	keys   []string
	ahead  int // keys before it have been read ahead
	hashes [readAhead]hashes
	sink   uint64 // keeps the compiler from dropping the reads
}

type hashes struct {
	shard uint16
	key   uint64 // as keyHash has it
}

// readAhead is how many keys are read ahead: more than the processor can fetch at once,
// and few enough that all of it is still in its cache when it is needed.
const readAhead = 64

// readAhead reads the records of up to readAhead objects ahead of their lookups, as
// Lookups do. Needs the shard's lock.
func (sh *shard) readAhead(ids []ObjectID) {
	var refs [readAhead]slab.Ref
	for i, id := range ids {
		refs[i] = slab.Ref(sh.byID.Guess(hashOfID(id)))
	}
	for i := range ids {
		sh.sink += sh.store.slab.Touch(refs[i])
	}
}

// ReadAhead is how many objects Tx.ReadAhead reads at most.
const ReadAhead = readAhead

// ReadAhead reads the records of up to ReadAhead objects ahead of their changes, as Lookups
// do. It decides nothing, and the objects may be gone.
func (tx *Tx) ReadAhead(refs []Ref) {
	var records [readAhead]slab.Ref
	refs = refs[:min(len(refs), readAhead)]
	for i, ref := range refs {
		records[i] = slab.Ref(tx.s.shards[ref.Shard].byID.Guess(hashOfID(ref.ID)))
	}
	for i := range refs {
		tx.sink += tx.s.slab.Touch(records[i])
	}
}

// Lookups returns lookups of some keys, which must not be changed as long as they are used.
func (s *Store) Lookups(tenant string, keys []string) *Lookups {
	l := &Lookups{s: s, keys: keys}
	l.tenant, l.known = s.tenants.find(tenant)
	return l
}

// Lock is Store.Lock for the i-th key. Keys must be locked in their order; some may be
// left out.
func (l *Lookups) Lock(i int) Entry {
	for i >= l.ahead {
		l.read()
	}
	at := &l.hashes[i%readAhead]
	sh := &l.s.shards[at.shard]
	sh.mu.Lock()
	if !l.known {
		return Entry{l.s, sh, object{}}
	}
	return Entry{l.s, sh, sh.there(at.key, l.tenant, l.keys[i])}
}

// read reads the next keys ahead.
func (l *Lookups) read() {
	tenant := l.s.tenants.name(l.tenant)
	keys := l.keys[l.ahead:min(len(l.keys), l.ahead+readAhead)]
	l.ahead += len(keys)
	for i, key := range keys {
		l.hashes[i] = hashes{shardOf(tenant, key), l.s.hash.of(l.tenant, key)}
	}
	var refs [readAhead]slab.Ref
	for i := range keys {
		refs[i] = slab.Ref(l.s.shards[l.hashes[i].shard].byKey.Guess(l.hashes[i].key))
	}
	for i := range keys {
		l.sink += l.s.slab.Touch(refs[i])
	}
}
