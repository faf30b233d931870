package judge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/mooncake"
)

// A Config says what a load does, and to which cluster. A zero field means its default.
type Config struct {
	// Client says how clients find the cluster, and which protocol they speak: addresses,
	// etcd endpoints, cluster id. If there are addresses, every second client uses only
	// them.
	Client client.Config
	// Probes are the nodes that are asked directly, always over gRPC. Default:
	// Client.Addresses, and every primary that a client finds.
	Probes []string
	Keys   int // in use at once. Default 512
	// Memory is how many bytes each host lends. By default the hosts together have room
	// for half of the keys, so that eviction runs. With NoEviction the default is 256 MiB;
	// unused memory costs nothing. Memory of an object removed under a lease is free when
	// that lease ends.
	Memory uint64
	Seed   uint64  // of the clients' choices
	Rate   float64 // operations a second over all clients. Default 0: as fast as possible
	// NoPatterns says that clients remove nothing by pattern.
	NoPatterns bool
	// Old says that some nodes are of the last release: nothing is upserted, copied,
	// moved or kept on SSDs, and there is one tenant. Else the nodes run with
	// --enable_offload and, if the clients' generation has tenants, with
	// --enable_multi_tenants and the quotas of Quotas.
	Old bool
	// NoEviction says that nothing is ever evicted: there is plenty of memory, and the
	// cluster's policy keeps everything. Then every acknowledged object that is gone is a
	// violation. Otherwise that holds only for the eighth of the keys whose objects are
	// pinned hard.
	NoEviction bool
	// MaxCalls bounds the history, in calls. The load ends when the history is full.
	// Default 4 M, which take some 800 MB.
	MaxCalls int
}

// Clients is how many clients work at the same time.
const Clients = 16

// Tenant is the second tenant, besides the default one. Every fifth client is one of its
// clients, with the same keys, unless their generation of Mooncake's protocol has no
// tenants. It has a quota, so its objects may be evicted at any time.
const Tenant = "other"

const (
	hosts      = 4 // hosts that lend memory
	quota      = 64 * objectSize
	clientsPer = 5 // one client in so many is Tenant's
	objectSize = 1 << 10
	// callTimeout bounds each call with all its attempts.
	callTimeout = 10 * time.Second
	// probeEvery is the pause between probes of one node.
	probeEvery = 20 * time.Millisecond
)

func (c *Config) setDefaults() {
	c.Keys, c.MaxCalls = cmp.Or(c.Keys, 512), cmp.Or(c.MaxCalls, 4_000_000)
	c.Memory = c.memory()
	if len(c.Probes) == 0 {
		c.Probes = c.Client.Addresses
	}
}

func (c *Config) memory() uint64 {
	if c.NoEviction {
		return cmp.Or(c.Memory, 256<<20)
	}
	return cmp.Or(c.Memory, max(uint64(cmp.Or(c.Keys, 512))*objectSize/2/hosts, 4*objectSize))
}

// Quotas returns the text of the policy file for --tenant_quota_connector_uri. The quota of
// the default tenant is all memory.
func (c *Config) Quotas() string {
	return fmt.Sprintf("version: 1\ntenants:\n- {name: default, quota: %dB}\n- {name: %s, quota: %dB}\n", hosts*c.memory(), Tenant, quota)
}

// generation returns the generation of Mooncake's protocol that the clients and the owners of
// the hosts' memory speak: the newest if the clients use gRPC.
func (c *Config) generation() *mooncake.Generation {
	if t, ok := c.Client.Transport.(interface{ Generation() *mooncake.Generation }); ok {
		return t.Generation()
	}
	g, _ := mooncake.NewGeneration(mooncake.Names()[0])
	return g
}

// unnumbered reports whether the clients' calls have no request ids, and their
// answers no terms.
func (c *Config) unnumbered() bool {
	return c.Client.Transport != nil && !c.Client.Transport.RequestIDs()
}
