package judge

import (
	"cmp"
	"time"

	"github.com/understudy-store/understudy/client"
)

// A Config says what a load does, and to whom. A zero field means its default.
type Config struct {
	// Client says how the cluster is found, and over which protocol: addresses,
	// etcd endpoints, cluster id. Every second client goes by the addresses alone,
	// if there are some.
	Client client.Config
	// Probes are the nodes that are asked directly, always over gRPC. Default:
	// Client.Addresses, and every primary that a client finds.
	Probes []string
	Keys   int // in use at once. Default 512
	// Memory is what each host lends, in bytes. Default: for half of what all keys
	// take, so that eviction runs; with NoEviction 256 MiB, of which what is not
	// used costs nothing. What is removed under a lease is free when that ends.
	Memory uint64
	Seed   uint64  // of the clients' choices
	Rate   float64 // operations a second over all clients. Default 0: as fast as it goes
	// NoPatterns says that nothing is removed by pattern.
	NoPatterns bool
	// NoUpserts says that nothing is upserted: some nodes may not know how.
	NoUpserts bool
	// NoEviction says that nothing is ever evicted: memory is plenty and the
	// cluster has a policy that then keeps all. An acknowledged object that is
	// gone is a violation then, without exception. Otherwise that holds for the
	// eighth of the keys whose objects are pinned hard.
	NoEviction bool
	// MaxCalls bounds the history. The load ends when it is full. Default 4 M
	// calls, which take some 800 MB.
	MaxCalls int
}

// Clients are at work at once.
const Clients = 16

const (
	hosts      = 4 // that lend memory
	objectSize = 1 << 10
	// callTimeout bounds each call with all its attempts.
	callTimeout = 10 * time.Second
	// probeEvery is the pause between questions to one node.
	probeEvery = 20 * time.Millisecond
)

func (c *Config) setDefaults() {
	c.Keys, c.MaxCalls = cmp.Or(c.Keys, 512), cmp.Or(c.MaxCalls, 4_000_000)
	if c.NoEviction {
		c.Memory = cmp.Or(c.Memory, 256<<20)
	}
	c.Memory = cmp.Or(c.Memory, max(uint64(c.Keys)*objectSize/2/hosts, 4*objectSize))
	if len(c.Probes) == 0 {
		c.Probes = c.Client.Addresses
	}
}

// unnumbered reports whether the clients' calls have no request ids, and their
// answers no terms.
func (c *Config) unnumbered() bool {
	return c.Client.Transport != nil && !c.Client.Transport.RequestIDs()
}
