package metadata

import "github.com/understudy-store/understudy/metadata/slab"

// A Batch looks up many keys of one tenant. Over millions of objects a lookup mostly
// waits for memory: for its group in the shard's table, then for the record that this
// leads to. A batch reads the groups of many keys ahead, and then their records, so that
// the processor waits for many of them at once. What it reads ahead decides nothing: Lock
// looks the key up anew, under its shard's lock.
type Batch struct {
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

// readAhead reads the records of up to readAhead objects ahead of their lookups, as a
// batch does. Needs the shard's lock.
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

// ReadAhead reads the records of up to ReadAhead objects ahead of their changes, as a Batch
// does. It decides nothing, and the objects may be gone.
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

// Batch returns a batch. Its keys must not be changed as long as it is used.
func (s *Store) Batch(tenant string, keys []string) *Batch {
	b := &Batch{s: s, keys: keys}
	b.tenant, b.known = s.tenants.find(tenant)
	return b
}

// Lock is Store.Lock for the i-th key. Keys must be locked in their order; some may be
// left out.
func (b *Batch) Lock(i int) Entry {
	for i >= b.ahead {
		b.read()
	}
	at := &b.hashes[i%readAhead]
	sh := &b.s.shards[at.shard]
	sh.mu.Lock()
	if !b.known {
		return Entry{b.s, sh, object{}}
	}
	return Entry{b.s, sh, sh.there(at.key, b.tenant, b.keys[i])}
}

// read reads the next keys ahead.
func (b *Batch) read() {
	tenant := b.s.tenants.name(b.tenant)
	keys := b.keys[b.ahead:min(len(b.keys), b.ahead+readAhead)]
	b.ahead += len(keys)
	for i, key := range keys {
		b.hashes[i] = hashes{shardOf(tenant, key), b.s.hash.of(b.tenant, key)}
	}
	var refs [readAhead]slab.Ref
	for i := range keys {
		refs[i] = slab.Ref(b.s.shards[b.hashes[i].shard].byKey.Guess(b.hashes[i].key))
	}
	for i := range keys {
		b.sink += b.s.slab.Touch(refs[i])
	}
}
