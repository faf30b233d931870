// Package fleet computes how a large store divides over several clusters, without running
// any. It places each object as the Go client does (client.Placement), and adds up how many
// objects each master would hold, and how many calls it would answer. It must never guess
// what it can count.
package fleet

import (
	"context"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/understudy-store/understudy/client"
)

// Options of a computation.
type Options struct {
	Hosts    int
	Objects  int
	Clusters []int   // numbers of clusters to compare
	Tenants  int     // whose sizes follow Zipf's law with exponent 1
	Reads    float64 // keys that a host reads a second, in batches
	Puts     float64 // objects that a host puts a second, in batches
	Batch    int     // keys of a batch

	// Costs that were measured on one master.
	ObjectBytes float64 // of memory
	CallMicros  float64 // CPU time of a call, of any kind
	ReadMicros  float64 // additional CPU time of each key that is read in a batch
	PutMicros   float64 // additional CPU time of each object that is put in a batch
}

// Defaults returns a fleet of 1,000 hosts, with the costs of a master from docs/scale.md.
func Defaults() Options {
	return Options{
		Hosts: 1000, Objects: 100_000_000, Clusters: []int{1, 2, 4, 8, 16}, Tenants: 200, Reads: 2000, Puts: 100, Batch: 128,
		ObjectBytes: 170, CallMicros: 9, ReadMicros: 1.1, PutMicros: 6.8,
	}
}

// Check returns what is wrong with the options, in the words of the flags.
func (o *Options) Check() error {
	for _, n := range []struct {
		flag        string
		least, most float64
		have        float64
	}{
		{"hosts", 1, 1e6, float64(o.Hosts)}, {"objects", 1, 1e10, float64(o.Objects)}, {"tenants", 1, 1e6, float64(o.Tenants)},
		{"batch", 1, 10_000, float64(o.Batch)}, {"reads", 0, 1e9, o.Reads}, {"puts", 0, 1e9, o.Puts}, {"object-bytes", 1, 1e6, o.ObjectBytes},
		{"call-us", 0, 1e6, o.CallMicros}, {"read-us", 0, 1e6, o.ReadMicros}, {"put-us", 0, 1e6, o.PutMicros},
	} {
		if !(n.have >= n.least && n.have <= n.most) {
			return fmt.Errorf("--%s is %v: it must be from %v to %v", n.flag, n.have, n.least, n.most)
		}
	}
	if len(o.Clusters) == 0 || slices.Min(o.Clusters) < 1 || slices.Max(o.Clusters) >= client.MaxClusters {
		return fmt.Errorf("--clusters is %v: give numbers from 1 to %d", o.Clusters, client.MaxClusters-1)
	}
	return nil
}

// A Report is the outcome.
type Report struct {
	Hosts   int      `json:"hosts"`
	Objects int      `json:"objects"`
	Cases   []Layout `json:"layouts"`
}

// A Layout is the fleet divided over a number of clusters. Figures of a master are those of
// the busiest or largest one.
type Layout struct {
	Clusters int     `json:"clusters"`
	Least    int64   `json:"least_objects"` // of a cluster
	Most     int64   `json:"most_objects"`
	Spread   float64 `json:"objects_spread"` // most, divided by the mean
	// HotReads is the reads of the busiest cluster, divided by the mean, if the popularity of
	// objects follows Zipf's law with exponent 0.99.
	HotReads float64 `json:"reads_spread"`
	// ByTenant is the objects of the largest cluster, divided by the mean, if each tenant were
	// in one cluster.
	ByTenant float64 `json:"by_tenant_spread"`
	// Moved is the share of the objects that would move to one more cluster, and Strayed the
	// share that would move between the existing ones, which must be 0.
	Moved   float64 `json:"moved_if_one_is_added"`
	Strayed float64 `json:"strayed_if_one_is_added"`

	GB          float64 `json:"master_gb"`          // memory of the largest master
	Connections int     `json:"master_connections"` // each host to each master
	CallsPerS   float64 `json:"master_calls_per_s"`
	Processors  float64 `json:"master_processors"` // CPUs that calls keep busy, in the cluster with most reads
}

const zipfExponent = 0.99

// Run computes the layouts.
func Run(ctx context.Context, o Options) (Report, error) {
	r := Report{Hosts: o.Hosts, Objects: o.Objects}
	counts := make([]*count, len(o.Clusters))
	for i, n := range o.Clusters {
		counts[i] = newCount(n)
	}
	if err := o.place(ctx, counts); err != nil {
		return r, err
	}
	for _, c := range counts {
		r.Cases = append(r.Cases, o.layout(c))
	}
	return r, nil
}

// A count is how many objects each of some clusters has.
type count struct {
	n              int
	now, more      *client.Placement // over n, and over one more
	objects        []int64
	reads          []float64
	moved, strayed int64
}

func ids(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("cluster-%d", i))
	}
	return list
}

func newCount(n int) *count {
	return &count{
		n: n, now: client.NewPlacement(ids(n)), more: client.NewPlacement(ids(n + 1)),
		objects: make([]int64, n), reads: make([]float64, n),
	}
}

// tenant is the tenant of all placed objects. The balance does not depend on it.
const tenant = "default"

func (c *count) add(key string, weight float64) {
	at := c.now.Of(tenant, key)
	c.objects[at]++
	c.reads[at] += weight
	switch after := c.more.Of(tenant, key); after {
	case at:
	case c.n:
		c.moved++
	default:
		c.strayed++
	}
}

// join adds the counts of another part of the objects.
func (c *count) join(o *count) {
	for i := range c.objects {
		c.objects[i] += o.objects[i]
		c.reads[i] += o.reads[i]
	}
	c.moved += o.moved
	c.strayed += o.strayed
}

// parts is how many goroutines place objects, each a part of them.
const parts = 16

func (o *Options) place(ctx context.Context, counts []*count) error {
	var done [parts][]*count
	g, ctx := errgroup.WithContext(ctx)
	for part := range parts {
		for _, c := range counts {
			done[part] = append(done[part], newCount(c.n))
		}
		g.Go(func() error { return o.placePart(ctx, part, done[part]) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, part := range done {
		for i, c := range part {
			counts[i].join(c)
		}
	}
	return nil
}

func (o *Options) placePart(ctx context.Context, part int, counts []*count) error {
	var key [40]byte
	copy(key[:], "model-7b/layer-00/block-0000000000000000")
	for i := part; i < o.Objects; i += parts {
		if i/parts%(1<<16) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		for at, n := len(key)-1, i; n > 0; at, n = at-1, n>>4 {
			key[at] = "0123456789abcdef"[n&15]
		}
		text, weight := string(key[:]), math.Pow(float64(i+1), -zipfExponent)
		for _, c := range counts {
			c.add(text, weight)
		}
	}
	return nil
}

func (o *Options) layout(c *count) Layout {
	all, n := float64(o.Objects), float64(c.n)
	reads := 0.0
	for _, part := range c.reads {
		reads += part
	}
	l := Layout{
		Clusters: c.n, Least: slices.Min(c.objects), Most: slices.Max(c.objects),
		Spread: float64(slices.Max(c.objects)) * n / all, HotReads: slices.Max(c.reads) * n / reads, ByTenant: o.byTenant(c.now, c.n),
		Moved: float64(c.moved) / all, Strayed: float64(c.strayed) / all, Connections: o.Hosts,
	}
	l.GB = float64(l.Most) * o.ObjectBytes / 1e9
	// A batch goes to each cluster that has a key of it; a put is two calls.
	hosts, touched := float64(o.Hosts), 1-math.Pow(1-1/n, float64(o.Batch))
	l.CallsPerS = hosts * touched * (o.Reads + 2*o.Puts) / float64(o.Batch)
	l.Processors = (l.CallsPerS*o.CallMicros + hosts*(o.Reads*l.HotReads*o.ReadMicros+o.Puts*l.Spread*o.PutMicros)/n) / 1e6
	return l
}

func (o *Options) byTenant(p *client.Placement, clusters int) float64 {
	sizes, all := make([]float64, clusters), 0.0
	for i := range o.Tenants {
		size := 1 / float64(i+1)
		sizes[p.Of(fmt.Sprintf("tenant-%d", i), "")] += size
		all += size
	}
	return slices.Max(sizes) * float64(clusters) / all
}
