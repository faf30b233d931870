package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/errs"
)

// An error that says what to do is not followed by the general advice, which says less.
func TestAdviceIsGivenOnce(t *testing.T) {
	for text, advised := range map[string]bool{
		"etcd's database has reached 90 % of its quota; nothing was changed, try again":        false,
		"nodes that held the state are away: b; masterctl forget --yes b, and ask again":       false,
		"no other node can take over; start a standby and wait until it is promotable":         false,
		"nothing was changed; no node serves: a: the term has ended; look at masterctl status": true,
		"node b runs: stop it first":                          false,
		"no node answers":                                     false, // see TestAnErrorIsOneSentence
		"the leases could not be checked against the journal": true,
		"etcdserver: mvcc: database space exceeded":           true,
		"one of the segments s takes no new objects already":  true,
	} {
		got := strings.Count(explain(errs.New(errs.Unavailable, "Op", "%s", text), "get"), "what to do: masterctl status shows")
		if (got == 1) != advised || got > 1 {
			t.Errorf("%q: got the general advice %d times, want it: %v, and once at most", text, got, advised)
		}
	}
}

// Who is refused for want of TLS or of a role learns which flags help.
func TestAdviceOnAccess(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.1:50051: error reading server preface: EOF"), "give --tls-ca"},
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.1:50051: write tcp 10.0.0.2:54176->10.0.0.1:50051: write: broken pipe"), "give --tls-cert"},
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.1:50051: remote error: tls: certificate required"), "give --tls-cert"},
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.1:50051: error reading server preface: remote error: tls: certificate required"), "give --tls-cert"},
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.1:9003: error reading server preface: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"), "one for HTTP"},
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.1:50051: tls: first record does not look like a TLS handshake"), "leave out --tls-ca"},
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.1:50051: x509: certificate signed by unknown authority"), "--tls-ca"},
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.1:9003: credentials: cannot check peer: missing selected ALPN property"), "one for HTTP"},
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.9:50051: x509: certificate is valid for 10.0.0.1, not 10.0.0.9"), "a name that its certificate has"},
		{errs.New(errs.Unavailable, "Status", "no node answers; 10.0.0.1:50051: error reading server preface: remote error: tls: unknown certificate authority"), "the authority of your certificate"},
		{errs.New(errs.IllegalClient, "RemoveAll", "RemoveAll is for the role operator, and \"a\" has client"), "of an operator"},
		{errs.New(errs.IllegalClient, "Status", "the caller has shown neither a certificate nor a token"), "of an operator"},
		{errs.New(errs.IllegalClient, "Status", "the token is unknown, or came without TLS"), "of an operator"},
		{errs.New(errs.IllegalClient, "PutEnd", ""), "--client-id"},
		{errs.New(errs.IllegalClient, "PutStart", "\"c\" may use the client id x, and not y"), "your certificate or token is for with --client-id"},
	} {
		if got := explain(c.err, "status"); !strings.Contains(got, c.want) {
			t.Errorf("got %q, want %q in it", got, c.want)
		}
	}
	if got := explain(errs.New(errs.IllegalClient, "MountSegment", ""), "mount"); !strings.Contains(got, "your certificate or token is for with --client-id") {
		t.Errorf("a mount: got %q, want that it names the client of the certificate", got)
	}
}

// Only what needs a cluster is helped by one.
func TestAdviceOnWhatIsNotSupported(t *testing.T) {
	for text, advised := range map[string]bool{
		"high availability is off, so there is no journal":                           true,
		"the etcd of this cluster is not the nodes' own":                             false,
		"unknown method Witnesses for service understudy.v1.AdminService: no answer": false,
	} {
		if got := explain(errs.New(errs.NotSupported, "Op", "%s", text), "member"); strings.Contains(got, "--enable_ha=true") != advised {
			t.Errorf("got %q; want advice on --enable_ha: %v", got, advised)
		}
	}
}

// The error of one call may say more than is known of its kind.
func TestAdvisedErrorsGetNoOtherAdvice(t *testing.T) {
	err := errs.New(errs.NoAvailableHandle, "PutStart", "it can never fit; split it")
	if got := explain(err, "put"); !strings.Contains(got, "wait for an eviction") {
		t.Errorf("got %q, want advice on its kind", got)
	}
	if got, want := explain(Advised(err), "put"), Numbered(err); got != want {
		t.Errorf("got %q, want %q and no other advice", got, want)
	}
}

// Who interrupts a command learns what became of it.
func TestInterruptedCommandSaysWhatBecameOfIt(t *testing.T) {
	open := &errs.Error{Kind: errs.Unresolved, Op: "Remove", Detail: "the call may have been applied; look, or repeat it", Err: context.Canceled}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{context.Canceled, []string{"error: interrupted\n"}},
		{WithStatus(3, nil), []string{"error: interrupted\n"}},
		{open, []string{"error: interrupted: Remove: ", "the call may have been applied; look, or repeat it\n", "what to do: "}},
		{WithStatus(3, fmt.Errorf("k: %w", open)), []string{"error: interrupted: k: Remove: ", "may have been applied"}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		said := new(bytes.Buffer)
		root := &cobra.Command{Use: "it", RunE: func(*cobra.Command, []string) error { cancel(); return c.err }}
		Program(root, new(Flags))
		root.SetArgs([]string{})
		root.SetErr(said)
		if status := Execute(ctx, root); status != StatusFailed {
			t.Errorf("%v: got the status %d, want %d", c.err, status, StatusFailed)
		}
		for _, want := range c.want {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%v: got %q, want %q in it", c.err, said, want)
			}
		}
	}
}
