package ctl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/internal/certs"
	"github.com/understudy-store/understudy/lab/clitest"
)

// trial makes certificates, and returns the flags of nodes and of masterctl.
func trial(t *testing.T, args ...string) (dir string, node, operator []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certs")
	run(t, append([]string{"certs", "init", dir}, args...)...).Want(t, 0)
	flags := func(name string) []string {
		return []string{"--tls-ca=" + dir + "/ca.crt", "--tls-cert=" + dir + "/" + name + ".crt", "--tls-key=" + dir + "/" + name + ".key"}
	}
	return dir, flags("node"), flags("operator")
}

func TestCertsInit(t *testing.T) {
	dir, node, operator := trial(t, "--host=master-1")
	a := lone(t, "a", node...)
	address := "--address=" + a.RPC
	clitest.Eventually(t, "a serves", func() bool {
		s, _ := statusBy(t, "a", append(operator, address)...)
		return s.Leader != nil
	})
	run(t, "status", address).Want(t, 2, "no node answers")
	run(t, append(operator, "exists", "k", address)...).Want(t, 0, "false")
	t.Setenv("UNDERSTUDY_TLS_CA", dir+"/ca.crt")
	run(t, append(operator[1:], "segments", address)...).Want(t, 0)

	for _, name := range []string{"ca", "node", "operator", "client"} {
		if info, err := os.Stat(dir + "/" + name + ".key"); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s.key: got %v, %v; want mode 0600", name, info.Mode(), err)
		}
	}
	before, err := os.ReadFile(dir + "/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.New()
	r := clitest.Decode[certsResult](t, run(t, "certs", "init", dir, "--client-id="+id.String(), "-o", "json"))
	after, err := os.ReadFile(dir + "/ca.crt")
	if err != nil || string(before) != string(after) || r.ClientID != id.String() {
		t.Errorf("a second run: another authority, or %v, and client %s; want the same authority and client %v", err, r.ClientID, id)
	}
	if _, err := certs.Load(certs.Files{CA: dir + "/ca.crt", Cert: dir + "/client.crt", Key: dir + "/client.key"}, nil); err != nil {
		t.Errorf("the client's files: %v", err)
	}
}
