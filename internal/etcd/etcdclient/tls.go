package etcdclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"
)

// renewed are credentials that are read anew for each connection: clientv3 would keep the
// authorities that it was made with.
type renewed struct{ now func() *tls.Config }

// ClientHandshake demands the name of the endpoint, unless the config has another one.
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

// secure reports whether all endpoints are reached over TLS by a client that has it.
func secure(endpoints []string) bool {
	for _, e := range endpoints {
		if scheme, _, found := strings.Cut(e, "://"); found && scheme != "https" {
			return false
		}
	}
	return true
}
