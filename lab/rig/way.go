package rig

import (
	"time"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/lab/original"
)

// A Way is how clients reach a cluster of a demo or a drill, and over which
// protocol.
type Way struct {
	Mooncake bool // over Mooncake's protocol, and not gRPC
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
func (w Way) Protocol() string {
	if w.Mooncake {
		return "mooncake"
	}
	return "grpc"
}

// Check says what is wrong with a way, "" if nothing is.
func (w Way) Check() string {
	if !w.Mooncake && (w.Forward || w.AsOriginal) {
		return "nodes forward, and clients behave as Mooncake's own, over the protocol mooncake only"
	}
	return ""
}

// Args are the arguments that nodes need for it.
func (w Way) Args() []string {
	if w.Forward {
		return []string{"--forward"}
	}
	return nil
}

// Client returns a configuration of clients who know nodes, or with Forward the
// one entry to them, or etcd.
func (w Way) Client(nodes []string, entry string, etcd []string) client.Config {
	c := client.Config{Addresses: nodes, EtcdEndpoints: etcd}
	if w.Forward {
		c.Addresses, c.EtcdEndpoints = []string{entry}, nil
	}
	if w.Mooncake {
		t, _ := mooncakeclient.NewTransport("") // the newest, which there always is
		if c.Transport = t; w.AsOriginal {
			c = original.Client(t, c)
		}
	}
	return c
}

// Outage is how long clients may see nobody serve who would see it for so long
// otherwise. refused says that the old primary's port is closed, and not merely
// its connections.
func (w Way) Outage(d time.Duration, refused bool) time.Duration {
	switch {
	case !w.AsOriginal || w.Forward:
		return d
	case refused:
		return max(d+originalGrace, originalRefused)
	default:
		return d + originalGrace
	}
}
