package console

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/service"
	"github.com/understudy-store/understudy/metadata"
)

var errNoState = errors.New("this node holds no state yet; the page Cluster says why")

// maxSegments bounds the segments of a page.
const maxSegments = 2000

// A host is the segments that one host lends.
type host struct {
	Name     string
	Segments []segmentUse
	Capacity uint64
	Used     uint64
}

// segmentUse says what a segment's bytes are taken for. The parts add up to Capacity.
type segmentUse struct {
	metadata.SegmentStats
	Plain  uint64 // in use, and neither pinned nor in quarantine
	Pinned uint64
	Free   uint64
	Bar    [3]float64 // where quarantine, pins and free begin, in percent
}

type memoryView struct {
	metadata.Stats
	Census  figures
	Hosts   []host
	LeftOut int
}

func (c *console) memory(r *http.Request) (any, error) {
	store := c.Node.Store()
	if store == nil {
		return memoryView{}, errNoState
	}
	v := memoryView{Stats: store.Stats()}
	var err error
	v.Census, err = c.counted(r.Context(), store)
	shown := 0
	for s := range store.EachSegment() {
		if shown++; shown > maxSegments {
			v.LeftOut++
			continue
		}
		name := hostOf(s)
		i := slices.IndexFunc(v.Hosts, func(h host) bool { return h.Name == name })
		if i < 0 {
			i, v.Hosts = len(v.Hosts), append(v.Hosts, host{Name: name})
		}
		h := &v.Hosts[i]
		h.Segments = append(h.Segments, useOf(s, v.Census.Pinned[s.Number]))
		h.Capacity, h.Used = h.Capacity+s.Capacity, h.Used+s.Busy
	}
	slices.SortFunc(v.Hosts, func(a, b host) int { return strings.Compare(a.Name, b.Name) })
	return v, err
}

// hostOf is where a segment's bytes are reached, without the port.
func hostOf(s metadata.SegmentStats) string {
	for _, address := range []string{s.Endpoint, s.Name} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			return host
		}
	}
	return s.Name
}

// useOf splits a segment's bytes up. Pins were counted a moment before the rest.
func useOf(s metadata.SegmentStats, pinned uint64) segmentUse {
	u := segmentUse{SegmentStats: s, Free: s.Capacity - min(s.Busy, s.Capacity)}
	quarantined := min(s.Quarantined, s.Busy)
	u.Pinned = min(pinned, s.Busy-quarantined)
	u.Plain = s.Busy - quarantined - u.Pinned
	if s.Capacity > 0 {
		percent := func(n uint64) float64 { return 100 * float64(n) / float64(s.Capacity) }
		u.Bar = [3]float64{percent(u.Plain), percent(u.Plain + u.Pinned), percent(s.Busy)}
	}
	return u
}

// Evictions are what this node evicted as a primary, ever.
type Evictions struct {
	Cutoffs, Objects int64
	EvictedBytes     uint64
	Idle             time.Duration // of the least idle object of the last cutoff
}

type cacheView struct {
	Rates []rate
	Evictions
	metadata.Stats
	Census               figures
	HotKeys, HotPrefixes []service.HotKey
}

// A rate is how many keys were found in a time.
type rate struct {
	Over       string
	Hits, Gets int64
}

func (r rate) Rate() float64 { return float64(r.Hits) / float64(r.Gets) }

func (c *console) cache(r *http.Request) (any, error) {
	v := cacheView{Evictions: c.Evicted()}
	for _, d := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
		hits, gets := c.Recorder.hits(d)
		v.Rates = append(v.Rates, rate{"the last " + lasted(d), hits, gets})
	}
	v.Rates = append(v.Rates, rate{"this process", c.Calls.ValidGets.Load(), c.Calls.Gets.Load() + c.Calls.ExistMisses.Load()})
	store := c.Node.Store()
	if store == nil {
		return v, errNoState
	}
	v.Stats = store.Stats()
	v.HotKeys, v.HotPrefixes = c.Hot.Top(shownPrefixes, c.Gate.ClusterTime(store))
	for i := range v.HotPrefixes {
		v.HotPrefixes[i].Key = prefixOf(v.HotPrefixes[i].Key)
	}
	var err error
	v.Census, err = c.counted(r.Context(), store)
	return v, err
}

type leasesView struct {
	metadata.LeaseCounts
	TTL    time.Duration
	Census figures
}

func (c *console) leases(r *http.Request) (any, error) {
	store := c.Node.Store()
	if store == nil {
		return leasesView{}, errNoState
	}
	census, err := c.counted(r.Context(), store)
	return leasesView{store.LeaseCounts(), store.Params().LeaseTTL, census}, err
}

type keyView struct {
	Key, Tenant string
	Found       *metadata.Object
	metadata.Blocks
	Lease, Age time.Duration // what is left of the lease; since PutStart
	Missing    bool
}

// key looks an object up in this node's state, and grants no lease.
func (c *console) key(r *http.Request) (any, error) {
	v := keyView{Key: r.FormValue("key"), Tenant: r.FormValue("tenant")}
	if v.Key == "" {
		return v, nil
	}
	store := c.Node.Store()
	if store == nil {
		return v, errNoState
	}
	tenant := cmp.Or(v.Tenant, metadata.DefaultTenant)
	o, err := store.Inspect(tenant, v.Key)
	if errs.KindOf(err) == errs.ObjectNotFound {
		v.Missing = true
		return v, nil
	}
	now := c.Gate.ClusterTime(store)
	v.Found, v.Blocks = &o, store.Blocks(tenant, v.Key, now)
	v.Lease, v.Age = max(0, o.LeaseEnds.Sub(now)), max(0, now.Sub(o.PutStart))
	return v, err
}
