package etcdclient_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-store/understudy/internal/etcd/etcdclient"
	"github.com/understudy-store/understudy/internal/etcd/etcdserver"
	"github.com/understudy-store/understudy/internal/security/certs"
)

// A client that was made with other authorities connects when the file has the right one.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	issue := func() (files certs.Files, ca []byte) {
		authority, err := certs.Open(t.TempDir(), time.Hour)
		if err == nil {
			files, err = authority.Issue("node", certs.Subject{Name: "node", Role: "node", Hosts: []string{"127.0.0.1"}, Until: time.Hour})
		}
		if err == nil {
			ca, err = os.ReadFile(files.CA)
		}
		if err != nil {
			t.Fatal(err)
		}
		return files, ca
	}
	files, right := issue()
	_, wrong := issue()
	own, err := certs.Load(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	server, err := etcdserver.Start(t.Context(), etcdserver.Settings{
		DataDir: t.TempDir(), TLS: etcdserver.TLS{CA: files.CA, Cert: files.Cert, Key: files.Key, InUse: own.InUse},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	files.CA = filepath.Join(t.TempDir(), "ca.crt")
	write := func(ca []byte) {
		if err := os.WriteFile(files.CA, ca, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(wrong)
	source, err := certs.Load(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = source.Run(ctx)
	}()
	client, err := etcdclient.Connect(t.Context(), server.Endpoints(), etcdclient.Access{TLS: source.Client(), Renewed: source.Client}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	first, end := context.WithTimeout(ctx, time.Second)
	defer end()
	if _, err := client.Get(first, "k"); err == nil {
		t.Error("with another authority: got no error, want one")
	}
	write(right)
	if err := etcdclient.Check(ctx, client, server.Endpoints()); err != nil {
		t.Errorf("with the right authority in the file: got error %v, want none", err)
	}
	cancel()
	<-ended
}
