package metadata

import (
	"fmt"

	"github.com/understudy-store/understudy/segment"
)

// InSlices returns options of a store of which at most n ranges leave quarantine with a
// commit.
func InSlices(n int) Options { return Options{quarantineSlice: n} }

// QuarantineOf puts n ranges into the quarantine of a store's only segment, as if they
// had been taken before. The state is no cluster's any more.
func QuarantineOf(s *Store, n int) *Store {
	for _, p := range s.segments {
		for i := range n {
			s.quarantine.add(quarantined{until: 1 << 40, segment: p, rng: segment.Range{Offset: uint32(2 * i), Length: 1}})
		}
	}
	return s
}

// FinishUnchecked is Finish with the digest that the parts have, whatever the
// last one says.
func (l *Loader) FinishUnchecked() (*Store, error) {
	fresh := l.s.digest
	for _, q := range l.quarantine { // buildAllocators adds these
		if p := l.s.segments[q.Segment]; p != nil {
			fresh += quarantined{segment: p, rng: q.Range, until: q.until}.digestTerm()
		}
	}
	l.digest = fresh
	return l.Finish()
}

// ChargeFaults compares what tenants are charged with what their objects take, and
// how much of SSDs is used with the objects there.
func (s *Store) ChargeFaults() (faults []string) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	objects, bytes, onSSD := make(map[tenantID]int64), make(map[tenantID]int64), make(map[*segmentState]int64)
	for i := range s.shards {
		for o := range s.shards[i].all {
			objects[o.tenant]++
			bytes[o.tenant] += int64(o.memoryCharge())
			for j := range o.replicaCount() {
				if r := o.replicaAt(j); r.kind == LocalDisk {
					onSSD[r.segment] += int64(o.size)
				}
			}
		}
	}
	for number, p := range s.localDisks.byNumber {
		if used := p.ssdUsed.Load(); used != onSSD[p] {
			faults = append(faults, fmt.Sprintf("SSD %d: %d bytes used, want %d", number, used, onSSD[p]))
		}
	}
	capacity := uint64(0)
	for _, p := range s.segments {
		capacity += p.Size
	}
	if capacity != s.quotas.capacity {
		faults = append(faults, fmt.Sprintf("a capacity of %d, want %d", s.quotas.capacity, capacity))
	}
	for id := range tenantID(len(s.quotas.accounts)) {
		if a := s.quotas.accounts[id]; a.objects != objects[id] || a.charged != bytes[id] {
			faults = append(faults, fmt.Sprintf("tenant %s: %d objects of %d bytes, want %d of %d", s.tenants.name(id), a.objects, a.charged, objects[id], bytes[id]))
		}
	}
	return faults
}

// Prepared returns the bytes that prepared changes hold of all quotas.
func (s *Store) Prepared() (bytes int64) {
	for _, a := range s.quotas.accounts {
		bytes += a.prepared
	}
	return bytes
}

// MemoryHeld returns the bytes that records, and the shards' tables, have of the
// operating system.
func (s *Store) MemoryHeld() (bytes int64) {
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	bytes = s.slab.Stats().Held
	for i := range s.shards {
		bytes += int64(s.shards[i].byKey.Bytes() + s.shards[i].byID.Bytes())
	}
	return bytes
}
