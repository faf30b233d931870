package ctl

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/security/certs"
	"github.com/understudy-store/understudy/lab/clitest"
	lab "github.com/understudy-store/understudy/lab/cluster"
)

// trial makes certificates, and returns the flags of nodes and of masterctl.
func trial(t *testing.T, args ...string) (dir string, node, operator []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certs")
	run(t, append([]string{"certs", "init", dir}, args...)...).Want(t, 0, "valid for 365 days")
	flags := func(name string) []string {
		return []string{"--tls-ca=" + dir + "/ca.crt", "--tls-cert=" + dir + "/" + name + ".crt", "--tls-key=" + dir + "/" + name + ".key"}
	}
	return dir, flags("node"), flags("operator")
}

// The doctor reaches nodes and their etcd where both demand a certificate and a role.
func TestDoctorOverTLS(t *testing.T) {
	_, node, operator := trial(t)
	c := &cluster{t: t, dir: t.TempDir()}
	a := c.start("a", append([]string{
		"__master", "--data-dir=" + c.dir + "/state", "--etcd-listen=127.0.0.1:0", "--node-id=a", "--roles",
		"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--log-format=json",
	}, node...)...)
	where := append([]string{"--address=" + a.RPC}, operator...)
	for _, flag := range node { // with roles the embedded etcd takes only a node's certificate
		where = append(where, strings.Replace(flag, "--tls-", "--etcd-", 1))
	}
	clitest.Eventually(t, "a serves", func() bool {
		s, _ := statusBy(t, "a", where...)
		return s.Leader != nil
	})
	_, of, o := diagnosed(t, where...)
	for _, check := range []string{"http", "etcd space", "etcd version", "etcd alarms"} {
		if list := of(check); len(list) != 1 || list[0].Verdict != fine {
			t.Errorf("%s: got %+v, want one that is ok\n%s", check, list, o.Out)
		}
	}
	run(t, append(where, "quota", "list")...).Want(t, cli.StatusFailed, "--enable_multi_tenants")

	_, of, o = diagnosed(t, append([]string{"--address=" + a.RPC}, operator...)...)
	if list := of("etcd"); len(list) != 1 || list[0].Verdict != fine || !strings.Contains(list[0].Text, "answers node a, and not masterctl") || len(of("etcd space")) != 1 {
		t.Errorf("an operator whom the embedded etcd does not let in: got %+v, want that said, and its space as the node knows it\n%s", list, o.Out)
	}
}

// A viewer may run the commands that only look, by certificate and by token. Orders name the
// role that they need.
func TestCommandsOfAViewer(t *testing.T) {
	dir, node, _ := trial(t)
	for name, text := range map[string]string{"tokens": "viewer board " + strings.Repeat("t", 32), "token": strings.Repeat("t", 32)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{t: t, dir: t.TempDir()}
	a := c.start("a", append([]string{
		"__master", "--data-dir=" + c.dir + "/state", "--etcd-listen=127.0.0.1:0", "--node-id=a", "--roles", "--roles-tokens=" + dir + "/tokens", "--enable_multi_tenants",
		"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--log-format=json",
	}, node...)...)
	at := []string{"--address=" + a.RPC, "--tls-ca=" + dir + "/ca.crt"}
	for name, flags := range map[string][]string{
		"viewer": slices.Concat(at, []string{"--tls-cert=" + dir + "/viewer.crt", "--tls-key=" + dir + "/viewer.key"}),
		"board":  slices.Concat(at, []string{"--token-file=" + dir + "/token"}),
	} {
		clitest.Eventually(t, "a serves", func() bool {
			s, _ := statusBy(t, "a", flags...)
			return s.Leader != nil
		})
		for _, command := range []string{
			"history", "events", "segments", "clients", "keys", "leases", "drain list", "quota list",
		} {
			run(t, append(strings.Fields(command), flags...)...).Want(t, cli.StatusOK)
		}
		run(t, append([]string{"explain", "k"}, flags...)...).Want(t, cli.StatusFailed, "OBJECT_NOT_FOUND")
		for _, command := range []string{"doctor", "top --count=1"} { // they warn that there is no standby
			if o := run(t, append(strings.Fields(command), flags...)...); !strings.Contains(o.Out, "no standby could take over") || strings.Contains(o.Out+o.Err, "ILLEGAL_CLIENT") {
				t.Errorf("%s of a viewer: got %s %s, want no refusal", command, o.Out, o.Err)
			}
		}
		for order, needs := range map[string]string{
			"handover": "Handover", "pause": "PauseTakeover", "resume": "PauseTakeover", "start-empty --yes": "StartEmpty", "refound --from=a": "Refound", "forget --yes b": "Forget",
			"backup " + t.TempDir() + "/x": "Backup", "member remove --yes b": "RemoveMember", "quota set x 1GiB": "/api/v1/tenant_quotas",
		} {
			run(t, append(strings.Fields(order), flags...)...).Want(t, cli.StatusFailed,
				"ILLEGAL_CLIENT (-601)", needs+" is for the role operator, and \""+name+"\" has viewer", "of an operator, or for what")
		}
		for _, call := range []string{"get k", "rm-all --yes"} {
			run(t, append(strings.Fields(call), flags...)...).Want(t, cli.StatusFailed, "is for the role client or operator, and \""+name+"\" has viewer")
		}
	}
}

// Who shows no token, or one that no node knows, learns that. A node that cannot be reached
// makes no difference.
func TestUnknownToken(t *testing.T) {
	dir, node, operator := trial(t)
	for name, text := range map[string]string{"tokens": "operator ops " + strings.Repeat("t", 32), "other": strings.Repeat("x", 32)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := lone(t, "a", append(node, "--roles", "--roles-tokens="+filepath.Join(dir, "tokens"))...)
	at := "--address=" + a.RPC + "," + deadAddress(t)
	for _, token := range []string{"", filepath.Join(dir, "other")} {
		flags := []string{at, operator[0], "--token-file=" + token}
		const advice = "what to do: call with the certificate or the token of an operator"
		run(t, append(flags, "segments")...).Want(t, cli.StatusFailed, "ILLEGAL_CLIENT (-601)", a.RPC, advice)
		status := run(t, append(flags, "status")...).Want(t, critical, advice, "refused")
		if strings.Contains(status.Out, "not ready") {
			t.Errorf("status at a node that refuses the token: got\n%s\nwant it not shown as not ready", status.Out)
		}
		run(t, append(flags, "doctor")...).Want(t, critical, "a "+a.RPC+" refused this call: ")
	}
	run(t, append(operator, at, "segments")...).Want(t, cli.StatusOK)
}

// With roles a client lends memory under the id that its certificate or its token is for, and an
// operator under any.
func TestMountsWithRoles(t *testing.T) {
	id, other := uuid.NewString(), uuid.NewString()
	dir, node, operator := trial(t, "--client-id="+id)
	token, tokens := strings.Repeat("t", 32), filepath.Join(dir, "tokens")
	for name, text := range map[string]string{"tokens": "client c " + token + " " + other, "token": token} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := lone(t, "a", append(node, "--roles", "--roles-tokens="+tokens)...)
	at := []string{"--address=" + a.RPC, "--tls-ca=" + dir + "/ca.crt", "-o=json"}
	client := []string{"--tls-cert=" + dir + "/client.crt", "--tls-key=" + dir + "/client.key"}
	withToken := "--token-file=" + filepath.Join(dir, "token")
	for want, who := range map[string][][]string{
		id:    {client, slices.Concat(client, []string{"--client-id=" + id})},
		other: {{withToken, "--client-id=" + other}, {operator[1], operator[2], "--client-id=" + other}},
	} {
		for _, flags := range who {
			o := mount(t, slices.Concat([]string{"host", "--size=1MiB"}, at, flags)...).Interrupt().Want(t, cli.StatusOK, "unmounted host")
			if got := clitest.Decode[mountResult](t, o).Client; got != want {
				t.Errorf("%v: mounted by client %s, want %s", flags, got, want)
			}
		}
	}
	mount(t, slices.Concat([]string{"host", "--size=1MiB"}, at, operator[1:])...) // of a client of its own
	for _, flags := range [][]string{{withToken}, slices.Concat(client, []string{"--client-id=" + other}), slices.Concat(client, []string{withToken})} {
		run(t, slices.Concat([]string{"segments", "mount", "host-2", "--size=1MiB"}, at, flags)...).Want(t, cli.StatusFailed, "ILLEGAL_CLIENT (-601)", "for with --client-id")
	}
	run(t, "segments", "mount", "host", "--size=1MiB", "--client-id=17").WantMisuse(t, "must be a UUID")
}

// With roles a client puts under the id that its certificate is for, too. An error about another
// id says whose to name.
func TestPutsWithRoles(t *testing.T) {
	id := uuid.NewString()
	dir, node, operator := trial(t, "--client-id="+id)
	token, tokens := strings.Repeat("t", 32), filepath.Join(dir, "tokens")
	for name, text := range map[string]string{"tokens": "client c " + token + " " + uuid.NewString(), "token": token} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := lone(t, "a", append(node, "--roles", "--roles-tokens="+tokens)...)
	ca := []string{"--address=" + a.RPC, "--tls-ca=" + dir + "/ca.crt", "-o=json"}
	at := slices.Concat(ca, []string{"--tls-cert=" + dir + "/client.crt", "--tls-key=" + dir + "/client.key"})
	host := mount(t, slices.Concat([]string{"host", "--size=1MiB"}, at)...)
	for _, args := range [][]string{{"put", "k", "--size=1KiB"}, {"put-start", "k2", "--size=1KiB"}, {"put-start", "k3", "--size=1KiB"}} {
		if got := clitest.Decode[putResult](t, run(t, slices.Concat(args, at)...).Want(t, cli.StatusOK)).Client; got != id {
			t.Errorf("%v: put by client %s, want %s, that of the certificate", args, got, id)
		}
	}
	for _, args := range [][]string{{"put-end", "k2"}, {"put-revoke", "k3"}, {"get", "k"}, {"exists", "k2"}, {"rm", "k", "--force"}} {
		run(t, slices.Concat(args, at)...).Want(t, cli.StatusOK)
	}
	for _, flags := range [][]string{append(at, "--client-id="+uuid.NewString()), append(ca, "--token-file="+filepath.Join(dir, "token"))} {
		run(t, slices.Concat([]string{"put", "k4", "--size=1KiB"}, flags)...).Want(t, cli.StatusFailed,
			"ILLEGAL_CLIENT (-601)", "may use the client id", "what to do: name the client that your certificate or token is for with --client-id")
	}
	// An operator's is for none: its puts are those of masterctl.
	r := clitest.Decode[putResult](t, run(t, slices.Concat([]string{"put", "k5", "--size=1KiB"}, ca, operator[1:])...).Want(t, cli.StatusOK))
	if r.Client != writer().String() {
		t.Errorf("put by client %s, want %v", r.Client, writer())
	}
	host.Interrupt().Want(t, cli.StatusOK)
}

// Members of the nodes' own etcd that answer only nodes are judged by what these say. An order
// for a member that there is not fails, and names those that there are.
func TestMembersOfTheNodes(t *testing.T) {
	_, node, operator := trial(t)
	c := &cluster{t: t, dir: t.TempDir()}
	member := func(id string, args ...string) *lab.Process {
		return c.start(id, slices.Concat([]string{
			"__master", "--data-dir=" + filepath.Join(c.dir, id+"-state"), "--etcd-peer-listen=" + deadAddress(t), "--refound-wait=100ms", "--node-id=" + id, "--roles",
			"--rpc_address=127.0.0.1", "--rpc_port=0", "--metrics_port=0", "--log-format=json",
		}, node, args)...)
	}
	a := member("a", "--cluster-init")
	member("b", "--join="+a.RPC)
	where := append([]string{"--address=" + a.RPC}, operator...)
	var of func(string) []finding
	var o clitest.Outcome
	clitest.Eventually(t, "b could take over, and its etcd answers", func() bool {
		_, of, o = diagnosed(t, where...)
		standbys := of("standbys")
		return len(standbys) == 1 && standbys[0].Verdict == fine && strings.HasPrefix(of("nodes")[0].Text, "2 of 2")
	})
	for _, check := range []string{"etcd", "etcd space"} {
		list := of(check)
		if len(list) != 2 || slices.ContainsFunc(list, func(x finding) bool { return x.Verdict != fine }) {
			t.Errorf("%s: got %+v, want two that are ok\n%s", check, list, o.Out)
		}
	}
	run(t, append(where, "member", "remove", "--yes", "a")...).Want(t, cli.StatusFailed, "node a runs: stop it first")
	for _, order := range []string{"remove", "replace"} {
		o := run(t, append(where, "member", order, "--yes", "gone", "-o=json")...)
		if o.Want(t, cli.StatusFailed, "INVALID_PARAMS (-600)", `etcd has no member "gone"; there are a, b`); o.Out != "" {
			t.Errorf("member %s that fails: got the output %s, want none", order, o.Out)
		}
	}
	run(t, append(where, "member", "list")...).Want(t, cli.StatusOK, "a      https://", "b      https://")
	for _, order := range []string{"replace", "remove"} {
		offer := run(t, slices.Concat([]string{"__complete"}, where, []string{"member", order, "--yes", ""})...)
		if names, _, _ := strings.Cut(offer.Out, ":"); names != "a\nb\n" {
			t.Errorf("member %s: got the names %q (%s), want those of the members", order, names, offer.Err)
		}
	}
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

	_, of, _ := diagnosed(t, append(operator, address)...)
	if list := of("http"); len(list) != 1 || list[0].Verdict != fine {
		t.Errorf("the doctor on HTTP over TLS: got %+v, want that it answers", list)
	}
	run(t, append(operator, "top", "--count=1", address)...).Want(t, 0, "A COMMIT")

	for _, name := range []string{"ca", "node", "operator", "viewer", "client"} {
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
		t.Errorf("the client's files: got error %v, want a certificate of that authority with its key", err)
	}
}

// An authority of which a file is missing is not replaced: its certificates are in use.
func TestCertsInitKeepsAHalfAuthority(t *testing.T) {
	for _, missing := range []string{"ca.crt", "ca.key"} {
		dir, _, _ := trial(t)
		if err := os.Rename(filepath.Join(dir, missing), filepath.Join(dir, "away")); err != nil {
			t.Fatal(err)
		}
		before := contents(t, dir)
		run(t, "certs", "init", dir).Want(t, cli.StatusFailed, filepath.Join(dir, missing), "put it back", "another directory")
		if after := contents(t, dir); !maps.Equal(after, before) {
			t.Errorf("without %s: files changed, or came: got %d, want %d as they were", missing, len(after), len(before))
		}
	}
}

// contents are the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(text)
	}
	return files
}

// In the time of a change to TLS, HTTP is still served without.
func TestHTTPInAChangeToTLS(t *testing.T) {
	_, node, operator := trial(t)
	a := lone(t, "a", append(node, "--tls-required=false")...)
	caller := append([]string{"--address=" + a.RPC}, operator...)
	clitest.Eventually(t, "a serves", func() bool {
		s, _ := statusBy(t, "a", caller...)
		return s.Leader != nil
	})
	run(t, append(caller, "top", "--count=1")...).Want(t, cli.StatusOK, "A COMMIT")
}

// Commands that run for long go on when the authority, the certificates and the token are
// replaced, and while the files are half written.
func TestLongRunsReadFilesAgain(t *testing.T) {
	dir, node, _ := trial(t)
	next, nextNode, _ := trial(t)
	mine, kept := t.TempDir(), []string{"ca.crt", "operator.crt", "operator.key", "token"}
	token := strings.Repeat("t", 32)
	for from, text := range map[string]string{dir: token, next: token + "2"} {
		write(t, from, "token", text)
		write(t, from, "tokens", "operator ops "+text)
	}
	copyFiles := func(from string) {
		for _, name := range slices.Backward(kept) {
			write(t, mine, name, contentOf(t, from, name))
		}
	}
	copyFiles(dir)
	roles := func(dir string) []string {
		return []string{"--roles", "--roles-tokens=" + filepath.Join(dir, "tokens")}
	}
	a := lone(t, "a", slices.Concat(node, roles(dir))...)
	at := []string{"--address=" + a.RPC, "--tls-ca=" + mine + "/ca.crt"}
	certificate := slices.Concat(at, []string{"--tls-cert=" + mine + "/operator.crt", "--tls-key=" + mine + "/operator.key"})
	mounted := mount(t, append(certificate, "host", "--size=1MiB")...)
	var tops []*clitest.Background
	for _, flags := range [][]string{certificate, append(at, "--token-file="+mine+"/token")} {
		tops = append(tops, clitest.Start(t, Command(), append(flags, "top", "-o=json", "--interval=100ms")...))
	}
	goOn := func(when string) {
		t.Helper()
		for _, top := range tops {
			pages := func() int { return strings.Count(top.Out.String(), `"calls_per_s"`) }
			before := pages()
			clitest.Eventually(t, when+" top goes on", func() bool {
				if top.Ended() {
					t.Fatalf("%s: got top ended with %s, want it to go on", when, top.Err.String())
				}
				return pages() > before+1
			})
		}
	}
	goOn("at first")
	for _, name := range kept {
		text := contentOf(t, mine, name)
		half := text[:len(text)/2]
		if name == "token" {
			half = "" // nobody can tell half of one from another one
		}
		write(t, mine, name, half)
		goOn("while " + name + " is half written")
		write(t, mine, name, text)
	}

	_, port, _ := net.SplitHostPort(a.RPC)
	a.Kill()
	lone(t, "a", slices.Concat(nextNode, roles(next), []string{"--rpc_port=" + port})...)
	copyFiles(next)
	goOn("with new files")
	clitest.Eventually(t, "the segment is mounted again", func() bool { return strings.Contains(mounted.Err.String(), "mounted again") })
	mounted.Interrupt().Want(t, cli.StatusOK, "unmounted host")
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func contentOf(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
