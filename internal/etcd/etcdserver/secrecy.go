package etcdserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
)

// forCallers returns how callers are talked to: nil for in plain text. Each is judged by what is
// in use then, so that a new authority or certificate counts without a restart. Behind TLS etcd
// tells gRPC from the rest by the protocol: it serves the rest over HTTP/1.1 alone. Members must
// come from where their certificate is for.
func (t TLS) forCallers(members bool) *tls.Config {
	if t.Cert == "" {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c := t.forServer()
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
	}}
}

// forServer returns how a server talks to a caller that comes now. Sessions are not resumed, as
// that would judge by what was in use before.
func (t TLS) forServer() *tls.Config {
	own, callers := t.InUse()
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*own}, NextProtos: []string{"h2"}, SessionTicketsDisabled: true}
	if callers != nil {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, callers
	}
	if t.Name != "" {
		c.VerifyPeerCertificate = func(_ [][]byte, chains [][]*x509.Certificate) error {
			if slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool { return chain[0].Subject.CommonName == t.Name }) {
				return nil
			}
			return fmt.Errorf("its certificate has another common name than %s", t.Name)
		}
	}
	return c
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
		failed = cmp.Or(failed, err)
	}
	err = fmt.Errorf("its certificate, of %s, is for %v %v, and it comes from %s: give the member a certificate with that address",
		cert.Subject.CommonName, cert.IPAddresses, cert.DNSNames, host)
	if failed != nil && len(cert.DNSNames) > 0 {
		err = fmt.Errorf("%w, or see why its name is not found: %w", err, failed)
	}
	return err
}
