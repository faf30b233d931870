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
	// Forward makes all nodes pass calls on to the primary, with --forward, and
	// lets clients know one address alone; over Mooncake's protocol only.
	Forward bool
	// AsOriginal lets clients find the primary no sooner than Mooncake's own; over
	// Mooncake's protocol only.
	AsOriginal bool
}

const (
	// originalGrace is how much later than others a client that behaves as
	// Mooncake's own finds the next primary: three Pings a second apart, and a
	// second until the next look.
	originalGrace = 4 * time.Second
	// originalRefused is how long it takes at most where nobody listens any more:
	// two of the Pings try for up to 4.8 s each to connect.
	originalRefused = 14 * time.Second
)

// Protocol is the protocol's name.
func (a Access) Protocol() string {
	if a.Mooncake {
		return "mooncake"
	}
	return "grpc"
}

// Speaks is the generation of Mooncake's protocol on the nodes' RPC ports.
func (a Access) Speaks() *mooncake.Generation {
	g, _ := mooncake.NewGeneration(cmp.Or(a.Generation, mooncake.Names()[0])) // which Check has found
	return g
}

// Check says what is wrong, "" if nothing is.
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

// client returns a configuration of clients who know nodes and etcd, or with
// Forward the one entry to them.
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

// Outage is how long clients may see nobody serve who would see it for so long
// otherwise. refused says that the old primary's port is closed, and not merely
// its connections.
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
