package app

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/mooncake/mooncakeclient"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// as returns a client of a node that shows a certificate, or a token.
func as(t *testing.T, m *member, c client.Config) *client.Client {
	t.Helper()
	c.Addresses = []string{m.RPCAddress()}
	cl, err := client.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// refused demands that a call was refused for who made it.
func refused(t *testing.T, what string, err error) {
	t.Helper()
	if errs.KindOf(err) != errs.IllegalClient {
		t.Errorf("%s: got %v, want ILLEGAL_CLIENT", what, err)
	}
}

// unknown demands that the cluster told a client that it has no role.
func unknown(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "ILLEGAL_CLIENT") {
		t.Errorf("%s: got %v, want ILLEGAL_CLIENT", what, err)
	}
}

func allowed(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: got %v, want no error", what, err)
	}
}

// A node of a cluster with roles serves each role what the table says.
func TestRoles(t *testing.T) {
	ours := newAuthority(t)
	files := nodeFiles(t, ours)
	secret, looks, tokens := strings.Repeat("0123456789", 4), strings.Repeat("9876543210", 4), filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("operator ci "+secret+"\nviewer board "+looks), 0o600); err != nil {
		t.Fatal(err)
	}
	c := secure(settings(config.Primary, "a", []string{}), files)
	c.Security.Roles, c.Security.Tokens, c.Debug.Pprof = true, tokens, true
	a := run(t, c)
	a.serves() // asked with the certificate of a node
	c = secure(settings(config.Standby, "b", []string{"https://" + a.etcdEndpoint(t)}), files)
	c.Security.Roles, c.Security.Tokens = true, tokens
	run(t, c).promotable() // it has got a snapshot

	mine, others := uuid.New(), uuid.New()
	certificate := func(name, role string, id uuid.UUID) *tls.Config {
		return tlsOf(t, issue(t, ours, name, certs.Subject{Name: name, Role: role, ClientID: id}))
	}
	none := tlsOf(t, certs.Files{CA: ours.File()})
	host := as(t, a, client.Config{TLS: certificate("host", "client", mine), ClientID: mine})
	other := as(t, a, client.Config{TLS: certificate("other", "client", others), ClientID: others})
	forger := as(t, a, client.Config{TLS: certificate("forger", "client", uuid.New()), ClientID: mine})
	operator := as(t, a, client.Config{TLS: none, Token: secret})
	stranger := as(t, a, client.Config{TLS: none})
	guest := as(t, a, client.Config{TLS: certificate("guest", "", uuid.Nil)})

	segment := mount(t, host)
	mount(t, other)
	put(t, host, "k")
	ctx := t.Context()
	_, err := forger.PutStart(ctx, client.PutItem{Key: "x", Size: 1}, client.PutConfig{})
	refused(t, "a put under another's client id", err)
	refused(t, "a mount under another's client id", forger.MountSegment(ctx, client.Segment{ID: uuid.New(), Name: "f", Base: 1 << 32, Size: 1 << 20}))
	refused(t, "another's segment unmounted", other.UnmountSegment(ctx, segment))
	_, err = host.RemoveAll(ctx, client.Removal{Force: true})
	refused(t, "RemoveAll of a client", err)
	_, err = host.RemoveByRegex(ctx, ".*", client.Removal{Force: true})
	refused(t, "RemoveByRegex of a client", err)
	_, err = stranger.ExistKey(ctx, "k")
	unknown(t, "a read without a certificate", err)
	_, err = guest.ExistKey(ctx, "k")
	unknown(t, "a read with a certificate without a role", err)
	_, err = other.ExistKey(ctx, "k")
	allowed(t, "a read", err)
	_, err = a.admin.History(ctx, &pb.HistoryRequest{})
	if err == nil {
		t.Error("a node may read the history; want only operators")
	}
	_, err = operator.RemoveAll(ctx, client.Removal{Force: true})
	allowed(t, "RemoveAll of an operator with a token", err)
	allowed(t, "a segment unmounted by an operator", operator.UnmountSegment(ctx, segment))
	for _, line := range []string{
		`"order":"RemoveAll"`, `"identity":"ci"`, `"role":"operator"`, `"identity":"host","role":"client","result":"ILLEGAL_CLIENT"`,
	} {
		if !strings.Contains(a.log.String(), line) {
			t.Errorf("the audit of orders and refusals: got %s, want %s in it", a.log, line)
		}
	}

	for name, test := range map[string]struct {
		config *tls.Config
		taken  bool
	}{
		"a node":      {tlsOf(t, files), true},
		"a client":    {certificate("thief", "client", mine), false},
		"an operator": {certificate("clerk", "operator", uuid.Nil), false},
	} {
		conn, err := etcdclient.Connect(t.Context(), []string{"https://" + a.etcdEndpoint(t)}, etcdclient.Access{TLS: test.config}, nil)
		if err != nil {
			t.Fatal(err)
		}
		within, cancel := context.WithTimeout(ctx, 10*time.Second)
		if _, err = conn.Get(within, "x"); (err == nil) != test.taken {
			t.Errorf("%s asks the embedded etcd: got error %v, want it answered: %v", name, err, test.taken)
		}
		cancel()
		_ = conn.Close()
	}

	for _, test := range []struct {
		config      *tls.Config
		path, token string
		want        int
	}{
		{none, "/health", "", 200},
		{none, "/metrics", "", 200},
		{none, "/console/cluster", "", 403},
		{none, "/console/cluster", secret, 200},
		{none, "/console/cluster", looks, 200},
		{certificate("board", "viewer", uuid.Nil), "/console/cluster", "", 200},
		{certificate("host", "client", mine), "/console/cluster", "", 403},
		{tlsOf(t, files), "/console/cluster", "", 403},
		{none, "/understudy.v1.AdminService/History", looks, 200},
		{none, "/get_all_keys", looks, 403},
		{none, "/get_all_keys", "", 403},
		{none, "/get_all_keys", secret, 200},
		{none, "/debug/pprof/heap", "", 403},
		{certificate("host", "client", mine), "/debug/pprof/heap", "", 403},
		{none, "/debug/pprof/heap", secret, 200},
		{certificate("host", "client", mine), "/get_all_keys", "", 403},
		{certificate("host", "client", mine), "/batch_query_keys?keys=k", "", 200},
		{certificate("op", "operator", uuid.Nil), "/understudy.v1.AdminService/History", "", 200},
		{none, "/understudy.v1.AdminService/History", secret, 200},
		{none, "/understudy.v1.AdminService/History", "", 403},
		{certificate("host", "client", mine), "/understudy.v1.AdminService/History", "", 403},
		{none, "/openapi.json", "", 200},
	} {
		if code, _ := (person{t, a, test.config, test.token}).web(http.MethodGet, test.path, ""); code != test.want {
			t.Errorf("%s: got %d, want %d", test.path, code, test.want)
		}
	}
}

// overMooncake returns a client that speaks Mooncake's protocol and lends memory.
func overMooncake(t *testing.T, at *member) *client.Client {
	t.Helper()
	c := as(t, at, client.Config{Transport: transport(t)})
	mount(t, c)
	return c
}

func transport(t *testing.T) client.Transport {
	t.Helper()
	transport, err := mooncakeclient.NewTransport("head")
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

// With --mooncake-no-orders nobody removes everything over Mooncake's protocol, nor unmounts
// the memory of others.
func TestMooncakeNoOrders(t *testing.T) {
	for _, off := range []bool{false, true} {
		c := settings(config.Primary, "a", nil)
		c.Mooncake.NoOrders = off
		a := run(t, c)
		a.serves()
		m := overMooncake(t, a)
		put(t, m, "k")
		if _, err := m.RemoveAll(t.Context(), client.Removal{Force: true}); (err != nil) != off {
			t.Errorf("--mooncake-no-orders %v: RemoveAll got error %v, want it refused: %v", off, err, off)
		}
		want := `"message":"an order was given"`
		if off {
			want = `"message":"a call was refused: --mooncake-no-orders"`
		}
		if log := a.log.String(); !strings.Contains(log, `"order":"RemoveAll"`) || !strings.Contains(log, want) {
			t.Errorf("--mooncake-no-orders %v: got the log %s, want in it the order RemoveAll and %s", off, log, want)
		}
		lender := as(t, a, client.Config{Transport: transport(t)})
		segment := mount(t, lender)
		err := m.UnmountSegment(t.Context(), segment)
		if (errs.KindOf(err) == errs.IllegalClient) != off || !off && err != nil {
			t.Errorf("--mooncake-no-orders %v: unmount of another's segment got %v, want ILLEGAL_CLIENT: %v", off, err, off)
		}
		line, owner := logged(a, `"order":"UnmountSegment"`, segment.String()), `"owner":"`+lender.ID().String()+`"`
		if line == "" || strings.Contains(line, owner) == off {
			t.Errorf("refused: %v; the log has %q, want the owner if it was unmounted", off, line)
		}
		if strings.Count(line, `"part":`) != 1 || !strings.Contains(line, `"part":"audit"`) {
			t.Errorf("refused: %v; the log has %q, want one part, the audit", off, line)
		}
		if err := lender.UnmountSegment(t.Context(), segment); err != nil {
			t.Errorf("--mooncake-no-orders %v: unmount of the lender's own segment got error %v, want it done", off, err)
		}
		if n := a.serves().GetState().GetSegments(); n != 1 {
			t.Errorf("refused: %v; %d segments are left, want that of the first client", off, n)
		}
	}
}
