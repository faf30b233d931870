package etcdserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// forCallers returns how callers are talked to: nil for in plain text. The files are read again
// for each, so that a new authority or certificate counts at once; while they cannot be used, as
// half written ones, the last ones that could are. Behind TLS etcd tells gRPC from the rest by the
// protocol: it serves the rest over HTTP/1.1 alone. Members must come from where their certificate
// is for.
func (t TLS) forCallers(members bool, log zerolog.Logger) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil //nolint:nilnil // plain text
	}
	first, err := t.forServer()
	if err != nil {
		return nil, err
	}
	var usable atomic.Pointer[tls.Config]
	usable.Store(first)
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := t.forServer()
		if err == nil {
			usable.Store(c)
		} else {
			log.Warn().Err(err).Msg("the files of TLS for etcd cannot be used; those read before stay in use")
		}
		c = usable.Load().Clone()
		if members || slices.Contains(hello.SupportedProtos, "http/1.1") {
			c.NextProtos = []string{"http/1.1"}
		}
		if members {
			c.VerifyConnection = func(s tls.ConnectionState) error {
				if len(s.PeerCertificates) == 0 {
					return nil
				}
				return comesFrom(hello.Context(), s.PeerCertificates[0], hello.Conn.RemoteAddr(), net.DefaultResolver)
			}
		}
		return c, nil
	}}, nil
}

// forServer reads the files. That of authorities may be half written, which etcd takes for one
// of none; and etcd would read certificate and key once more in each handshake.
func (t TLS) forServer() (*tls.Config, error) {
	c, err := t.info().ServerConfig()
	if err != nil {
		return nil, err
	}
	if c.ClientCAs != nil && c.ClientCAs.Equal(x509.NewCertPool()) {
		return nil, fmt.Errorf("%s has no certificate in PEM", t.CA)
	}
	own, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	c.GetCertificate, c.Certificates = nil, []tls.Certificate{own}
	return c, err
}

// comesFrom refuses a certificate of hosts, none of which is the one that calls: who has
// taken a member's certificate must call from that member's address, as etcd wants it. A name
// counts if the address leads to it, or it to the address.
func comesFrom(ctx context.Context, cert *x509.Certificate, from net.Addr, names *net.Resolver) error {
	host, _, err := net.SplitHostPort(from.String())
	if err != nil || len(cert.IPAddresses)+len(cert.DNSNames) == 0 || cert.VerifyHostname(host) == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	called, failed := names.LookupAddr(ctx, host)
	for _, name := range cert.DNSNames {
		suffix, wild := strings.CutPrefix(name, "*")
		if slices.ContainsFunc(called, func(own string) bool {
			own = strings.TrimSuffix(own, ".")
			return own == name || wild && strings.HasSuffix(own, suffix)
		}) {
			return nil
		}
	}
	for _, name := range cert.DNSNames {
		at, err := names.LookupHost(ctx, name)
		if slices.Contains(at, host) {
			return nil
		}
		if failed == nil {
			failed = err
		}
	}
	err = fmt.Errorf("its certificate, of %s, is for %v %v, and it comes from %s: give the member a certificate with that address",
		cert.Subject.CommonName, cert.IPAddresses, cert.DNSNames, host)
	if failed != nil && len(cert.DNSNames) > 0 {
		err = fmt.Errorf("%w, or see why its name is not found: %w", err, failed)
	}
	return err
}
