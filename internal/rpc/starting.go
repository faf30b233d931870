package rpc

import (
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
)

// A Starting is a server of a node that cannot answer anything yet.
type Starting struct {
	grpc  *grpc.Server
	conns accepted
}

// Serve answers calls that come through a listener until Stop is called. It closes the listener.
func (s *Starting) Serve(l net.Listener) error { return s.grpc.Serve(s.conns.listener(l)) }

// Stop ends the server and its connections at once.
func (s *Starting) Stop() {
	s.conns.close()
	s.grpc.Stop()
}

// NewStarting returns a server for a node that cannot answer anything yet. It answers each call
// with errs.NotLeader and the reason, so that clients go on to another node and operators see
// that this one lives. Without credentials (nil) it takes plain text.
func NewStarting(from rpcerr.Source, secrecy credentials.TransportCredentials, why func() string) *Starting {
	options := []grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: probeAfter, Timeout: probeTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return rpcerr.Status(errs.New(errs.NotLeader, "", "%s", why()), "", from).Err()
		}),
	}
	if secrecy != nil {
		options = append(options, grpc.Creds(secrecy))
	}
	return &Starting{grpc: grpc.NewServer(options...)}
}
