package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/understudy-store/understudy/internal/clock"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/files"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// TLSFiles name files in PEM, which New reads, and each new connection reads again. So
// certificates and authorities are replaced without a restart: write the new files over the old
// ones, the key first. While they cannot be read, are half written or do not fit together, what
// was read before stays in use. Open connections go on with what they began with. The zero value
// names none.
type TLSFiles struct {
	CA   string // whom servers' certificates must come from; empty for those that the system trusts
	Cert string // the certificate to show, with its intermediates; empty for none
	Key  string // of Cert; given with it or not at all
}

func (f TLSFiles) given() bool { return f != TLSFiles{} }

// load returns a function that reads the files again and returns what they say then; nil if
// none is named.
func (f TLSFiles) load(log *slog.Logger) (func() *tls.Config, error) {
	if !f.given() {
		return nil, nil
	}
	source, err := certs.Load(certs.Files(f), nil)
	if err != nil {
		return nil, err
	}
	return func() *tls.Config {
		if _, err := source.Renew(); err != nil {
			log.Debug("new certificates cannot be used; those read before stay in use", "error", err)
		}
		return source.Client()
	}, nil
}

// An access is what the files of a Config say, now.
type access struct {
	nodes, etcd func() *tls.Config            // nil without files
	token       credentials.PerRPCCredentials // nil without a token
}

// open reads the files that a configuration names, for the first time.
func (c *Config) open(now clock.Clock) (a access, err error) {
	var faults [3]error
	if a.nodes, err = c.TLSFiles.load(c.Log); err != nil {
		faults[0] = fmt.Errorf("TLSFiles: %w", err)
	}
	if a.etcd, err = c.EtcdTLSFiles.load(c.Log); err != nil {
		faults[1] = fmt.Errorf("EtcdTLSFiles: %w", err)
	}
	switch {
	case c.Token != "":
		a.token = Token(c.Token)
	case c.TokenFile != "":
		t, err := openTokenFile(c.TokenFile, now, c.Log)
		if err != nil {
			faults[2] = fmt.Errorf("TokenFile: %w", err)
		}
		a.token = t
	}
	return a, errors.Join(faults[:]...)
}

// etcdAccess says how this client talks to etcd.
func (c *Config) etcdAccess() etcdclient.Access {
	a := etcdclient.Access{TLS: c.EtcdTLS, User: c.EtcdUser, Password: etcdclient.FixedPassword(c.EtcdPassword)}
	if c.access.etcd != nil {
		a.TLS, a.Renewed = c.access.etcd(), c.access.etcd
	}
	return a
}

// A Token says who calls, in each call.
type Token string

// GetRequestMetadata returns the header that carries the token.
func (t Token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity keeps the token off connections without TLS.
func (Token) RequireTransportSecurity() bool { return true }

const (
	// maxTokenFile bounds what is read of a token's file. Nodes take tokens of 8 KiB.
	maxTokenFile = 16 << 10
	// tokenAge is for how long a token is used before its file is read again.
	tokenAge = time.Second
	// tokenWait is for how long calls wait for a reading of the file, from its start: one that
	// follows a long pause has the new token, if the file can be read.
	tokenWait = 100 * time.Millisecond
)

// A tokenFile is a token that stands in a file. Calls have it read again, beside them: a file
// system that does not answer holds up one goroutine, and no call for longer than tokenWait.
type tokenFile struct {
	path  string
	clock clock.Clock
	log   *slog.Logger

	mu      sync.Mutex    // guards all below; never held while the file is read
	token   Token         // that was read last
	at      time.Duration // when the newest reading began
	reading bool
	enough  chan struct{} // closed at the end of the newest reading, or tokenWait after its start
}

// openTokenFile reads the file for the first time, however long that takes.
func openTokenFile(path string, now clock.Clock, log *slog.Logger) (*tokenFile, error) {
	t := &tokenFile{path: path, clock: now, log: log, at: now(), enough: make(chan struct{})}
	close(t.enough)
	var err error
	t.token, err = t.read()
	return t, err
}

// GetRequestMetadata is Token's. A file that cannot be used leaves the token that was read
// before.
func (t *tokenFile) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	select {
	case <-t.renew():
	case <-ctx.Done(): // the call fails by itself
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token.GetRequestMetadata(ctx, uri...)
}

func (t *tokenFile) RequireTransportSecurity() bool { return true }

// renew begins to read the file, if it is time and nobody reads it. The returned channel is
// closed once a call has waited enough for the newest reading.
func (t *tokenFile) renew() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reading || t.clock()-t.at < tokenAge {
		return t.enough
	}
	enough := make(chan struct{})
	t.reading, t.at, t.enough = true, t.clock(), enough
	late := sync.OnceFunc(func() { close(enough) })
	timer := time.AfterFunc(tokenWait, late)
	go func() {
		defer late()
		defer timer.Stop()
		token, err := t.read()
		t.mu.Lock()
		if t.reading = false; err == nil {
			t.token = token
		}
		t.mu.Unlock()
		if err != nil {
			t.log.Debug("a new token cannot be used; the one read before stays in use", "error", err)
		}
	}()
	return enough
}

func (t *tokenFile) read() (Token, error) {
	b, err := files.Read(t.path, maxTokenFile)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(b))
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s must have one token, of printable ASCII characters without blanks", t.path)
	}
	return Token(text), nil
}
