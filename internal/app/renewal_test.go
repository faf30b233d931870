package app

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/config"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// line waits until the node's log has some text, and returns the line that has it first.
func (m *member) line(text string) (found string) {
	m.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); ; {
		for line := range strings.Lines(m.log.String()) {
			if strings.Contains(line, text) {
				return line
			}
		}
		select {
		case <-deadline:
			m.t.Fatalf("the log of %s after 30 s: got %s, want %q in it", m.cfg.Node.ID, m.log, text)
		case <-tick.C:
		}
	}
}

// shown returns the common name of the certificate that a port shows to a caller.
func shown(t *testing.T, address string, caller *tls.Config) string {
	t.Helper()
	c, err := tls.Dial("tcp", address, caller)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// A node that runs keeps its certificate, on all its ports, while the new one is of a foreign
// authority or not for its address, and says so once. It takes a good one.
func TestUnfitCertificateIsNotTaken(t *testing.T) {
	t.Parallel()
	ours, foreign := newAuthority(t), newAuthority(t)
	files := nodeFiles(t, ours)
	a := run(t, secure(settings(config.Primary, "a", []string{}), files))
	a.serves()
	caller := tlsOf(t, issue(t, ours, "operator", certs.Subject{Name: "op", Role: "operator"}))
	ports := func() (names []string) {
		for _, address := range []string{a.RPCAddress(), a.cfg.Node.HTTPAddress, a.etcdEndpoint(t)} {
			names = append(names, shown(t, address, caller))
		}
		return names
	}
	const refused = "new certificates cannot be used; those read before stay in use"
	elsewhere := certs.Subject{Name: "elsewhere", Role: "node", Hosts: []string{"10.9.9.9"}}
	for _, unfit := range []struct {
		files certs.Files
		wrong string
	}{
		{nodeFiles(t, foreign), "comes from no authority in " + files.CA},
		{issue(t, ours, "elsewhere", elsewhere), "is not for 127.0.0.1"},
	} {
		replace(t, unfit.files.Key, files.Key)
		replace(t, unfit.files.Cert, files.Cert)
		line := a.line(unfit.wrong)
		for _, want := range []string{`"level":"warn"`, `"node":"a"`, `"part":"certificates"`, refused, files.Cert} {
			if !strings.Contains(line, want) {
				t.Errorf("the log says %s, want %s in it", line, want)
			}
		}
		for _, name := range ports() {
			if name != "node" {
				t.Errorf("a port shows the certificate of %q, want that of before: %s", name, unfit.wrong)
			}
		}
	}
	// expires fails unless the metric has the end of a certificate.
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: caller, DisableKeepAlives: true}}
	expires := func(file certs.Files) {
		t.Helper()
		s, err := certs.Load(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("\nunderstudy_certificate_expiry_timestamp_seconds{kind=\"node\"} %v\n", float64(s.Until().Unix()))
		resp, err := web.Get("https://" + a.cfg.Node.HTTPAddress + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), want) {
			t.Errorf("the metrics: got error %v, want %s in them", err, want)
		}
	}
	fresh := issue(t, ours, "fresh", certs.Subject{Name: "fresh", Role: "node", Hosts: []string{"127.0.0.1"}, Until: 2 * time.Hour})
	replace(t, fresh.Key, files.Key)
	replace(t, fresh.Cert, files.Cert)
	if line := a.line("new certificates are in use"); !strings.Contains(line, `"node":"a"`) {
		t.Errorf("the log says %s, want the node in it", line)
	}
	for _, name := range ports() {
		if name != "fresh" {
			t.Errorf("a port shows the certificate of %q, want the new one", name)
		}
	}
	expires(fresh)
	for _, wrong := range []string{"comes from no authority in " + files.CA, "is not for 127.0.0.1"} {
		if n := strings.Count(a.log.String(), wrong); n != 1 {
			t.Errorf("%q is said %d times, want once:\n%s", wrong, n, a.log)
		}
	}
	if err := askOver(t, a.RPCAddress(), caller); err != nil {
		t.Errorf("a call with the new certificate: got error %v, want an answer", err)
	}
}

// A start with a certificate that nobody would take says which file lacks what.
func TestStartWithAnUnfitCertificate(t *testing.T) {
	t.Parallel()
	ours, foreign := newAuthority(t), newAuthority(t)
	local := []string{"127.0.0.1"}
	other := issue(t, foreign, "node", certs.Subject{Name: "node", Role: "node", Hosts: local})
	other.CA = ours.File()
	for what, test := range map[string]struct {
		files certs.Files
		want  string
	}{
		"another authority": {other, "comes from no authority in " + ours.File()},
		"another address":   {issue(t, ours, "elsewhere", certs.Subject{Name: "node", Role: "node", Hosts: []string{"10.9.9.9"}}), "(--advertise-address)"},
		"of the past":       {issue(t, ours, "old", certs.Subject{Name: "node", Role: "node", Hosts: local, From: -2 * time.Hour, Until: -time.Hour}), "has expired"},
	} {
		err := ends(t, secure(settings(config.Primary, "a", []string{}), test.files))
		if err == nil || strings.Contains(err.Error(), "etcd") {
			t.Errorf("%s: got %v, want an error that is not about etcd", what, err)
			continue
		}
		for _, want := range []string{"--tls-cert", test.files.Cert, test.want} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q in it", what, err, want)
			}
		}
	}
}
