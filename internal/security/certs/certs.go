// Package certs reads certificates from files, again whenever they change, and
// makes a set of them for trials.
//
// It must never give out a certificate without its key, nor drop the one in use for
// files that cannot be read.
package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/internal/files"
)

// maxFile bounds what is read of a file.
const maxFile = 1 << 20

// Files name a certificate with its key, and the authorities of peers, in PEM. Cert and
// Key are given both or not at all.
type Files struct {
	CA   string // whom peers' certificates must come from; empty for those that the system trusts
	Cert string // with its intermediates
	Key  string
}

// Given reports whether any file is named.
func (f Files) Given() bool { return f != Files{} }

// A Source is what the files hold.
type Source struct {
	files Files
	log   *slog.Logger
	now   atomic.Pointer[content]
	needs atomic.Pointer[[]Need] // that what is read later must meet
}

// A content is the files at one time.
type content struct {
	ca, cert, key []byte
	pool          *x509.CertPool   // nil without a CA
	pair          *tls.Certificate // nil without a certificate
}

// Load reads files for the first time. Run needs the log, which may be nil otherwise.
func Load(files Files, log *slog.Logger) (*Source, error) {
	c, err := read(files)
	if err == nil {
		err = c.parse(files)
	}
	if err != nil {
		return nil, err
	}
	s := &Source{files: files, log: log}
	s.now.Store(c)
	s.Demand(InTime())
	return s, nil
}

// Run reads the files again when they change, until the context ends. What cannot be
// used is logged, and what was in use stays so.
func (s *Source) Run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	load := func() error {
		changed, err := s.Renew()
		if changed {
			s.log.Info("new certificates are in use", "cert", s.files.Cert, "ca", s.files.CA, "until", s.now.Load().until())
		}
		return err
	}
	return files.Reload(ctx, load, func(err error) {
		s.log.Warn("new certificates cannot be used; those read before stay in use", "error", err)
	})
}

// Renew reads the files again, and reports whether their content has changed. With an error,
// such as for a file that is half written, or a certificate that has expired or lacks what
// Demand says, what was read before stays in use: all of it, as files that are replaced one after
// the other are good together only. It may be called by several goroutines.
func (s *Source) Renew() (changed bool, err error) {
	c, err := read(s.files)
	if err != nil || c.same(s.now.Load()) {
		return false, err
	}
	if err := c.parse(s.files); err != nil {
		return false, err
	}
	if err := c.lacks(s.files, *s.needs.Load()); err != nil {
		return false, err
	}
	s.now.Store(c)
	return true, nil
}

func read(from Files) (*content, error) {
	c := &content{}
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{from.CA, &c.ca}, {from.Cert, &c.cert}, {from.Key, &c.key}} {
		if f.name == "" {
			continue
		}
		var err error
		if *f.to, err = files.Read(f.name, maxFile); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *content) same(o *content) bool {
	return bytes.Equal(c.ca, o.ca) && bytes.Equal(c.cert, o.cert) && bytes.Equal(c.key, o.key)
}

func (c *content) parse(files Files) error {
	switch {
	case !whole(c.ca):
		return fmt.Errorf("%s breaks off within a certificate", files.CA)
	case !whole(c.cert):
		return fmt.Errorf("%s breaks off within a certificate", files.Cert)
	}
	if files.CA != "" {
		c.pool = x509.NewCertPool()
		if !c.pool.AppendCertsFromPEM(c.ca) {
			return fmt.Errorf("%s has no certificate in PEM", files.CA)
		}
	}
	if files.Cert != "" {
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return fmt.Errorf("%s with %s: %w", files.Cert, files.Key, err)
		}
		c.pair = &pair
	}
	return nil
}

// until is when the certificate expires, for people.
func (c *content) until() string {
	if c.pair == nil || c.pair.Leaf == nil {
		return ""
	}
	return c.pair.Leaf.NotAfter.Format(time.RFC3339)
}

// Name is the common name of the certificate.
func (s *Source) Name() string {
	if c := s.now.Load(); c.pair != nil && c.pair.Leaf != nil {
		return c.pair.Leaf.Subject.CommonName
	}
	return ""
}

// ClientID is the client id that the certificate is for, if that is a client's.
func (s *Source) ClientID() uuid.UUID {
	if c := s.now.Load(); c.pair != nil && c.pair.Leaf != nil {
		id, _ := ClientID(c.pair.Leaf)
		return id
	}
	return uuid.Nil
}

// ClientID returns the client id that a certificate has as the URI urn:uuid:ID; zero if it
// has none.
func ClientID(c *x509.Certificate) (id uuid.UUID, err error) {
	for _, u := range c.URIs {
		if text, ok := strings.CutPrefix(u.String(), "urn:uuid:"); ok {
			if id, err = uuid.Parse(text); err != nil {
				return id, err
			}
		}
	}
	return id, nil
}

// InUse returns the certificate in use, nil for none, and the authorities in use, nil for those
// of the system. The caller must change neither.
func (s *Source) InUse() (*tls.Certificate, *x509.CertPool) {
	c := s.now.Load()
	return c.pair, c.pool
}

// Server returns what a server presents, and what it demands of clients. Each new
// connection is judged by the files of that time; sessions are not resumed, as that
// would judge by older ones.
func (s *Source) Server(clients tls.ClientAuthType) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := s.now.Load()
			if c.pair == nil {
				return nil, errors.New("no certificate is configured")
			}
			config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*c.pair}, SessionTicketsDisabled: true}
			if c.pool != nil {
				config.ClientCAs, config.ClientAuth = c.pool, clients
			}
			return config, nil
		},
	}
}

// Client returns what a client presents and demands. On each connection it presents the
// certificate of that time; the authorities are those at the time of the call.
func (s *Source) Client() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.now.Load().pool}
	if s.files.Cert != "" {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return cmp.Or(s.now.Load().pair, &tls.Certificate{}), nil
		}
	}
	return config
}

// ClientOfOwn is Client for a server that presents the same certificate, under whichever
// of its hosts: the first one that the certificate has is demanded.
func (s *Source) ClientOfOwn(hosts ...string) *tls.Config {
	config := s.Client()
	c := s.now.Load()
	if c.pair == nil || c.pair.Leaf == nil {
		return config
	}
	if i := slices.IndexFunc(hosts, func(host string) bool { return c.pair.Leaf.VerifyHostname(host) == nil }); i >= 0 {
		config.ServerName = hosts[i]
	}
	return config
}
