package metadata

import (
	"sync"

	"github.com/understudy-store/understudy/metadata/slab"
	"github.com/understudy-store/understudy/segment"
)

// peers counts how much each peer has of what all peers share. A peer is whoever made a
// change on this node: an address or an identity. None of this is part of the state. What
// another node has decided counts for no peer, only in all, until its client pings or
// puts something here; claims that it left count so until they end.
type peers struct {
	mu      sync.Mutex // taken last
	all     Use
	of      map[string]*Use
	writers map[segment.ClientID]*writer // clients that have objects
}

// A writer is a client that has objects.
type writer struct {
	keyBytes int64
	peer     string // empty if it has put nothing on this node
}

// Use is what a peer has, or all have.
type Use struct {
	Segments int64
	Mounted  int64 // memory of these segments, as MountedMiB counts
	Names    int64 // of these segments, as NameBytes counts
	KeyBytes int64 // as KeyBytes counts
	Claimed  int64 // endpoints where readers or writers may still be at work in memory that was unmounted
}

// MountedMiB returns how many MiB a segment counts for, rounded up: sums of bytes could
// overflow.
func MountedMiB(s segment.Spec) int64 { return int64((s.Size-1)>>20) + 1 }

// NameBytes returns how many bytes a segment's name, endpoint, protocol and host id have: the
// segments are encoded in one piece for a snapshot, and no commit is applied meanwhile.
func NameBytes(s segment.Spec) int64 {
	return int64(len(s.Name) + len(s.Endpoint) + len(s.Protocol) + len(s.HostID))
}

func segmentUse(s segment.Spec) Use {
	return Use{Segments: 1, Mounted: MountedMiB(s), Names: NameBytes(s)}
}

func (u Use) plus(o Use) Use {
	return Use{u.Segments + o.Segments, u.Mounted + o.Mounted, u.Names + o.Names, u.KeyBytes + o.KeyBytes, u.Claimed + o.Claimed}
}

// objectBytes is about what an object takes of this process's memory, apart from its key.
const objectBytes = 150

// longKey is the length above which a key counts as what its record takes of its chunk of
// memory: few such records fit in one.
const longKey = 16 << 10

// KeyBytes returns about what an object and its key take of this process's memory.
func KeyBytes(key string) int64 { return keyBytes(len(key)) }

func keyBytes(length int) int64 {
	if length > longKey {
		length = slab.Share(int(recordBytes) + 2*8 + length) // with a request id and a soft pin
	}
	return objectBytes + int64(length)
}

// Use returns what all have, and what a peer has.
func (s *Store) Use(peer string) (all, own Use) {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	if u := s.peers.of[peer]; u != nil {
		own = *u
	}
	return s.peers.all, own
}

// TryAttribute makes what other nodes have decided for a client, and what counts for no
// peer so far, count for a peer. It returns false, and counts nothing, while a commit is
// applied.
func (s *Store) TryAttribute(client segment.ClientID, peer string) bool {
	if !s.applyMu.TryLock() {
		return false
	}
	defer s.applyMu.Unlock()
	s.peers.put(client, peer)
	for _, p := range s.mounts.byClient[client] {
		if p.peer == "" {
			p.peer = peer
			s.peers.own(peer, segmentUse(p.Spec))
		}
	}
	return true
}

// own counts for a peer what is already counted in all.
func (p *peers) own(peer string, u Use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(peer, u)
}

func (p *peers) mounted(peer string, s segment.Spec) { p.lent(peer, segmentUse(s)) }

func (p *peers) unmounted(peer string, s segment.Spec) {
	u := segmentUse(s)
	p.lent(peer, Use{Segments: -u.Segments, Mounted: -u.Mounted, Names: -u.Names})
}

// lent counts for a peer, and in all.
func (p *peers) lent(peer string, u Use) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = p.all.plus(u)
	p.add(peer, u)
}

// filed counts n more objects of a client, with a key of so many bytes.
func (p *peers) filed(client segment.ClientID, keyLength int, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, bytes := p.writers[client], n*keyBytes(keyLength)
	if w == nil {
		w = new(writer)
		p.writers[client] = w
	}
	if w.keyBytes += bytes; w.keyBytes == 0 {
		delete(p.writers, client)
	}
	p.all.KeyBytes += bytes
	p.add(w.peer, Use{KeyBytes: bytes})
}

// put makes all objects of a client count for a peer, unless they do for another one: the
// first from which it put something, for as long as it has objects.
func (p *peers) put(client segment.ClientID, peer string) {
	if peer == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.writers[client]; w != nil && w.peer == "" {
		w.peer = peer
		p.add(peer, Use{KeyBytes: w.keyBytes})
	}
}

// add counts more of a peer. Needs the lock.
func (p *peers) add(peer string, u Use) {
	if peer == "" {
		return
	}
	has := p.of[peer]
	if has == nil {
		has = new(Use)
		p.of[peer] = has
	}
	if *has = has.plus(u); *has == (Use{}) {
		delete(p.of, peer)
	}
}
