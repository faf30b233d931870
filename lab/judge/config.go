package judge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/mooncake"
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
	// Old says that some nodes are of the last release: nothing is upserted, copied,
	// moved or kept on SSDs, and there is one tenant. Else the nodes run with
	// --enable_offload and, if the clients' generation has tenants, with
	// --enable_multi_tenants and the quotas of Quotas.
	Old bool
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

// Tenant is the one besides the default tenant. Every fifth client is its, with the
// same keys, unless their generation of Mooncake's protocol has no tenants. It has a
// quota, so its objects may be evicted at any time.
const Tenant = "other"

const (
	hosts      = 4 // that lend memory
	quota      = 64 * objectSize
	clientsPer = 5 // one of so many clients is Tenant's
	objectSize = 1 << 10
	// callTimeout bounds each call with all its attempts.
	callTimeout = 10 * time.Second
	// probeEvery is the pause between questions to one node.
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

// Quotas returns the policy file of the tenants' quotas, --tenant_quota_connector_uri:
// that of the default tenant is what memory there is.
func (c *Config) Quotas() string {
	return fmt.Sprintf("version: 1\ntenants:\n- {name: default, quota: %dB}\n- {name: %s, quota: %dB}\n", hosts*c.memory(), Tenant, quota)
}

// generation returns what the clients speak of Mooncake's protocol, and the owners of
// the hosts' memory: over gRPC the newest.
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
