package console

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
	"github.com/understudy-store/understudy/segment"
)

const (
	// keepCensus is how long a census is kept for other requests. None is taken while
	// nobody looks.
	keepCensus = 10 * time.Second
	// censusObjects bounds what a census visits: of more objects it visits a sample.
	censusObjects = 1_000_000
	// maxPrefixes bounds the prefixes that a census tells apart; shownPrefixes are shown.
	maxPrefixes   = 4096
	shownPrefixes = 20
)

// figures are what a census of the objects found. Of a sample they are estimates.
type figures struct {
	At       time.Time
	Sample   int // one object of so many was visited
	Objects  int
	Leased   int
	HardPins int
	SoftPins int
	Ends     []ending // leases, by when they end
	Pinned   map[segment.Number]uint64
	Prefixes []prefix // those with most leases first
	Others   int      // prefixes that are not shown
}

// An ending counts the leases that end within a time.
type ending struct {
	Within time.Duration // 0 for all that end later
	Leases int
}

// A prefix counts the objects whose keys begin alike.
type prefix struct {
	Name    string
	Objects int
	Leased  int
	Bytes   uint64
}

// take visits the objects of the state.
func (c *console) take(ctx context.Context, store *metadata.Store) (f figures, err error) {
	end, err := c.Scans.Look(ctx)
	if err != nil {
		return f, err
	}
	defer end()
	now := c.Gate.ClusterTime(store)
	f = figures{At: c.Now(), Sample: 1 + int(store.Stats().Objects/censusObjects), Pinned: make(map[segment.Number]uint64)}
	for _, d := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, 0} {
		f.Ends = append(f.Ends, ending{Within: d})
	}
	prefixes := make(map[string]*prefix)
	for shard := 0; shard < metadata.ShardCount; shard += f.Sample {
		if err := ctx.Err(); err != nil {
			return f, err
		}
		store.Census(shard, now, func(g metadata.Glance, in func(func(segment.Number) bool)) { f.add(g, in, now, prefixes) })
	}
	all := make([]prefix, 0, len(prefixes))
	for name, p := range prefixes {
		p.Name = name
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b prefix) int {
		return cmp.Or(b.Leased-a.Leased, b.Objects-a.Objects, strings.Compare(a.Name, b.Name))
	})
	shown := min(len(all), shownPrefixes)
	f.Prefixes, f.Others = all[:shown], len(all)-shown
	return f, nil
}

func (f *figures) add(g metadata.Glance, in func(func(segment.Number) bool), now metadata.Time, prefixes map[string]*prefix) {
	f.Objects += f.Sample
	name := prefixOf(g.Key)
	p := prefixes[name]
	if p == nil {
		if len(prefixes) >= maxPrefixes {
			name = "(other prefixes)"
		}
		if p = prefixes[name]; p == nil {
			p = new(prefix)
			prefixes[strings.Clone(name)] = p
		}
	}
	p.Objects += f.Sample
	p.Bytes += g.Size * uint64(f.Sample)
	if left := g.LeaseEnds.Sub(now); left > 0 {
		f.Leased += f.Sample
		p.Leased += f.Sample
		i := slices.IndexFunc(f.Ends, func(e ending) bool { return left <= e.Within || e.Within == 0 })
		f.Ends[i].Leases += f.Sample
	}
	if g.HardPin {
		f.HardPins += f.Sample
	}
	if g.SoftPin {
		f.SoftPins += f.Sample
	}
	if g.HardPin || g.SoftPin {
		for number := range in {
			f.Pinned[number] += g.Size * uint64(f.Sample)
		}
	}
}

// prefixOf is service.PrefixOf, with a name for none.
func prefixOf(key string) string {
	if p := service.PrefixOf(key); p != "" {
		return p
	}
	return "(no prefix)"
}

func (c *console) counted(ctx context.Context, store *metadata.Store) (figures, error) {
	return c.census.get(ctx, c.Now, func(ctx context.Context) (figures, error) { return c.take(ctx, store) })
}
