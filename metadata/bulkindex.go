package metadata

import (
	"cmp"
	"math/bits"
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
			sortSpread(list)
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
// It reads each id once: the records lie anywhere.
func (x *stampIndex) sortLongRuns(list []unfiled) {
	type identified struct {
		id ObjectID
		of unfiled
	}
	var run []identified
	for n := 0; len(list) > 0; list = list[n:] {
		for n = 1; n < len(list) && list[n].since() == list[0].since(); {
			n++
		}
		if n <= maxBucket/2 {
			continue
		}
		run = run[:0]
		for _, u := range list[:n] {
			run = append(run, identified{x.s.object(u.ref()).id, u})
		}
		slices.SortFunc(run, func(a, b identified) int { return cmp.Compare(a.id, b.id) })
		for i := range run {
			list[i] = run[i].of
		}
	}
}

// sortedPieces is the logarithm of how many pieces sortSpread divides a list into.
const sortedPieces = 12

// sortSpread sorts numbers that are spread over their span, as times and addresses are. It
// divides the span into pieces, brings each number to its piece, in place, and then sorts the
// pieces, which are small enough for the processor's nearest cache. Without a spread it is
// slices.Sort.
func sortSpread[T ~uint64](list []T) {
	if len(list) < 4<<sortedPieces {
		slices.Sort(list)
		return
	}
	first := slices.Min(list)
	shift := max(0, bits.Len64(uint64(slices.Max(list)-first))-sortedPieces)
	var next, ends [1 << sortedPieces]int // of each piece: where its next number goes, and its end
	for _, v := range list {
		ends[(v-first)>>shift]++
	}
	for i, at := 0, 0; i < len(ends); i++ {
		next[i], at = at, at+ends[i]
		ends[i] = at
	}
	for i := range ends {
		for next[i] < ends[i] {
			v := list[next[i]]
			for to := int((v - first) >> shift); to != i; to = int((v - first) >> shift) {
				v, list[next[to]] = list[next[to]], v
				next[to]++
			}
			list[next[i]] = v
			next[i]++
		}
	}
	begin := 0
	for _, end := range ends {
		slices.Sort(list[begin:end])
		begin = end
	}
}
