package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := Open(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *Authority) issue(t *testing.T, file string, s Subject) Files {
	t.Helper()
	if s.Until == 0 {
		s.Until = time.Hour
	}
	files, err := a.Issue(file, s)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func load(t *testing.T, files Files) *Source {
	t.Helper()
	s, err := Load(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// handshake makes one, and returns what both sides say and whom the server saw.
func handshake(t *testing.T, server, client *tls.Config) (seen *x509.Certificate, err error) {
	t.Helper()
	client = client.Clone()
	client.ServerName = "127.0.0.1"
	a, b := net.Pipe()
	defer a.Close()
	s, c := tls.Server(a, server), tls.Client(b, client)
	var wg sync.WaitGroup
	var refused error
	wg.Go(func() { refused = s.Handshake(); a.Close() })
	if err = c.Handshake(); err == nil {
		_, _ = c.Read(make([]byte, 1)) // the server's refusal comes after the client's part of TLS 1.3
	}
	b.Close()
	wg.Wait()
	if err == nil {
		err = refused
	}
	if certs := s.ConnectionState().PeerCertificates; len(certs) > 0 {
		seen = certs[0]
	}
	return seen, err
}

func TestHandshakes(t *testing.T) {
	ours, other := authority(t), authority(t)
	node := load(t, ours.issue(t, "node", Subject{Name: "n", Role: "node", Hosts: []string{"127.0.0.1", "localhost"}}))
	id := uuid.New()
	good := ours.issue(t, "client", Subject{Name: "vllm-1", Role: "client", ClientID: id})
	expired := ours.issue(t, "expired", Subject{Name: "old", From: -2 * time.Hour, Until: -time.Hour})
	foreign := other.issue(t, "client", Subject{Name: "stranger"})
	foreign.CA = ours.File()
	distrusts := ours.issue(t, "distrusts", Subject{Name: "d"})
	distrusts.CA = other.File()
	for name, test := range map[string]struct {
		client Files
		want   string
	}{
		"a certificate of the authority":         {good, ""},
		"no certificate":                         {Files{CA: ours.File()}, "didn't provide a certificate"},
		"an expired certificate":                 {expired, "expired"},
		"a certificate of another authority":     {foreign, "unknown authority"},
		"a client that trusts another authority": {distrusts, "unknown authority"},
	} {
		seen, err := handshake(t, node.Server(tls.RequireAndVerifyClientCert), load(t, test.client).Client())
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		if err == nil && (seen.Subject.CommonName != "vllm-1" || seen.URIs[0].String() != "urn:uuid:"+id.String()) {
			t.Errorf("%s: the server saw %v %v, want vllm-1 with its id", name, seen.Subject, seen.URIs)
		}
	}
}

// A pair that is replaced is used for the next connection, a broken one is not.
func TestReload(t *testing.T) {
	ours := authority(t)
	files := ours.issue(t, "node", Subject{Name: "first", Hosts: []string{"127.0.0.1"}})
	var log bytes.Buffer
	s, err := Load(files, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	server, client := s.Server(tls.NoClientCert), s.Client()
	name := func() string {
		c := client.Clone()
		var name string
		c.VerifyConnection = func(state tls.ConnectionState) error {
			name = state.PeerCertificates[0].Subject.CommonName
			return nil
		}
		if _, err := handshake(t, server, c); err != nil {
			t.Fatal(err)
		}
		return name
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	ours.issue(t, "node", Subject{Name: "second", Hosts: []string{"127.0.0.1"}})
	deadline := time.Now().Add(20 * time.Second)
	for name() != "second" {
		if time.Now().After(deadline) {
			t.Fatalf("20 s after the files changed: got the certificate of %s in use, want that of second", name())
		}
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	if err := os.WriteFile(files.Cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	for d := 3 * time.Second; d < time.Minute; d *= 2 { // a busy machine may not look in three seconds
		log.Reset() // a pair may be read while it is replaced
		ctx, cancel = context.WithTimeout(t.Context(), d)
		_ = s.Run(ctx)
		cancel()
		if log.Len() > 0 {
			break
		}
	}
	if name() != "second" || strings.Count(log.String(), "cannot be used") != 1 {
		t.Errorf("after the file broke: got %s and the log\n%s\nwant second, and one line", name(), &log)
	}
}

func TestLoadRefuses(t *testing.T) {
	ours := authority(t)
	a, b := ours.issue(t, "a", Subject{}), ours.issue(t, "b", Subject{})
	chain, err := os.ReadFile(a.Cert)
	if err != nil {
		t.Fatal(err)
	}
	half := t.TempDir() + "/half.crt"
	if err := os.WriteFile(half, slices.Concat(chain, chain[:len(chain)/2]), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]Files{
		"a CA that is half written":    {CA: half},
		"a chain that is half written": {Cert: half, Key: a.Key},
		"a key of another certificate": {Cert: a.Cert, Key: b.Key},
		"a file that is missing":       {CA: a.CA + "x"},
		"a CA without a certificate":   {CA: a.Key},
	} {
		if _, err := Load(files, nil); err == nil {
			t.Errorf("Load of %s: got no error, want one", name)
		}
	}
	if _, err := Open(t.TempDir()+"/new", time.Hour); err != nil {
		t.Errorf("a new directory: got %v, want no error", err)
	}
	again, err := Open(ours.dir, time.Hour)
	if err != nil || !again.cert.Equal(ours.cert) {
		t.Errorf("Open of the same directory: got another authority, or error %v, want the one before", err)
	}
}
