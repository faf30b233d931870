package client

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"

	wire "github.com/understudy-store/understudy/internal/mooncake"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
)

// A Protocol is how calls travel. Nodes speak both at the same port, unless
// their --mooncake-generation says otherwise.
type Protocol uint8

// The protocols.
const (
	// GRPC is the public contract of this project.
	GRPC Protocol = iota
	// Mooncake is what Mooncake's own clients speak to their master. It cannot say
	// all that the contract can: package comment, "Over Mooncake's protocol".
	Mooncake
)

var protocols = [...]string{GRPC: "grpc", Mooncake: "mooncake"}

// String returns the protocol's name, "grpc" or "mooncake".
func (p Protocol) String() string {
	if int(p) < len(protocols) {
		return protocols[p]
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// ParseProtocol returns the protocol of a name.
func ParseProtocol(name string) (Protocol, error) {
	if i := slices.Index(protocols[:], name); i >= 0 {
		return Protocol(i), nil
	}
	return 0, fmt.Errorf("%q is no protocol; there are %s", name, strings.Join(protocols[:], " and "))
}

// checkProtocol reports what is wrong with the choice of a protocol.
func (c *Config) checkProtocol(fault func(format string, args ...any)) {
	switch {
	case int(c.Protocol) >= len(protocols):
		fault("Protocol is %d, which is none of its constants", c.Protocol)
	case c.Protocol != Mooncake && (c.Generation != "" || c.AsOriginal):
		fault("Generation and AsOriginal are of the protocol Mooncake only")
	case c.Protocol == Mooncake && !slices.Contains(wire.Names(), c.Generation):
		fault("Generation is %q; known are %s", c.Generation, strings.Join(wire.Names(), ", "))
	}
}

// A channel is what the calls to one address go through. It connects when it is
// used.
type channel interface {
	grpc.ClientConnInterface
	ResetConnectBackoff()
	Close() error
}

// dial returns a channel to an address.
func (c *Config) dial(address string) (channel, error) {
	if c.Protocol != Mooncake {
		return dial(address, c.MaxMessageBytes)
	}
	g, _ := wire.NewGeneration(c.Generation)
	return mooncakeclient.NewTransport(mooncakeclient.Config{
		Address: address, Generation: g, ClusterID: c.ClusterID, Client: c.ClientID, AsOriginal: c.AsOriginal,
		MaxRequestBytes: c.MaxMessageBytes,
	}), nil
}

// over returns an operation as it is in a protocol. Mooncake's has no request
// ids, so what may do something else the second time is not repeated.
func (o operation) over(p Protocol) operation {
	if p == Mooncake && o.unsafeWithoutID {
		o.repeat = never
	}
	return o
}
