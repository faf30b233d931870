package metadata

import (
	"sync"

	"github.com/zeebo/xxh3"
)

// The digest is a sum of terms: one for each replica of each object, each segment and
// SSD, each quarantined range, claim, remembered request, task, drain job and quota, and
// one for the term. Sums make it cheap to keep up to date, and let a segment carry the
// sum of what lies on it: an unmount takes all that off in one step.

const (
	mixFactor = 0x9E3779B97F4A7C15 // 2^64 / golden ratio

	seedObject = iota + 1
	seedSegment
	seedQuarantine
	seedRequest
	seedParams
	seedLocalDisk
	seedClaim
	seedClosing
	seedTransfer
	seedTask
	seedDrain
	seedQuota
)

// mix folds a word into a hash.
func mix(h, v uint64) uint64 {
	h ^= v
	h *= mixFactor
	return h ^ h>>29
}

// finish spreads a hash over all bits, so that a sum of them loses nothing.
func finish(h uint64) Digest {
	h ^= h >> 30
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 27
	h *= 0x94D049BB133111EB
	return Digest(h ^ h>>31)
}

func mixBytes(h uint64, b [16]byte) uint64 {
	return mix(h, xxh3.Hash(b[:]))
}

// identity hashes what all replicas of an object have in common.
func (s *Store) identity(o object) uint64 {
	h := mix(seedObject, uint64(o.id))
	h = mix(h, o.hashOfKey())
	h = mix(h, s.tenants.hash(o.tenant))
	h = mixBytes(h, o.writer())
	h = mix(h, o.size)
	h = mix(h, uint64(o.putStart))
	h = mix(h, uint64(o.soft()))
	h = mix(h, o.request())
	h = mix(h, uint64(o.flags&flagHardPin))
	if x := o.extra(); x != nil && x.describes() {
		h = mix(h, xxh3.HashString(x.diskPath))
		h = mix(h, xxh3.HashString(x.group))
		h = mix(h, uint64(x.dataType))
		if x.hasChecksum {
			h = mix(h, x.checksum)
		}
	}
	if t := o.transfer(); t != nil {
		h = t.mixInto(h)
	}
	return mix(h, uint64(o.deadline))
}

func (r *replica) digestTerm(identity uint64) Digest {
	h := mix(identity, uint64(r.kind)<<8|uint64(r.status))
	if r.segment != nil {
		h = mix(h, uint64(r.segment.Number))
		h = mix(h, uint64(r.rng.Offset)<<32|uint64(r.rng.Length))
	}
	if r.kind == LocalDisk {
		h = mix(h, xxh3.HashString(r.endpoint.Value()))
	}
	return finish(h)
}

// addTerms adds an object's terms to the digest, subtractTerms takes them off. Whatever
// changes an object subtracts them before and adds them after.
func (s *Store) addTerms(o object) {
	if s.watch.by != nil {
		s.report(o, o.media())
	}
	identity := s.identity(o)
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.exists() {
			s.addTerm(r.segment, r.digestTerm(identity))
		}
	}
}

func (s *Store) subtractTerms(o object) {
	s.watch.note(o)
	identity := s.identity(o)
	for i := range o.replicaCount() {
		if r := o.replicaAt(i); r.exists() {
			s.addTerm(r.segment, -r.digestTerm(identity))
		}
	}
}

// addTerm adds to the digest, and to the share of it that lies on a segment.
func (s *Store) addTerm(on *segmentState, d Digest) {
	s.digest += d
	if on != nil {
		on.share += d
	}
}

func (p *segmentState) digestTerm() Digest {
	h := mix(seedSegment, uint64(p.Number))
	h = mixBytes(h, p.ID)
	h = mixBytes(h, p.Client)
	h = mix(h, xxh3.HashString(p.Name))
	h = mix(h, p.Base)
	h = mix(h, p.Size)
	h = mix(h, xxh3.HashString(p.Endpoint))
	h = mix(h, xxh3.HashString(p.Protocol))
	h = mix(h, xxh3.HashString(p.HostID))
	if p.Instance != 0 {
		h = mix(h, p.Instance)
	}
	if until := p.closes(); until != 0 {
		h = mix(mix(h, seedClosing), uint64(until))
	}
	return finish(h)
}

func (p *segmentState) localDiskTerm() Digest {
	h := mix(seedLocalDisk, uint64(p.Number))
	h = mixBytes(h, p.Client)
	if p.offloading {
		h = mix(h, 1)
	}
	if p.wipe {
		h = mix(h, 2)
	}
	if capacity := p.ssdCapacity.Load(); capacity != 0 {
		h = mix(mix(h, 3), capacity)
	}
	return finish(h)
}

func (q quarantined) digestTerm() Digest {
	h := mix(seedQuarantine, uint64(q.segment.Number))
	h = mix(h, uint64(q.rng.Offset)<<32|uint64(q.rng.Length))
	return finish(mix(h, uint64(q.until)))
}

func (t *termState) digestTerm() Digest {
	h := mix(seedParams, uint64(t.term))
	h = mix(h, uint64(t.guardUntil))
	h = mix(h, uint64(t.LeaseTTL))
	h = mix(h, uint64(t.DiscardTimeout))
	h = mix(h, uint64(t.ReleaseTimeout))
	flags := uint64(0)
	if t.LeaseOnPutEnd {
		flags |= 1
	}
	if t.startedEmpty {
		flags |= 2
	}
	if t.rules > FirstRules {
		flags |= uint64(t.rules) << 8
	}
	return finish(mix(h, flags))
}

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
