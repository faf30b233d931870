package metadata

import (
	"cmp"
	"slices"

	"github.com/understudy-store/understudy/metadata/slab"
)

// An unfiled is an object of a snapshot that is not in its index yet. All objects get there at
// once, when the last shard is loaded: so none of them has its bucket searched for, and no
// bucket is divided again and again while it grows.
//
// It has the object's stamp, counted from unfiledBase, and behind it the object's ref, in one
// number: there may be ten million of them, and they are sorted.
type unfiled uint64

const (
	refBits     = 31
	unfiledSpan = 1 << (64 - refBits) // that stamps may have, in milliseconds: 99 days
)

// unfiledBase is the first stamp that an unfiled can have. The snapshot's time is in the
// middle.
func (s *Store) unfiledBase() Time { return s.now - s.now%bucketWidth - unfiledSpan/2 }

// since returns the stamp, counted from unfiledBase.
func (u unfiled) since() Time { return Time(u >> refBits) }

func (u unfiled) ref() slab.Ref { return slab.Ref(u & (1<<refBits - 1)) }

// minShards is from how many shards postpone guesses how many objects there will be.
const minShards = 32

// postpone is insert while the shards of a snapshot are loaded. It returns false, and does
// nothing, if the stamp is none that an unfiled can have.
func (x *stampIndex) postpone(o object) bool {
	since := uint64(x.stamp(o)) - uint64(x.s.unfiledBase())
	if since >= unfiledSpan {
		return false
	}
	of, shards := x.of(o.tenant), x.s.shardsLoaded
	if n := len(of.unfiled); n == cap(of.unfiled) {
		of.unfiled = slices.Grow(of.unfiled, 1+n*(ShardCount-shards)/max(shards, minShards))
	}
	of.unfiled = append(of.unfiled, unfiled(since<<refBits|uint64(o.ref)))
	return true
}

// fileLoaded puts all objects into their indexes. Until then nobody may use these.
func (s *Store) fileLoaded() {
	s.shardsLoaded = 0
	for kind := range s.indexes {
		x := &s.indexes[kind]
		for id := range x.tenants {
			list := x.tenants[id].unfiled
			x.tenants[id].unfiled = nil
			slices.Sort(list)
			for len(list) > 0 {
				list = x.fill(tenantID(id), list)
			}
		}
	}
}

// fill makes the buckets of the first span, which is as wide as insert makes it. It returns
// those behind that. If there are too many for one bucket, each gets about half as
// many as it may have.
func (x *stampIndex) fill(tenant tenantID, list []unfiled) (behind []unfiled) {
	first, n := list[0].since()/bucketWidth, 0
	for n < len(list) && list[n].since()/bucketWidth == first {
		n++
	}
	if list, behind = list[:n], list[n:]; n > maxBucket {
		x.sortLongRuns(list)
	}
	from := x.s.unfiledBase() + first*bucketWidth
	span := bucket{from: Rank{At: from}, tenant: tenant}
	for len(list) > 0 {
		n, span.to = len(list), Rank{At: from + bucketWidth}
		if n > maxBucket {
			n, span.to = x.cut(list, maxBucket/2)
		}
		b := x.add(span)
		for _, a := range list[:n] {
			b.append(x.s.object(a.ref()), x.kind)
		}
		x.count += n
		span.from, list = span.to, list[n:]
	}
	return behind
}

// cut returns how many objects go into the first bucket, and the end of its span: n at
// most, and whole milliseconds if possible.
func (x *stampIndex) cut(list []unfiled, n int) (int, Rank) {
	for whole := n; whole > 0; whole-- {
		if list[whole-1].since() != list[whole].since() {
			return whole, Rank{At: x.s.unfiledBase() + list[whole].since()}
		}
	}
	return n, x.rank(x.s.object(list[n].ref()))
}

// sortLongRuns sorts the objects of each millisecond by id, if cut may have to divide them.
func (x *stampIndex) sortLongRuns(list []unfiled) {
	for n := 0; len(list) > 0; list = list[n:] {
		for n = 1; n < len(list) && list[n].since() == list[0].since(); {
			n++
		}
		if n > maxBucket/2 {
			slices.SortFunc(list[:n], func(a, b unfiled) int { return cmp.Compare(x.s.object(a.ref()).id, x.s.object(b.ref()).id) })
		}
	}
}
