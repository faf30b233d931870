package ctl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// ownClientID returns the client id that the certificate shown to nodes is for; zero if it is
// for none, or cannot be read, which the first call reports.
func (f *Flags) ownClientID() uuid.UUID {
	if f.tls.Cert == "" || f.tls.Key == "" || f.tokenFile != "" { // nodes look at the token first
		return uuid.Nil
	}
	s, err := certs.Load(f.tls, nil)
	if err != nil {
		return uuid.Nil
	}
	return s.ClientID()
}

// held is what files said when they could be used last: a command that runs for long goes on
// with it while they are replaced.
type held struct {
	nodes, etcd *certs.Source
	token       string
}

// secrecy returns the TLS settings for calls to nodes that begin now; nil for plain text.
func (f *Flags) secrecy() (*tls.Config, error) {
	return clientTLS(&f.held.nodes, f.tls, f.named("tls-ca", "tls-cert", "tls-key"))
}

// clientTLS reads the files. Once that has been possible, files that cannot be used leave what
// was read before.
func clientTLS(held **certs.Source, files certs.Files, flags string) (*tls.Config, error) {
	if !files.Given() {
		return nil, nil
	}
	if (files.Cert == "") != (files.Key == "") {
		return nil, cli.Misusef("%s: a certificate and its key must be given together", flags)
	}
	if *held == nil {
		s, err := certs.Load(files, nil)
		if err != nil {
			return nil, cli.Misusef("%s: %w", flags, err)
		}
		*held = s
	}
	_, _ = (*held).Renew()
	return (*held).Client(), nil
}

// token returns the token that identifies the caller now; empty for none. Once the file had
// one, it stays until the file has another one.
func (f *Flags) token() (string, error) {
	if f.tokenFile == "" {
		return "", nil
	}
	if f.tls.CA == "" {
		return "", cli.Misusef("%s: it needs --tls-ca: whoever listens would have the token", f.named("token-file"))
	}
	b, err := os.ReadFile(f.tokenFile)
	token := strings.TrimSpace(string(b))
	if err == nil && token == "" {
		err = fmt.Errorf("%s is empty", f.tokenFile)
	}
	switch {
	case err == nil:
		f.held.token = token
	case f.held.token == "":
		return "", cli.Misusef("%s: %w", f.named("token-file"), err)
	}
	return f.held.token, nil
}

func (f *Flags) etcdFiles(endpoints []string) certs.Files {
	if !f.etcdTLS.Given() && slices.ContainsFunc(endpoints, func(e string) bool { return strings.HasPrefix(e, "https://") }) {
		return f.tls
	}
	return f.etcdTLS
}

// etcdAccess returns the credentials for etcd at endpoints.
func (f *Flags) etcdAccess(endpoints []string) (access etcdclient.Access, err error) {
	if access.TLS, err = clientTLS(&f.held.etcd, f.etcdFiles(endpoints), f.named("etcd-ca", "etcd-cert", "etcd-key")); err != nil {
		return access, err
	}
	if (f.etcdUser == "") != (f.etcdPasswordFile == "") {
		return access, cli.Misusef("%s must be given together", f.named("etcd-user", "etcd-password-file"))
	}
	if f.etcdUser == "" {
		return access, nil
	}
	access.User, access.Password = f.etcdUser, etcdclient.PasswordFile(f.etcdPasswordFile)
	if _, err := access.Password(); err != nil {
		return access, cli.Misusef("%s: %w", f.named("etcd-password-file"), err)
	}
	return access, nil
}

type certsResult struct {
	Dir      string   `json:"dir"`
	Made     []string `json:"made"`      // names of certificates
	ClientID string   `json:"client_id"` // of the client's certificate
}

func (f *Flags) certsCommand() *cobra.Command {
	hosts, clientID, valid := []string{}, "", time.Duration(0)
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make an authority, and certificates for a node, an operator, a viewer and a client",
		Long: `Makes DIR with an authority (ca.crt, ca.key), unless it is there, and certificates of
it: node.crt for --tls-cert of masters and standbys, operator.crt for masterctl,
viewer.crt for who only looks, and client.crt for a client of the id --client-id. Each
has its key beside it. Run again, it replaces the certificates and keeps the authority; nodes read them by themselves. Where
one file of the authority is missing it makes nothing.

The key of the authority is in a file without a password: this is for trials. In
production, let your own authority issue certificates with the same subjects.`,
		Args: cli.Arguments(1, 1, "one DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := uuid.Parse(clientID)
			if clientID == "" {
				id, err = uuid.New(), nil
			}
			if err != nil || valid <= 0 {
				return cli.Misusef("--client-id must be a UUID, and --valid above 0")
			}
			authority, err := certs.Open(args[0], valid)
			if err != nil {
				return err
			}
			r := certsResult{Dir: args[0], ClientID: id.String()}
			for _, s := range []certs.Subject{
				{Name: "node", Role: "node", Hosts: append([]string{"localhost", "127.0.0.1"}, hosts...)},
				{Name: "operator", Role: "operator"},
				{Name: "viewer", Role: "viewer"},
				{Name: "client", Role: "client", ClientID: id},
			} {
				s.Until = valid
				_, e := authority.Issue(s.Name, s)
				err, r.Made = errors.Join(err, e), append(r.Made, s.Name)
			}
			if err != nil {
				return err
			}
			return f.Print(cmd, r, func(w io.Writer) {
				fmt.Fprintf(w, "%s has %s, with the key beside each, valid for %s\n", r.Dir, strings.Join(r.Made, ".crt, ")+".crt", cli.Days(valid))
				ca := filepath.Join(r.Dir, "ca.crt")
				fmt.Fprintf(w, "nodes:     --tls-ca=%s --tls-cert=%s --tls-key=%s\n", ca, filepath.Join(r.Dir, "node.crt"), filepath.Join(r.Dir, "node.key"))
				fmt.Fprintf(w, "masterctl: --tls-ca=%s --tls-cert=%s --tls-key=%s\n", ca, filepath.Join(r.Dir, "operator.crt"), filepath.Join(r.Dir, "operator.key"))
				fmt.Fprintln(w, "viewer.crt, in place of operator.crt, reads and gives no order")
				fmt.Fprintf(w, "client.crt is of the client id %s\n", id)
			})
		},
	}
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "`list` of names and IPs of the nodes, besides localhost and 127.0.0.1")
	cmd.Flags().StringVar(&clientID, "client-id", "", "`id` of the client (default a new one)")
	cmd.Flags().DurationVar(&valid, "valid", 365*24*time.Hour, "how long the certificates are valid")
	cmd.Flags().Lookup("valid").DefValue = "8760h: " + cli.Days(valid)
	return cli.Group(&cobra.Command{Use: "certs", Short: "Make certificates for a trial"}, cmd)
}
