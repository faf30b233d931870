package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/mooncake/coro"
	"github.com/understudy-store/understudy/internal/security/certs"
)

func newAuthority(t *testing.T) *certs.Authority {
	t.Helper()
	a, err := certs.Open(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate of an authority that is valid for an hour.
func issue(t *testing.T, a *certs.Authority, file string, s certs.Subject) certs.Files {
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

func nodeFiles(t *testing.T, a *certs.Authority) certs.Files {
	t.Helper()
	return issue(t, a, "node", certs.Subject{Name: "node", Role: "node", Hosts: []string{"127.0.0.1", "localhost"}})
}

// secure makes the settings those of a node with TLS.
func secure(c config.Config, files certs.Files) config.Config {
	c.Security.CA, c.Security.Cert, c.Security.Key = files.CA, files.Cert, files.Key
	return c
}

func tlsOf(t *testing.T, files certs.Files) *tls.Config {
	t.Helper()
	s, err := certs.Load(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s.Client()
}

// askOver asks a node for its status; nil is for plain text.
func askOver(t *testing.T, address string, config *tls.Config) error {
	t.Helper()
	secrecy := insecure.NewCredentials()
	if config != nil {
		secrecy = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(secrecy))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = pb.NewAdminServiceClient(conn).Status(ctx, &pb.StatusRequest{})
	return err
}

// speaksMooncake reports whether a node answers Mooncake's protocol.
func speaksMooncake(t *testing.T, address string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := coro.Dial(ctx, address)
	if err != nil {
		return false
	}
	defer c.Close()
	_, _, err = c.Call(ctx, 1, func(b []byte) []byte { return b })
	return err != nil && strings.Contains(err.Error(), "not registered")
}

// A cluster over TLS: the embedded etcd, snapshots, handovers, clients, HTTP.
func TestTLSEverywhere(t *testing.T) {
	t.Parallel()
	ours, other := newAuthority(t), newAuthority(t)
	files := nodeFiles(t, ours)
	a := run(t, secure(settings(config.Primary, "a", []string{}), files))
	a.serves()
	endpoint := a.etcdEndpoint(t)
	c := secure(settings(config.Standby, "b", []string{"https://" + endpoint}), files)
	b := run(t, c)
	b.promotable()
	a.knows(1)

	operator := issue(t, ours, "operator", certs.Subject{Name: "op", Role: "operator"})
	expired := issue(t, ours, "expired", certs.Subject{Name: "old", From: -2 * time.Hour, Until: -time.Hour})
	foreign := issue(t, other, "foreign", certs.Subject{Name: "stranger"})
	foreign.CA = ours.File()
	for name, test := range map[string]struct {
		files certs.Files
		want  codes.Code
	}{
		"a good certificate":                 {operator, codes.OK},
		"no certificate":                     {certs.Files{CA: ours.File()}, codes.Unavailable},
		"an expired certificate":             {expired, codes.Unavailable},
		"a certificate of another authority": {foreign, codes.Unavailable},
		"the other authority trusted":        {certs.Files{CA: other.File()}, codes.Unavailable},
	} {
		if err := askOver(t, a.RPCAddress(), tlsOf(t, test.files)); status.Code(err) != test.want {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
	if err := askOver(t, a.RPCAddress(), nil); status.Code(err) != codes.Unavailable {
		t.Errorf("gRPC without TLS: got %v, want Unavailable", err)
	}
	if speaksMooncake(t, a.RPCAddress()) {
		t.Error("Mooncake's protocol on the RPC port, with TLS required: got an answer, want none: it has no TLS")
	}

	web := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsOf(t, certs.Files{CA: ours.File()}), DisableKeepAlives: true}}
	if got := fetch(t, web, "https://"+a.cfg.Node.HTTPAddress+"/health"); !strings.Contains(got, "200 OK") {
		t.Errorf("/health over TLS: got %s, want 200", got)
	}
	if got := fetch(t, web, "http://"+a.cfg.Node.HTTPAddress+"/health"); !strings.Contains(got, "400") {
		t.Errorf("/health without TLS: got %s, want 400", got)
	}

	w := writer(t, client.Config{
		Addresses: []string{a.RPCAddress(), b.RPCAddress()}, EtcdEndpoints: []string{"https://" + endpoint},
		TLSFiles: client.TLSFiles(operator), EtcdTLSFiles: client.TLSFiles(operator),
	})
	put(t, w, "k")
	term := a.serves().GetHeader().GetTerm()
	if _, err := a.admin.Handover(t.Context(), &pb.HandoverRequest{Term: term}); err != nil {
		t.Fatalf("handover over TLS: got error %v, want none\n%s%s", err, a.log, b.log)
	}
	b.serves()
	put(t, w, "k2")
	a.promotable()
	same(t, b, a)
	plain, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := plain.Get(ctx, "x"); err == nil {
		t.Error("the embedded etcd asked without TLS: got an answer, want an error")
	}
}

// etcdEndpoint is where a node's embedded etcd listens.
func (m *member) etcdEndpoint(t *testing.T) string {
	t.Helper()
	for _, e := range m.node.(*clusterNode).etcd.members {
		return strings.TrimPrefix(e, "https://")
	}
	t.Fatal("got a node without an embedded etcd, want one with it")
	return ""
}

func fetch(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%s: %.300s", resp.Status, body)
}

// A new certificate and a new authority are used for new connections, without a restart: of gRPC
// and of HTTP, by standbys that ran before and by one that comes later.
func TestCertificateReplacedWhileRunning(t *testing.T) {
	t.Parallel()
	ours, next := newAuthority(t), newAuthority(t)
	files := nodeFiles(t, ours)
	a := run(t, secure(settings(config.Primary, "a", []string{}), files))
	a.serves()
	etcd := []string{"https://" + a.etcdEndpoint(t)}
	b := run(t, secure(settings(config.Standby, "b", etcd), files))
	b.promotable()
	old := tlsOf(t, files)
	fresh := nodeFiles(t, next)
	replace(t, fresh.Key, files.Key)
	replace(t, fresh.Cert, files.Cert)
	replace(t, fresh.CA, files.CA)

	soon := func(what string, works func() error) {
		t.Helper()
		err := works()
		for deadline := time.Now().Add(20 * time.Second); err != nil; err = works() {
			if time.Now().After(deadline) {
				t.Fatalf("%s, 20 s after the files changed: got error %v, want the new certificate in use\n%s%s", what, err, a.log, b.log)
			}
		}
	}
	soon("gRPC", func() error { return askOver(t, a.RPCAddress(), tlsOf(t, fresh)) })
	if err := askOver(t, a.RPCAddress(), old); status.Code(err) != codes.Unavailable {
		t.Errorf("a client that trusts the old authority: got %v, want Unavailable", err)
	}
	for trusted, want := range map[*tls.Config]string{tlsOf(t, certs.Files{CA: next.File()}): "200 OK", old: "unknown authority"} {
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: trusted, DisableKeepAlives: true}}
		if got := fetch(t, web, "https://"+a.cfg.Node.HTTPAddress+"/health"); !strings.Contains(got, want) {
			t.Errorf("/health with the new certificate: got %s, want %s", got, want)
		}
	}
	soon("a standby that gets a snapshot", func() error {
		_, err := b.node.(*clusterNode).peers.Fetch(t.Context(), a.RPCAddress(), func([]byte) error { return nil })
		return err
	})
	run(t, secure(settings(config.Standby, "c", etcd), fresh)).promotable()
}

// With --tls-required=false both kinds of callers are served.
func TestTLSNotRequired(t *testing.T) {
	files := nodeFiles(t, newAuthority(t))
	for _, generation := range []string{"head", config.NoGeneration} {
		c := secure(settings(config.Primary, "a", nil), files)
		c.Security.Required, c.Mooncake.Generation = false, generation
		a := run(t, c)
		a.serves()
		if err := askOver(t, a.RPCAddress(), nil); err != nil {
			t.Errorf("%s: gRPC without TLS: got %v, want an answer", generation, err)
		}
		if got := speaksMooncake(t, a.RPCAddress()); got != (generation == "head") {
			t.Errorf("generation %s, TLS not required: Mooncake's protocol got answered: %v, want %v", generation, got, generation == "head")
		}
		if got := fetch(t, http.DefaultClient, "http://"+a.cfg.Node.HTTPAddress+"/health"); !strings.Contains(got, "200 OK") {
			t.Errorf("%s: HTTP without TLS: got %s, want 200", generation, got)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

// Mooncake's protocol is taken from the addresses that the setting has.
func TestMooncakeAllow(t *testing.T) {
	for network, want := range map[string]bool{"127.0.0.0/8": true, "10.0.0.0/8": false} {
		c := settings(config.Primary, "a", nil)
		c.Mooncake.Allow = []netip.Prefix{netip.MustParsePrefix(network)}
		a := run(t, c)
		a.serves()
		if got := speaksMooncake(t, a.RPCAddress()); got != want {
			t.Errorf("%s: answers: %v, want %v", network, got, want)
		}
		if err := askOver(t, a.RPCAddress(), nil); err != nil {
			t.Errorf("%s: gRPC: got %v, want an answer", network, err)
		}
	}
}

// replace puts one file in the place of another.
func replace(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
