package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

// A Need is what others look for in a certificate. An error of it says which file lacks what,
// and what to do.
type Need struct {
	lacks func(*content, Files) error
}

// InTime needs a certificate that is valid now, by the wall clock.
func InTime() Need { return Need{(*content).outOfTime} }

// ForHost needs a host, a DNS name or an IP, among the names of the certificate. The error says
// that a setting names the host.
func ForHost(host, setting string) Need {
	return Need{func(c *content, files Files) error {
		if c.pair == nil {
			return nil
		}
		err := c.pair.Leaf.VerifyHostname(host)
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s is not for %s, where others call this node (%s): %w; issue one with that name, or correct the setting",
			files.Cert, host, setting, err)
	}}
}

// OfAuthorities needs a certificate that one of the authorities in the files has issued, for
// each use. Without authorities of its own any certificate will do: the system's ones of other
// machines decide.
func OfAuthorities(uses ...x509.ExtKeyUsage) Need {
	return Need{func(c *content, files Files) error {
		if c.pair == nil || c.pool == nil {
			return nil
		}
		further := x509.NewCertPool()
		for _, der := range c.pair.Certificate[1:] {
			if cert, err := x509.ParseCertificate(der); err == nil {
				further.AddCert(cert)
			}
		}
		for _, use := range uses {
			_, err := c.pair.Leaf.Verify(x509.VerifyOptions{
				Roots: c.pool, Intermediates: further, CurrentTime: clock.Wall(), KeyUsages: []x509.ExtKeyUsage{use},
			})
			if err != nil {
				return c.refused(files, use, err)
			}
		}
		return nil
	}}
}

func (c *content) refused(files Files, use x509.ExtKeyUsage, err error) error {
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage {
		return fmt.Errorf("%s is not for the extended key usage %v: %w; issue one for that, too", files.Cert, use, err)
	}
	return fmt.Errorf("%s, issued by %q, comes from no authority in %s: %w; issue one of those authorities, with its intermediates, or add its authority to %s on all nodes first",
		files.Cert, c.pair.Leaf.Issuer, files.CA, err, files.CA)
}

// Lacks returns the first of needs that the certificate in use does not meet; nil if it meets all,
// or there is none.
func (s *Source) Lacks(needs ...Need) error { return s.now.Load().lacks(s.files, needs) }

// Demand has Renew take no certificate any more that lacks any of the needs.
func (s *Source) Demand(needs ...Need) { s.needs.Store(&needs) }

func (c *content) lacks(files Files, needs []Need) error {
	for _, n := range needs {
		if err := n.lacks(c, files); err != nil {
			return err
		}
	}
	return nil
}

func (c *content) outOfTime(files Files) error {
	if c.pair == nil {
		return nil
	}
	now, from := clock.Wall(), c.pair.Leaf.NotBefore
	switch {
	case now.After(c.pair.Leaf.NotAfter):
		return fmt.Errorf("%s has expired, at %s: issue a new one, or correct this machine's clock", files.Cert, c.until())
	case now.Before(from):
		return fmt.Errorf("%s is not valid before %s: issue one that is, or correct this machine's clock", files.Cert, from.Format(time.RFC3339))
	}
	return nil
}

// Until is when the certificate in use expires; the zero time without a certificate.
func (s *Source) Until() (at time.Time) {
	if s == nil {
		return at
	}
	if c := s.now.Load(); c.pair != nil {
		at = c.pair.Leaf.NotAfter
	}
	return at
}

// whole reports whether a file in PEM has all of each block that begins in it. Readers of PEM
// take what breaks off for a comment, and the blocks before it for all that there are.
func whole(text []byte) bool {
	const begin, firstLine = "-----BEGIN ", "-----BEGIN CERTIFICATE-----"
	begun, rest := bytes.Count(text, []byte(begin)), text
	for block, after := pem.Decode(rest); block != nil; block, after = pem.Decode(rest) {
		begun, rest = begun-1, after
	}
	last := rest[bytes.LastIndexByte(rest, '\n')+1:]
	return begun == 0 && (len(last) == 0 || !strings.HasPrefix(firstLine, string(last)))
}
