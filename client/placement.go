package client

import (
	"cmp"

	"github.com/zeebo/xxh3"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// A Placement says which of several clusters has a key, by rendezvous hashing: each
// cluster has a score for the key, and the highest wins. So the keys spread evenly, and
// every client finds the same cluster without asking anybody. When a cluster is added it
// takes its share from all the others, and no key moves between those.
//
// The score is a part of the contract, for clients in other languages:
//
//	splitmix64(xxh3(key) ^ splitmix64(xxh3(tenant)) ^ xxh3(cluster id))
//
// with 64-bit XXH3 without a seed, and the finalizer of SplitMix64, which first adds its
// increment. A client without a tenant has the tenant "default". If two scores are equal,
// the lower id wins.
type Placement struct {
	ids    []string
	hashes []uint64
}

// NewPlacement returns the placement over clusters with the given ids, which must differ.
// Their order only decides the numbers that Of returns.
func NewPlacement(ids []string) *Placement {
	p := &Placement{ids: ids, hashes: make([]uint64, len(ids))}
	for i, id := range ids {
		p.hashes[i] = xxh3.HashString(id)
	}
	return p
}

// Of returns the number of the cluster that has a key, in the order of the ids. It does not
// allocate.
func (p *Placement) Of(tenant, key string) int {
	hash := xxh3.HashString(key) ^ splitmix64(xxh3.HashString(cmp.Or(tenant, pb.DefaultTenant)))
	best, most := 0, uint64(0)
	for i, h := range p.hashes {
		score := splitmix64(hash ^ h)
		if i == 0 || score > most || score == most && p.ids[i] < p.ids[best] {
			best, most = i, score
		}
	}
	return best
}

// splitmix64 is a step of the generator of this name (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", OOPSLA 2014): each bit of the result depends on all of x.
func splitmix64(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
