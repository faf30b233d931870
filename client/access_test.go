package client_test

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/tap"

	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// A guarded node demands a certificate, and keeps who called last.
type guarded struct {
	*link
	files       certs.Files
	source      *certs.Source
	name, token atomic.Value // of the newest connection's certificate; of the newest call
}

func newGuarded(t *testing.T, upstream string, files certs.Files) *guarded {
	t.Helper()
	source, err := certs.Load(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &guarded{files: files, source: source}
	config := source.Server(tls.RequireAndVerifyClientCert)
	inner := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := inner(hello)
		if err == nil {
			c.VerifyConnection = func(s tls.ConnectionState) error {
				g.name.Store(s.PeerCertificates[0].Subject.CommonName)
				return nil
			}
		}
		return c, err
	}
	note := func(ctx context.Context, call *tap.Info) (context.Context, error) {
		g.token.Store(append(call.Header.Get("authorization"), "none")[0])
		return ctx, nil
	}
	f := newFront(t, upstream, grpc.Creds(credentials.NewTLS(config)), grpc.InTapHandle(note))
	g.link = newLink(t, f.address)
	return g
}

// turnTo has the node use other files from now on, for new connections.
func (g *guarded) turnTo(t *testing.T, files certs.Files) {
	t.Helper()
	overwrite(t, files, g.files)
	if changed, err := g.source.Renew(); err != nil || !changed {
		t.Fatalf("the server's new files: got changed %v, error %v, want them in use", changed, err)
	}
	g.cut()
}

// overwrite writes files over others.
func overwrite(t *testing.T, from, to certs.Files) {
	t.Helper()
	for from, to := range map[string]string{from.Key: to.Key, from.Cert: to.Cert, from.CA: to.CA} {
		write(t, to, read(t, from))
	}
}

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// issued returns the files of a node and of a client with a name, of an authority of their own.
func issued(t *testing.T, name string) (node, caller certs.Files) {
	t.Helper()
	authority, err := certs.Open(t.TempDir(), time.Hour)
	if err == nil {
		node, err = authority.Issue("node", certs.Subject{Name: "node", Hosts: []string{"127.0.0.1"}, Until: time.Hour})
	}
	if err == nil {
		caller, err = authority.Issue("client", certs.Subject{Name: name, Until: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
	return node, caller
}

// The authority and the certificates of both sides are replaced while a client runs. Files that
// are half written change nothing.
func TestFilesAreReplacedWhileAClientRuns(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 1)
	cl.lead(0)
	node, first := issued(t, "first")
	nextNode, second := issued(t, "second")
	g := newGuarded(t, cl.nodes[0].address, node)
	mine := certs.Files{CA: filepath.Join(t.TempDir(), "ca.crt"), Cert: first.Cert, Key: first.Key}
	write(t, mine.CA, read(t, first.CA)) // first.CA is the server's own
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, []byte("one\n"))
	ahead := new(atomic.Int64)
	c, err := client.NewAhead(client.Config{Addresses: []string{g.address}, TLSFiles: client.TLSFiles(mine), TokenFile: token}, ahead)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	called := func(when, name, token string) {
		t.Helper()
		_, err := c.ExistKey(soon(t, 30*time.Second), "k")
		wantKind(t, when, err, errs.OK)
		if g.name.Load() != name || g.token.Load() != "Bearer "+token {
			t.Errorf("%s: the server saw the certificate of %v and the token %v, want %s and %s", when, g.name.Load(), g.token.Load(), name, token)
		}
	}
	called("at first", "first", "one")

	ca := read(t, second.CA)
	for when, half := range map[string]map[string][]byte{
		"half an authority":            {mine.CA: ca[:len(ca)/2]},
		"another certificate's key":    {mine.Key: read(t, second.Key)},
		"an empty file":                {mine.Cert: nil},
		"an authority and half a pair": {mine.CA: ca, mine.Cert: read(t, second.Cert)[:100]},
		"an empty token":               {token: nil},
		"a token of two lines":         {token: []byte("a\nb\n")},
	} {
		kept := make(map[string][]byte)
		for name, content := range half {
			kept[name] = read(t, name)
			write(t, name, content)
		}
		ahead.Add(int64(2 * time.Second))
		g.name.Store("nobody")
		g.cut()
		called(when, "first", "one")
		for name, content := range kept {
			write(t, name, content)
		}
	}

	write(t, token, []byte("two\n"))
	called("with a token that was read a moment ago", "first", "one")
	ahead.Add(int64(2 * time.Second))
	_, err = c.ExistKey(soon(t, 30*time.Second), "k") // which has the file read, and waits for a moment
	for deadline := time.Now().Add(20 * time.Second); err == nil && g.token.Load() != "Bearer two" && time.Now().Before(deadline); {
		_, err = c.ExistKey(soon(t, 30*time.Second), "k")
	}
	called("with a new token", "first", "two")

	g.turnTo(t, nextNode)
	if _, err = c.ExistKey(soon(t, 300*time.Millisecond), "k"); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("before its files are replaced: got %v, want UNAVAILABLE", err)
	}
	overwrite(t, second, mine)
	called("with new files", "second", "two")
}
