package cluster

import (
	"cmp"
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/lab/original"
)

// Access is how clients reach a cluster, and over which protocol.
type Access struct {
	Mooncake bool // over Mooncake's protocol, and not gRPC
	// Generation of Mooncake's protocol that nodes and clients speak; empty for the
	// newest.
	Generation string
	// Forward makes all nodes forward calls to the primary (--forward), and gives clients
	// only one address; over Mooncake's protocol only.
	Forward bool
	// AsOriginal makes clients find the primary no sooner than Mooncake's own client does;
	// over Mooncake's protocol only.
	AsOriginal bool
}

const (
	// originalGrace is how much later than others a client that behaves as Mooncake's own
	// finds the next primary: after three Pings a second apart, and another second until it
	// looks.
	originalGrace = 4 * time.Second
	// originalRefused is how long that takes at most if the old address refuses connections:
	// two of the Pings try to connect for up to 4.8 s each.
	originalRefused = 14 * time.Second
)

// Protocol is the protocol's name.
func (a Access) Protocol() string {
	if a.Mooncake {
		return "mooncake"
	}
	return "grpc"
}

// Speaks returns the generation of Mooncake's protocol on the nodes' RPC ports.
func (a Access) Speaks() *mooncake.Generation {
	g, _ := mooncake.NewGeneration(cmp.Or(a.Generation, mooncake.Names()[0])) // which Check has found
	return g
}

// Check returns what is wrong with the access, "" for nothing.
func (a Access) Check() string {
	if !a.Mooncake && (a.Forward || a.AsOriginal) {
		return "nodes forward, and clients behave as Mooncake's own, over the protocol mooncake only"
	}
	if !a.Mooncake && a.Generation != "" {
		return "a generation is one of the protocol mooncake, which clients do not speak here"
	}
	if _, err := mooncakeclient.NewTransport(a.Generation); err != nil {
		return err.Error()
	}
	return ""
}

// client returns a configuration for clients that know the nodes and etcd, or with Forward
// only the entry.
func (a Access) client(nodes []string, entry string, etcd []string) client.Config {
	c := client.Config{Addresses: nodes, EtcdEndpoints: etcd}
	if a.Forward {
		c.Addresses, c.EtcdEndpoints = []string{entry}, nil
	}
	if a.Mooncake {
		t, _ := mooncakeclient.NewTransport(a.Generation) // which Check has found
		if c.Transport = t; a.AsOriginal {
			c = original.Client(t, c)
		}
	}
	return c
}

// Outage returns how long an outage of d may be for these clients. refused says that the old
// primary's port refuses connections, instead of only closing them.
func (a Access) Outage(d time.Duration, refused bool) time.Duration {
	switch {
	case !a.AsOriginal || a.Forward:
		return d
	case refused:
		return max(d+originalGrace, originalRefused)
	default:
		return d + originalGrace
	}
}
