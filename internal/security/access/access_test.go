package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
)

const secret = "0123456789abcdef0123456789abcdef"

func TestTokens(t *testing.T) {
	id := uuid.New()
	for text, want := range map[string]string{
		"operator op " + secret:                            "",
		"viewer v " + secret:                               "",
		"viewer v " + secret + " " + id.String():           "line 1 must be",
		"# none\n\nclient c " + secret + " " + id.String(): "",
		"operator op " + secret[1:]:                        "32 to 8192",
		"operator op " + strings.Repeat(secret, 257):       "32 to 8192",
		"client c " + secret:                               "line 1 must be",
		"operator op " + secret + "\nnode n " + secret:     "line 2 must be",
		"client c " + secret + " 17":                       "must be a UUID",
		"root r " + secret:                                 "line 1 must be",
	} {
		_, err := parseTokens([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret[1:])) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestIdentify(t *testing.T) {
	file, id := filepath.Join(t.TempDir(), "tokens"), uuid.New()
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("operator op " + secret)
	c, err := New(file, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	plain := &tls.ConnectionState{}
	with := func(units []string, uris ...string) *tls.ConnectionState {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: "x", OrganizationalUnit: units}}
		for _, u := range uris {
			cert.URIs = append(cert.URIs, &url.URL{Scheme: "urn", Opaque: u})
		}
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
	}
	nameless := with([]string{"client"}, "uuid:"+id.String())
	nameless.VerifiedChains[0][0].Subject.CommonName = ""
	for name, test := range map[string]struct {
		state  *tls.ConnectionState
		header string
		want   Roles
	}{
		"nothing":                 {plain, "", Nobody},
		"plain text":              {nil, "", Nobody},
		"a token":                 {plain, "Bearer " + secret, Operator},
		"a token in plain text":   {nil, "Bearer " + secret, Nobody},
		"an unknown token":        {with([]string{"operator"}), "Bearer x", Nobody},
		"a certificate":           {with([]string{"team", "client"}, "uuid:"+id.String()), "", Client},
		"of a node":               {with([]string{"node"}), "Basic x", Node},
		"of a viewer":             {with([]string{"viewer"}), "", Viewer},
		"without a role":          {with(nil), "", Nobody},
		"with two roles":          {with([]string{"node", "client"}), "", Nobody},
		"a viewer and operator":   {with([]string{"viewer", "operator"}), "", Nobody},
		"with an id that is none": {with([]string{"client"}, "uuid:17"), "", Nobody},
		"without a name":          {nameless, "", Nobody},
		"not verified":            {&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}, "", Nobody},
	} {
		i, err := c.Identify(test.state, test.header)
		if (err == nil) != (test.want != Nobody) || err == nil && i.Role != test.want {
			t.Errorf("%s: got %v %v, want %v", name, i, err, test.want)
		}
		if i.Role == Client && err == nil && (i.CheckClient(id.String()) != nil || i.CheckClient(uuid.NewString()) == nil || i.CheckClient("") == nil) {
			t.Errorf("%s: got %+v, want its own id allowed, and no other", name, i)
		}
	}
	other := strings.ToUpper(secret)
	write("operator op " + other)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(ctx) })
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := c.Identify(plain, "bearer "+other); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the new token after 20 s: got it refused, want it accepted")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := c.Identify(plain, "bearer "+secret); err == nil {
		t.Error("the old token after the new one: got it accepted, want it refused")
	}
	cancel()
	wg.Wait()
}
