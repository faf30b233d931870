package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/files"
)

// A Subject is whom a certificate is for. Its role is the organizational unit, and the
// id of a client a URI, urn:uuid:ID.
type Subject struct {
	Name     string    // common name
	Role     string    // client, viewer, operator or node; empty for none
	Hosts    []string  // names and IPs of a server; none for one that only connects
	ClientID uuid.UUID // that a client may use; none if it is zero
	From     time.Duration
	Until    time.Duration // validity from now
}

// An Authority signs certificates. Its key lies in a file without a password: it is for
// trials and tests.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// The files of an authority.
const (
	authorityName = "ca"
	certSuffix    = ".crt"
	keySuffix     = ".key"
)

// Open returns the authority of a directory, and makes both if need be. It never makes one
// in place of another: if only one of its files is there, it fails.
func Open(dir string, valid time.Duration) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &Authority{dir: dir}
	err := a.read()
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	for _, left := range []string{keySuffix, certSuffix} {
		if _, e := os.Lstat(a.path(authorityName, left)); !errors.Is(e, fs.ErrNotExist) {
			return nil, fmt.Errorf("the authority in %s is not whole: %w; put it back from a copy, or make a new authority in another directory", dir, err)
		}
	}
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	now := clock.Wall()
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "Understudy trial CA"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(valid),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if err := a.write(authorityName, a.cert, a.key); err != nil {
		return nil, err
	}
	return a, a.read()
}

// File returns the path of an authority's certificate.
func (a *Authority) File() string { return a.path(authorityName, certSuffix) }

func (a *Authority) path(name, suffix string) string { return filepath.Join(a.dir, name+suffix) }

func (a *Authority) read() error {
	c, err := read(Files{Cert: a.path(authorityName, certSuffix), Key: a.path(authorityName, keySuffix)})
	if err != nil {
		return err
	}
	cert, _ := pem.Decode(c.cert)
	key, _ := pem.Decode(c.key)
	if cert == nil || key == nil {
		return fmt.Errorf("the authority in %s cannot be read: no PEM", a.dir)
	}
	if a.cert, err = x509.ParseCertificate(cert.Bytes); err == nil {
		a.key, err = x509.ParseECPrivateKey(key.Bytes)
	}
	if err != nil {
		return fmt.Errorf("the authority in %s cannot be read: %w", a.dir, err)
	}
	return nil
}

// Issue writes name.crt and name.key, in place of older ones.
func (a *Authority) Issue(file string, s Subject) (Files, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Files{}, err
	}
	now := clock.Wall()
	cert := &x509.Certificate{
		Subject: pkix.Name{CommonName: s.Name}, NotBefore: now.Add(s.From - time.Minute), NotAfter: now.Add(s.Until),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if s.Role != "" {
		cert.Subject.OrganizationalUnit = []string{s.Role}
	}
	if len(s.Hosts) > 0 {
		cert.ExtKeyUsage = append(cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	if s.ClientID != uuid.Nil {
		cert.URIs = []*url.URL{{Scheme: "urn", Opaque: "uuid:" + s.ClientID.String()}}
	}
	return Files{CA: a.File(), Cert: a.path(file, certSuffix), Key: a.path(file, keySuffix)}, a.write(file, cert, key)
}

func (a *Authority) write(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) (err error) {
	if cert.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return err
	}
	signer := a.cert
	if cert.IsCA {
		signer = cert
	}
	signed, err := x509.CreateCertificate(rand.Reader, cert, signer, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	// The key first: whoever sees the new certificate finds its key.
	err = writeFile(a.path(name, keySuffix), 0o600, &pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
	return errors.Join(err, writeFile(a.path(name, certSuffix), 0o644, &pem.Block{Type: "CERTIFICATE", Bytes: signed}))
}

// writeFile replaces a file as a whole.
func writeFile(path string, mode fs.FileMode, block *pem.Block) error {
	aside, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	return files.Place(aside, path, pem.Encode(aside, block), nil)
}
