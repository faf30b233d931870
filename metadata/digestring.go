package metadata

import "sync"

// DigestsKept is how many digests a store remembers (design section 4): one a
// commit, so those of some seconds under load.
const DigestsKept = 1024

// A digestRing remembers the digests of the last sequences.
type digestRing struct {
	mu   sync.Mutex
	ring [DigestsKept]struct {
		seq    Seq
		digest Digest
	}
}

func (r *digestRing) add(seq Seq, d Digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := &r.ring[seq%DigestsKept]
	at.seq, at.digest = seq, d
}

func (r *digestRing) find(seq Seq) (Digest, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.ring[seq%DigestsKept]
	return at.digest, at.seq == seq && seq != 0
}

// DigestAt returns the digest of the state that the store had at one of its
// last DigestsKept sequences, false if it does not remember that one.
func (s *Store) DigestAt(seq Seq) (Digest, bool) { return s.digests.find(seq) }
