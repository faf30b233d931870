package app

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/security/access"
	"github.com/understudy-store/understudy/internal/security/certs"
	"github.com/understudy-store/understudy/internal/zslog"
)

// loadCertificates reads the files, of tokens too, that the settings name.
func (a *App) loadCertificates() (err error) {
	logger := zslog.New(a.log.With().Str("part", "certificates").Logger())
	if a.cfg.Security.TLS() {
		if a.certs, err = certs.Load(a.cfg.Security.Node(), logger); err == nil {
			err = a.demandOfOwn()
		}
		if err != nil {
			return fmt.Errorf("--tls-cert, --tls-key, --tls-ca: %w", err)
		}
	}
	if a.cfg.Security.Roles {
		if a.callers, err = access.New(a.cfg.Security.Tokens, a.log); err != nil {
			return fmt.Errorf("--roles-tokens: %w", err)
		}
	}
	switch files := a.cfg.Etcd(); {
	case files.Given() && files == a.cfg.Security.Node():
		a.etcdCerts = a.certs
	case files.Given():
		if a.etcdCerts, err = certs.Load(files, logger); err != nil {
			return fmt.Errorf("--etcd-ca, --etcd-cert, --etcd-key: %w", err)
		}
	}
	return nil
}

// demandOfOwn refuses a certificate with which no other node or client would reach this one, now
// and when the files are read again. Nobody but its callers knows by which name a lone node is
// called, nor whether --tls-ca is for more than its callers: there, a new certificate only has to
// be as good as the first one.
func (a *App) demandOfOwn() error {
	demanded := []certs.Need{certs.InTime()}
	for _, n := range a.needs() {
		err := a.certs.Lacks(n)
		if err != nil && a.cfg.HA.Enabled {
			return err
		}
		if err == nil {
			demanded = append(demanded, n)
		}
	}
	a.certs.Demand(demanded...)
	return nil
}

// needs are what others look for in this node's certificate.
func (a *App) needs() []certs.Need {
	uses := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if a.cfg.HA.Enabled {
		uses = append(uses, x509.ExtKeyUsageClientAuth) // this node calls others
	}
	list := []certs.Need{certs.InTime(), certs.OfAuthorities(uses...)}
	if !a.cfg.HA.Witness { // nobody calls a witness but its member of etcd
		host, _, _ := net.SplitHostPort(a.cfg.Node.AdvertiseAddress)
		list = append(list, certs.ForHost(host, "--advertise-address"))
	}
	if a.cfg.HA.Members() { // else it would get a vote, and no other member could call it
		host, _, _ := net.SplitHostPort(a.cfg.PeerAddress())
		list = append(list, certs.ForHost(host, "--advertise-address or --etcd-peer-listen"))
	}
	return list
}

// expiries returns when the certificates in use expire, by kind. One that is for etcd as well is of
// the kind node alone.
func (a *App) expiries() map[string]time.Time {
	by := make(map[string]time.Time)
	if at := a.certs.Until(); !at.IsZero() {
		by["node"] = at
	}
	if at := a.etcdCerts.Until(); !at.IsZero() && a.etcdCerts != a.certs {
		by["etcd"] = at
	}
	return by
}

// credentials are those of the gRPC port; nil for plain text.
func (a *App) credentials() credentials.TransportCredentials {
	if a.certs == nil {
		return nil
	}
	clients := tls.RequireAndVerifyClientCert
	if a.cfg.Security.Tokens != "" {
		clients = tls.VerifyClientCertIfGiven
	}
	return rpc.Credentials(a.certs.Server(clients), a.cfg.Security.Required)
}

// httpTLS is the configuration of HTTP; nil for plain text. Clients need no certificate:
// those that scrape metrics or check the health have none.
func (a *App) httpTLS() *tls.Config {
	if !a.cfg.Security.OnlyTLS() {
		return nil
	}
	return a.certs.Server(tls.VerifyClientCertIfGiven)
}

// etcdServerTLS is what the embedded etcd is served with. It has no users, so with roles
// only nodes may reach it: a client's certificate comes from the same authority.
func (a *App) etcdServerTLS() (etcdserver.TLS, error) {
	files := a.cfg.Security.Node()
	secrecy := etcdserver.TLS{CA: files.CA, Cert: files.Cert, Key: files.Key}
	if a.certs != nil {
		secrecy.InUse = a.certs.InUse
	}
	if a.callers == nil {
		return secrecy, nil
	}
	if secrecy.Name = a.certs.Name(); secrecy.Name == "" {
		return secrecy, errs.New(errs.InvalidParams, "", "--roles, --tls-cert: the certificate has no common name (CN), by which the embedded etcd tells nodes from others")
	}
	return secrecy, nil
}

// etcdAccess says how this node talks to etcd.
func (a *App) etcdAccess() (access etcdclient.Access, err error) {
	s := a.cfg.Security
	switch {
	case a.cfg.HA.Embedded() && a.certs != nil:
		access.TLS, access.Renewed = a.ownEtcdTLS(), a.ownEtcdTLS
	case a.etcdCerts != nil:
		access.TLS, access.Renewed = a.etcdCerts.Client(), a.etcdCerts.Client
	}
	if s.EtcdUser == "" {
		return access, nil
	}
	access.User, access.Password = s.EtcdUser, etcdclient.PasswordFile(s.EtcdPasswordFile)
	if _, err := access.Password(); err != nil {
		return access, fmt.Errorf("--etcd-password-file: %w", err)
	}
	return access, nil
}

// ownEtcdTLS is the configuration for calls to the etcd in this process. That etcd mostly
// listens on loopback, and its certificate need name only the advertised host.
func (a *App) ownEtcdTLS() *tls.Config {
	hosts := make([]string, 0, 2)
	for _, address := range []string{a.cfg.HA.EtcdListen, a.cfg.Node.AdvertiseAddress} {
		if host, _, err := net.SplitHostPort(address); err == nil {
			hosts = append(hosts, host)
		}
	}
	return a.certs.ClientOfOwn(hosts...)
}

// allowed lets only those addresses through that may use Mooncake's protocol, for handlers
// that have no other protection.
func (a *App) allowed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if peer, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !a.cfg.Allows(peer.Addr()) {
			http.Error(w, "--mooncake-allow does not have your address", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
