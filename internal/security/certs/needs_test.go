package certs

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func contentOf(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func overwrite(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// demanding is a source that takes what other nodes would take.
func demanding(t *testing.T, files Files) *Source {
	t.Helper()
	s := load(t, files)
	s.Demand(InTime(), OfAuthorities(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth), ForHost("127.0.0.1", "--advertise-address"))
	return s
}

// A new certificate that nobody would take does not replace one that is good, and the error says
// what it lacks. Once it is put right, it is used.
func TestUnfitCertificateIsNotTaken(t *testing.T) {
	ours, other := authority(t), authority(t)
	const host = "127.0.0.1"
	for what, test := range map[string]struct {
		from *Authority
		new  Subject
		want []string
	}{
		"of another authority": {other, Subject{Hosts: []string{host}}, []string{"comes from no authority", "add its authority"}},
		"of another host":      {ours, Subject{Hosts: []string{"127.0.0.2"}}, []string{"is not for " + host, "--advertise-address", "127.0.0.2", "issue one"}},
		"for clients alone":    {ours, Subject{}, []string{"is not for the extended key usage serverAuth", "issue one"}},
		"that has expired":     {ours, Subject{Hosts: []string{host}, From: -2 * time.Hour, Until: -time.Hour}, []string{"has expired", "issue a new one"}},
		"of the future":        {ours, Subject{Hosts: []string{host}, From: time.Hour, Until: 2 * time.Hour}, []string{"is not valid before", "clock"}},
	} {
		files := ours.issue(t, "node", Subject{Name: "first", Hosts: []string{host}})
		s := demanding(t, files)
		test.new.Name = "second"
		unfit := test.from.issue(t, "unfit", test.new)
		overwrite(t, files.Key, contentOf(t, unfit.Key))
		overwrite(t, files.Cert, contentOf(t, unfit.Cert))
		changed, err := s.Renew()
		if changed || err == nil || s.Name() != "first" {
			t.Errorf("a certificate %s: got %v, %v and %s in use; want an error and first", what, changed, err, s.Name())
			continue
		}
		for _, want := range append(test.want, files.Cert) {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("a certificate %s: got %v, want %q in it", what, err, want)
			}
		}
		ours.issue(t, "node", Subject{Name: "third", Hosts: []string{host}})
		if changed, err := s.Renew(); err != nil || !changed || s.Name() != "third" {
			t.Errorf("a good certificate after one %s: got changed %v, error %v, %s in use, want third", what, changed, err, s.Name())
		}
	}
}

// Authority and certificate change file by file, in any order: what is in use is always a pair
// that its own authorities vouch for, and at the end the new one.
func TestAuthorityAndCertificateChangeTogether(t *testing.T) {
	const host = "127.0.0.1"
	for _, order := range [][]string{{"key", "cert", "ca"}, {"ca", "key", "cert"}, {"both", "key", "cert", "ca"}} {
		ours, next := authority(t), authority(t)
		files, fresh := ours.issue(t, "node", Subject{Name: "first", Hosts: []string{host}}), next.issue(t, "node", Subject{Name: "second", Hosts: []string{host}})
		s := demanding(t, files)
		for i, step := range order {
			switch step {
			case "key":
				overwrite(t, files.Key, contentOf(t, fresh.Key))
			case "cert":
				overwrite(t, files.Cert, contentOf(t, fresh.Cert))
			case "ca":
				overwrite(t, files.CA, contentOf(t, fresh.CA))
			case "both":
				overwrite(t, files.CA, slices.Concat(contentOf(t, files.CA), contentOf(t, fresh.CA)))
			}
			_, err := s.Renew()
			if i == len(order)-1 && (err != nil || s.Name() != "second") {
				t.Errorf("order %v: got %s in use at the end, error %v, want second", order, s.Name(), err)
			}
			if _, err := handshake(t, s.Server(tls.RequireAndVerifyClientCert), s.Client()); err != nil {
				t.Errorf("order %v, after %s: got error %v, want the node to take its own certificate", order, step, err)
			}
		}
	}
}

// While files are half written, or do not fit, those read before stay in use.
func TestFilesThatCannotBeUsed(t *testing.T) {
	ours, other := authority(t), authority(t)
	files, next := ours.issue(t, "node", Subject{Name: "first"}), ours.issue(t, "next", Subject{Name: "next"})
	s := load(t, files)
	ca, more := contentOf(t, files.CA), contentOf(t, other.File())
	for what, f := range map[string]struct {
		name string
		b    []byte
	}{
		"half a key":                           {files.Key, contentOf(t, files.Key)[:100]},
		"half a certificate":                   {files.Cert, contentOf(t, files.Cert)[:100]},
		"another key":                          {files.Key, contentOf(t, next.Key)},
		"an authority and half of one":         {files.CA, slices.Concat(ca, more[:len(more)/2])},
		"an authority and a part of a line":    {files.CA, slices.Concat(ca, more[:7])},
		"half an authority and another one":    {files.CA, slices.Concat(ca[:len(ca)/2], []byte("\n"), more)},
		"an authority and one without an end":  {files.CA, slices.Concat(ca, more[:len(more)-5])},
		"an authority, and half of one before": {files.CA, slices.Concat(more[:len(more)/2], []byte("\n"), ca)},
	} {
		good := contentOf(t, f.name)
		overwrite(t, f.name, f.b)
		if changed, err := s.Renew(); changed || err == nil || !strings.Contains(err.Error(), f.name) {
			t.Errorf("%s: got %v, %v; want an error that names the file", what, changed, err)
		}
		if _, err := Load(files, nil); err == nil {
			t.Errorf("%s at a start: got no error, want one", what)
		}
		overwrite(t, f.name, good)
	}
	for what, b := range map[string][]byte{
		"comments":              slices.Concat([]byte("# ours\n"), ca, []byte("# theirs ---\n"), more, []byte("# end")),
		"no line break at last": ca[:len(ca)-1],
	} {
		overwrite(t, files.CA, b)
		if changed, err := s.Renew(); err != nil || !changed {
			t.Errorf("authorities with %s: got %v, %v; want that they are taken", what, changed, err)
		}
	}
}
