package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// Credentials are those of a gRPC client that calls now for each connection: gRPC would keep
// the authorities that it was made with.
func Credentials(now func() *tls.Config) credentials.TransportCredentials { return renewed{now} }

type renewed struct{ now func() *tls.Config }

// ClientHandshake demands the name that was dialled, unless the config has another one.
func (r renewed) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := r.now()
	return credentials.NewTLS(config).ClientHandshake(ctx, cmp.Or(config.ServerName, authority), raw)
}

func (r renewed) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a client's")
}

func (r renewed) Info() credentials.ProtocolInfo { return credentials.NewTLS(r.now()).Info() }

func (r renewed) Clone() credentials.TransportCredentials { return r }

// OverrideServerName is not called any more.
func (r renewed) OverrideServerName(string) error { return errors.New("not supported") }
