package judge

import (
	"errors"
	"fmt"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/lab/hostmem"
)

// A Config says what a load does, and to whom. A zero field means its default.
type Config struct {
	// Client says how the cluster is found, and over which protocol: addresses,
	// etcd endpoints, cluster id. Every second client goes by the addresses alone,
	// if there are some.
	Client client.Config
	// Probes are the nodes that are asked by themselves, always over gRPC.
	// Default: Client.Addresses, and whoever was seen to lead.
	Probes  []string
	Clients int    // recorded clients at work at once. Default 16
	Hosts   int    // that lend memory. Default 4
	Keys    int    // keys in use at once. Default 512
	Size    uint64 // bytes of an object. Default 1 KiB
	// Memory is what each host lends, in bytes. Default: for half of what all keys
	// take, so that eviction runs; with NoEviction 256 MiB, of which what is not
	// used costs nothing. What is removed under a lease is free when that ends.
	Memory uint64
	Seed   uint64  // of the clients' choices
	Mix    Mix     // of calls
	Rate   float64 // operations a second over all clients. Default 0: as fast as it goes
	// NoEviction says that nothing is ever evicted: memory is plenty and the
	// cluster has a policy that then keeps all. An acknowledged object that is
	// gone is a violation then, without exception. Otherwise that holds for the
	// eighth of the keys whose objects are pinned hard.
	NoEviction bool
	// Timeout bounds each call with all its attempts. Default 10 s.
	Timeout time.Duration
	// ProbeEvery is the pause between questions to one node. Default 20 ms.
	ProbeEvery time.Duration
	// DiscardTimeout and ReleaseTimeout are the cluster's, for abandoned puts.
	// Defaults 30 s and 600 s.
	DiscardTimeout time.Duration
	ReleaseTimeout time.Duration
	// MaxCalls bounds the history. The load ends when it is full. Default 4 M
	// calls, which take some 800 MB.
	MaxCalls int
}

// A Mix weighs the operations of clients against one another. The zero Mix is
// DefaultMix. A Put is a PutStart and, at once or somewhat later, its PutEnd or
// PutRevoke; a RemoveForce begins with a Get, so that there is a lease to
// override.
type Mix struct{ Put, Get, Exist, Remove, RemoveForce, RemoveRegex int }

// DefaultMix is what clients do unless they are told otherwise.
var DefaultMix = Mix{Put: 34, Get: 40, Exist: 8, Remove: 7, RemoveForce: 10, RemoveRegex: 1}

func (m Mix) total() int {
	return m.Put + m.Get + m.Exist + m.Remove + m.RemoveForce + m.RemoveRegex
}

// maxKeyLength is what the name of a key has at most.
const maxKeyLength = 64

func (c *Config) setDefaults() {
	setDefault(&c.Clients, 16)
	setDefault(&c.Hosts, 4)
	setDefault(&c.Keys, 512)
	setDefault(&c.Size, 1<<10)
	setDefault(&c.Mix, DefaultMix)
	setDefault(&c.Timeout, 10*time.Second)
	setDefault(&c.ProbeEvery, 20*time.Millisecond)
	setDefault(&c.DiscardTimeout, defaultDiscard)
	setDefault(&c.ReleaseTimeout, defaultRelease)
	setDefault(&c.MaxCalls, 4_000_000)
	if c.Memory == 0 && c.NoEviction {
		c.Memory = 256 << 20
	}
	if c.Memory == 0 {
		c.Memory = max(uint64(c.Keys)*c.Size/2/uint64(max(c.Hosts, 1)), 4*c.Size)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// check returns all faults at once.
func (c *Config) check() error {
	var faults []error
	for name, n := range map[string]int{"Clients": c.Clients, "Hosts": c.Hosts, "Keys": c.Keys, "MaxCalls": c.MaxCalls} {
		if n < 1 {
			faults = append(faults, fmt.Errorf("%s is %d; give at least 1", name, n))
		}
	}
	if c.Size < hostmem.MinBlock+maxKeyLength {
		faults = append(faults, fmt.Errorf("an object (Size) has %d bytes; give at least %d, so that a block can say whose it is", c.Size, hostmem.MinBlock+maxKeyLength))
	}
	if c.Memory < c.Size {
		faults = append(faults, fmt.Errorf("a host has %d bytes (Memory), less than one object of %d bytes", c.Memory, c.Size))
	}
	for name, n := range map[string]int{
		"Put": c.Mix.Put, "Get": c.Mix.Get, "Exist": c.Mix.Exist, "Remove": c.Mix.Remove,
		"RemoveForce": c.Mix.RemoveForce, "RemoveRegex": c.Mix.RemoveRegex,
	} {
		if n < 0 {
			faults = append(faults, fmt.Errorf("the weight Mix.%s is %d; it cannot be negative", name, n))
		}
	}
	if c.Rate < 0 {
		faults = append(faults, fmt.Errorf("the Rate is %v; it cannot be negative", c.Rate))
	}
	if len(faults) == 0 {
		return nil
	}
	return &errs.Error{Kind: errs.InvalidParams, Op: "judge.Start", Err: errors.Join(faults...)}
}

// rules are what the judge must know of a load beside its history.
func (c *Config) rules() Rules {
	return Rules{NoEviction: c.NoEviction, Unnumbered: c.unnumbered(), DiscardTimeout: c.DiscardTimeout, ReleaseTimeout: c.ReleaseTimeout}
}

// unnumbered reports whether the clients' calls have no request ids, and their
// answers no terms.
func (c *Config) unnumbered() bool {
	return c.Client.Transport != nil && !c.Client.Transport.RequestIDs()
}

// probes are the addresses that are asked from the beginning.
func (c *Config) probes() []string {
	if len(c.Probes) > 0 {
		return c.Probes
	}
	return c.Client.Addresses
}
