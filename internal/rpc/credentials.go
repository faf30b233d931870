package rpc

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// tlsRecord is the first byte of a connection with TLS: the type of a handshake record.
const tlsRecord = 0x16

// Credentials returns the credentials of a server with TLS. Unless TLS is required, it also
// takes connections without TLS; their first byte tells.
func Credentials(config *tls.Config, required bool) credentials.TransportCredentials {
	c := credentials.NewTLS(config)
	if required {
		return c
	}
	return either{c}
}

// either takes connections with TLS and without.
type either struct {
	credentials.TransportCredentials
}

// ServerHandshake begins a connection. gRPC bounds how long it takes.
func (e either) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	var first [1]byte
	if _, err := c.Read(first[:]); err != nil {
		return nil, nil, err
	}
	c = &begun{Conn: c, first: first[:]}
	if first[0] != tlsRecord {
		return insecure.NewCredentials().ServerHandshake(c)
	}
	return e.TransportCredentials.ServerHandshake(c)
}

func (e either) Clone() credentials.TransportCredentials {
	return either{e.TransportCredentials.Clone()}
}

// A begun connection returns again the bytes that were already read from it.
type begun struct {
	net.Conn
	first []byte
}

func (c *begun) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
