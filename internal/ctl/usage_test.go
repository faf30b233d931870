package ctl

import (
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/internal/rpc"
	"github.com/understudy-store/understudy/internal/rpc/rpcerr"
	"github.com/understudy-store/understudy/lab/clitest"
)

func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"nonsense"}, []string{`unknown command "nonsense"`, "see: masterctl --help"}},
		{[]string{"foo"}, []string{"unknown command \"foo\"\n"}},
		{[]string{"stats"}, []string{"did you mean status?"}},
		{[]string{"remove", "k"}, []string{"did you mean rm?"}},
		{[]string{"segments", "mont"}, []string{`unknown command "mont"`, "did you mean mount?"}},
		{[]string{"get", "--adress=a:1", "k"}, []string{"unknown flag: --adress", "did you mean --address?", "see: masterctl get --help"}},
		{[]string{"put-start", "k", "--soft_pim"}, []string{"did you mean --soft-pin?"}},
		{[]string{"get"}, []string{"masterctl get needs at least one KEY"}},
		{[]string{"exists"}, []string{"needs at least one KEY"}},
		{[]string{"rm"}, []string{"needs at least one KEY"}},
		{[]string{"put", "a", "b"}, []string{`unexpected argument "b"`}},
		{[]string{"put-end"}, []string{"needs one KEY"}},
		{[]string{"rm-regex"}, []string{"needs one REGEX"}},
		{[]string{"rm-regex", ""}, []string{"an empty pattern matches every key", "rm-all --yes"}},
		{[]string{"status", "--protocol=mooncake"}, []string{"error: the survey of the nodes needs gRPC; leave out --protocol=mooncake"}},
		{[]string{"status", "true"}, []string{`unexpected argument "true"`, "--name=value"}},
		{[]string{"get", "k", "--address", "no:where:1"}, []string{`"no:where:1" must be host or host:port`}},
		{[]string{"rm-all", "--yes", "--address", ""}, []string{"--address", "the list is empty"}},
		{[]string{"status", "--address", ",,"}, []string{"the list is empty"}},
		{[]string{"get", "k", "--address", "a:99999"}, []string{`"a:99999" must be host or host:port, with a port from 1 to 65535`}},
		{[]string{"get", "k", "--etcd_endpoints", "http://a"}, []string{`"http://a" must be host:port`}},
		{[]string{"get", "k", "--timeout", "0s"}, []string{"--timeout is 0s"}},
		{[]string{"get", "k", "-o", "xml"}, []string{"table, json or yaml"}},
		{[]string{"get", "k", "--cluster-id", "a/b"}, []string{`ClusterID is "a/b"`}},
		{[]string{"put-start", "k"}, []string{"needs --size"}},
		{[]string{"put", "k", "--size", "big"}, []string{"64KiB"}},
		{[]string{"put", "k", "--size", "0"}, []string{"above 0"}},
		{[]string{"put", "k", "--size", "1", "--slice", "1"}, []string{"exclude each other"}},
		{[]string{"put", "k", "--replicas", "0"}, []string{"--replicas is 0"}},
		{[]string{"put", "k", "--soft-pin-ttl", "1s"}, []string{"needs --soft-pin"}},
		{[]string{"put", "k", "--soft-pin", "--soft-pin-ttl", "-1s"}, []string{"--soft-pin-ttl is -1s"}},
		{[]string{"put-end", "k", "--client-id", "me"}, []string{"must be a UUID"}},
		{[]string{"keys", "--prefix=a", "--regex=b"}, []string{"exclude each other"}},
		{[]string{"events", "--follow", "--since=1s"}, []string{"exclude each other"}},
		{[]string{"events", "--since=-1s"}, []string{"--since is -1s"}},
		{[]string{"keys", "--limit=-1"}, []string{"--limit"}},
		{[]string{"rm-regex", "a"}, []string{"--dry-run", "--yes"}},
		{[]string{"rm-all"}, []string{"this removes all objects of the cluster", "see them with --dry-run, and confirm with --yes"}},
		{[]string{"start-empty"}, []string{"add --yes"}},
		{[]string{"forget"}, []string{"needs at least one NODE"}},
		{[]string{"forget", "a"}, []string{"add --yes"}},
		{[]string{"member", "replace"}, []string{"needs one NAME"}},
		{[]string{"member", "remove", "a"}, []string{"add --yes"}},
		{[]string{"member", "remove", "--yes", ""}, []string{"the NAME is empty"}},
		{[]string{"segments", "mount", "a"}, []string{"needs --size"}},
		{[]string{"segments", "mount", "a", "--size", "1MiB", "--base", "0"}, []string{"--base is 0x0"}},
		{[]string{"segments", "mount", "a", "--size", "1MiB", "--id", "1"}, []string{"must be a UUID"}},
		{[]string{"certs", "nonsense"}, []string{`unknown command "nonsense"`}},
		{[]string{"certs", "int", "dir"}, []string{"did you mean init?"}},
		{[]string{"certs", "init"}, []string{"needs one DIR"}},
		{[]string{"certs", "init", "a", "b"}, []string{`unexpected argument "b"`}},
		{[]string{"certs", "init", "a", "--client-id=me"}, []string{"--client-id must be a UUID"}},
		{[]string{"certs", "init", "a", "--valid=0s"}, []string{"--valid above 0"}},
		{[]string{"drain"}, []string{"needs at least one NAME"}},
		{[]string{"drain", "start"}, []string{"needs at least one NAME"}},
		{[]string{"leases", "--prefix=a", "--regex=b"}, []string{"exclude each other"}},
		{[]string{"ranges", "--state=free"}, []string{`--state is "free"`, "live, reserved, quarantined"}},
		{[]string{"status", "--count=2"}, []string{"need --watch"}},
		{[]string{"top", "--interval=1ms"}, []string{"--interval is 1ms"}},
		{[]string{"explain"}, []string{"needs one KEY"}},
		{[]string{"rm-all", "--yes", "--tenant="}, []string{"--tenant is empty", "all tenants"}},
		{[]string{"top", "--count=-1"}, []string{"--count", "invalid"}},
		{[]string{"pause", "--for=500us"}, []string{"--for is 500µs", "1s at least"}},
		{[]string{"quota", "set", "a"}, []string{"needs a TENANT and a SIZE"}},
		{[]string{"quota", "set", "a", "many"}, []string{`the SIZE is "many"`, "64KiB"}},
		{[]string{"quota", "rm"}, []string{"needs one TENANT"}},
		{[]string{"drain", "status"}, []string{"needs the id of one JOB"}},
		{[]string{"segments", "unmount"}, []string{"needs the ID or NAME"}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) { run(t, tt.args...).WantMisuse(t, tt.says...) })
	}
}

// Both spellings of a flag reach the same setting, in all commands.
func TestSpellingsOfFlags(t *testing.T) {
	for _, args := range [][]string{
		{"version", "--etcd_endpoints=a:1", "--cluster_id=c"},
		{"version", "--etcd-endpoints=a:1", "--cluster-id=c"},
		{"--etcd_endpoints=a:1", "version"},
	} {
		run(t, args...).Want(t, cli.StatusOK, "masterctl")
	}
}

func TestHelp(t *testing.T) {
	all := run(t, "--help").Want(t, cli.StatusOK, "--address", "UNDERSTUDY_ADDRESS", "127.0.0.1:50051")
	if again := run(t); again.Out != all.Out {
		t.Errorf("without arguments: got\n%s\nwant what --help prints", again.Out)
	}
	run(t, "segments", "mount", "--help").Want(t, cli.StatusOK, "Ctrl-C", "--keep")
}

func TestVersion(t *testing.T) {
	run(t, "version").Want(t, cli.StatusOK, "contract revision 1")
	run(t, "--version").Want(t, cli.StatusOK, "masterctl version")
	if v := clitest.Decode[versionResult](t, run(t, "version", "-o", "json")); v.Contract != 1 || v.Go == "" || v.Version == "" {
		t.Errorf("got %+v; want contract 1, and versions", v)
	}
}

// deadAddress is where nobody listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestNobodyAnswers(t *testing.T) {
	at := deadAddress(t)
	for _, args := range [][]string{
		{"get", "k"},
		{"put", "k"},
		{"rm", "k"},
		{"segments"},
		{"segments", "mount", "a", "--size=1MiB"},
		{"digest"},
		{"handover"},
		{"events"},
		{"start-empty", "--yes"},
		{"explain", "k"},
		{"leases"},
		{"quota"},
	} {
		o := run(t, append(args, "--address", at, "--timeout=300ms")...)
		if o.Out != "" { // such as the head of a table
			t.Errorf("%v, no node answers: got %q before the error, want nothing printed", args, o.Out)
		}
		o.Want(t, cli.StatusFailed, "UNAVAILABLE_IN_CURRENT_STATUS (-1010)", at, "connection refused", "what to do: ", "check", "--address")
	}
	run(t, "doctor", "--address", at).Want(t, critical, "bad   nodes     "+at+" does not answer: ", "bad   primary   no node serves; start a master")
	run(t, "status", "--address", at).Want(t, critical, "no answer", "No node answers as one of this cluster", "what to do: check whether nodes run, and --address")
	run(t, "top", "--count=1", "--address", at).Want(t, critical, "no node answers", "what to do: check whether nodes run")
	for _, timeout := range []string{"150ms", "800ms"} { // in the first round, and between two
		run(t, "top", "--interval=100ms", "--timeout="+timeout, "--address", at).Want(t, critical, "no node answers")
	}
	s := clitest.Decode[statusResult](t, run(t, "status", "--address", at, "-o", "json"))
	if len(s.Nodes) != 1 || s.Nodes[0].Address != at || s.Nodes[0].Error == "" || s.Leader != nil {
		t.Errorf("got %+v; want the address %s with an error, and no leader", s, at)
	}
	dead := run(t, "status", "--etcd_endpoints", at, "--timeout=300ms").Want(t, critical, "etcd does not answer", "check --etcd-endpoints")
	if strings.Contains(dead.Err, "the outcome is open") {
		t.Errorf("status without etcd: got %s, want no open outcome: it changes nothing", dead.Err)
	}
}

// A node that waits for etcd is not shown as dead, nor is one of another cluster.
func TestNotReadyIsNotDead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewStarting(rpcerr.Source{ClusterID: pb.DefaultClusterID, NodeID: "node-7"}, nil, func() string { return "this node waits for a tram" })
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	defer serving.Wait()
	defer server.Stop()
	at := l.Addr().String()
	o := run(t, "status", "--address", at).Want(t, critical, "node-7", "not ready", "this node waits for a tram", "that has started")
	for _, wrong := range []string{"no answer ", "No node serves"} {
		if strings.Contains(o.Out, wrong) {
			t.Errorf("status of a node that waits: got\n%s\nwant no %q", o.Out, wrong)
		}
	}
	run(t, "doctor", "--address", at).Want(t, critical, "node-7 "+at+" answers, but not as a node of this cluster that has started: this node waits for a tram", "what to do: start what it waits for",
		"no node serves; see what is said of the nodes")
	run(t, "status", "--address", at, "--cluster-id=other").Want(t, critical, "not ready", "it belongs to cluster")
	run(t, "get", "k", "--address", at, "--timeout=300ms").Want(t, cli.StatusFailed, "this node waits for a tram")
	run(t, "get", "k", "--address", at, "--cluster-id=").Want(t, cli.StatusUsage, "--cluster-id is empty")
}

// An error of a node that does not answer is one sentence: what failed, at which
// address, and why, each once. The next line says what to do.
func TestAnErrorIsOneSentence(t *testing.T) {
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts what the kernel does
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hangs.Close() }()
	dead, mute := deadAddress(t), hangs.Addr().String()
	const (
		serves = "UNAVAILABLE_IN_CURRENT_STATUS (-1010): nothing was changed; no node serves: "
		none   = "UNAVAILABLE_IN_CURRENT_STATUS (-1010): no node answers; "
		look   = "masterctl status shows which node serves and which could take over; if none answers, check --address or --etcd_endpoints"
		check  = "check whether nodes run, and --address or --etcd_endpoints (UNDERSTUDY_ADDRESS, UNDERSTUDY_ETCD_ENDPOINTS)"
	)
	for _, c := range []struct{ at, command, want, advice string }{
		{dead, "get k", "BatchGetReplicaList: " + serves + dead + ": connection refused", look},
		{dead, "put k", "PutStart: " + serves + dead + ": connection refused", look},
		{dead, "keys", "Status: " + none + dead + ": connection refused", check},
		{dead, "history", "Status: " + none + dead + ": connection refused", check},
		{mute, "get k", "BatchGetReplicaList: " + serves + mute + ": no answer within the time limit", look},
		{mute, "rm k", "BatchRemove: " + serves + mute + ": no answer within the time limit", look},
		{mute, "leases", "Status: " + none + mute + ": no answer within the time limit", check},
	} {
		o := run(t, append(strings.Fields(c.command), "--address", c.at, "--timeout=300ms")...)
		if want := "error: " + c.want + "\nwhat to do: " + c.advice + "\n"; o.Err != want {
			t.Errorf("%s: got %q, want %q", c.command, o.Err, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	at := deadAddress(t)
	t.Setenv("UNDERSTUDY_ADDRESS", at)
	t.Setenv("UNDERSTUDY_CLUSTER_ID", "blue")
	run(t, "status").Want(t, critical, at)
	s := clitest.Decode[statusResult](t, run(t, "status", "-o", "json"))
	if s.ClusterID != "blue" {
		t.Errorf("the cluster is %q, want blue", s.ClusterID)
	}
	other := deadAddress(t)
	s = clitest.Decode[statusResult](t, run(t, "status", "-o", "json", "--address", other))
	if len(s.Nodes) != 1 || s.Nodes[0].Address != other {
		t.Errorf("a flag is mixed with the environment: %+v; want %s alone", s.Nodes, other)
	}
	o := run(t, "status", "--etcd_endpoints", other, "--timeout=300ms").Want(t, critical, "etcd does not answer")
	if strings.Contains(o.Err, at) {
		t.Errorf("etcd by a flag: got %s, want no address of the environment", o.Err)
	}
	run(t, "status", "--etcd_endpoints", other, "--address", at, "--timeout=300ms").Want(t, critical, "etcd does not answer", "no answer", at)
	t.Setenv("UNDERSTUDY_ADDRESS", "a:b:c")
	run(t, "status").Want(t, cli.StatusUsage, "UNDERSTUDY_ADDRESS", "a:b:c")
}

// A --yes of refound that names nobody is refused with what to give, and with the nodes that
// there are, if any answers.
func TestRefoundNamesNobody(t *testing.T) {
	x, dead := "--address="+lone(t, "x").RPC, "--address="+deadAddress(t)
	const needs = "--yes needs the ids of the nodes that lose something, such as --yes=a,b; without --yes, the refusal names them"
	for _, args := range [][]string{{"--yes"}, {"--yes="}, {"--yes", "--from=x"}, {"--from=x", "--yes=,"}} {
		run(t, slices.Concat([]string{"refound", x}, args)...).WantMisuse(t, needs+"; nodes that are known: x\n")
	}
	o := run(t, "refound", dead, "--from=x", "--yes")
	if o.WantMisuse(t, needs+"\n"); strings.Contains(o.Err, "known") {
		t.Errorf("refound --yes, no node answers: got %s, want no list of known nodes", o.Err)
	}
	run(t, "refound", "--from").WantMisuse(t, "flag needs an argument: --from")
	run(t, "refound", "--fron=x").WantMisuse(t, "did you mean --from?")
	run(t, "refound", "--help").Want(t, cli.StatusOK, "one with the ids of those nodes", "such as --yes=a,b")
}

// typesOfEvents returns the types that there are, a line each, as a test of nodes has checked them.
func typesOfEvents(t *testing.T) string {
	b, err := os.ReadFile("../app/testdata/events.golden")
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for line := range strings.Lines(string(b)) {
		name, _, _ := strings.Cut(line, ":")
		types = append(types, name)
	}
	slices.Sort(types)
	return strings.Join(slices.Compact(types), "\n") + "\n"
}

// A shell is offered names and values, and files only where a file is meant.
func TestCompletion(t *testing.T) {
	t.Setenv("UNDERSTUDY_ADDRESS", lone(t, "x").RPC)
	mount(t, "host", "--size=1MiB")
	run(t, "put", "k1", "--size=1KiB").Want(t, cli.StatusOK)
	const noFiles = "ShellCompDirectiveNoFileComp"
	for _, tt := range []struct {
		args  []string
		offer string
		hint  string
	}{
		{[]string{"handover", "--to", ""}, "", noFiles}, // there is no standby
		{[]string{"start-empty", "--node", ""}, "x\n", noFiles},
		{[]string{"events", "--type", ""}, typesOfEvents(t), noFiles},
		{[]string{"forget", ""}, "x\n", noFiles},
		{[]string{"segments", "unmount", ""}, "host\n", noFiles},
		{[]string{"drain", "start", ""}, "host\n", noFiles},
		{[]string{"put", "--preferred-segment", ""}, "host\n", noFiles},
		{[]string{"get", "k"}, "k1\n", noFiles},
		{[]string{"get", "k1", ""}, "", noFiles},
		{[]string{"status", "--output", ""}, "table\njson\nyaml\n", noFiles},
		{[]string{"status", "--protocol", ""}, "grpc\nmooncake\n", noFiles},
		{[]string{"ranges", "--state", ""}, "live\nreserved\nquarantined\n", noFiles},
		{[]string{"events", ""}, "", noFiles},
		{[]string{"backup", ""}, "", "ShellCompDirectiveDefault"},
		{[]string{"handover", "--address=" + deadAddress(t), "--to", ""}, "", noFiles},
	} {
		o := run(t, append([]string{"__complete"}, tt.args...)...)
		offer, _, _ := strings.Cut(o.Out, ":")
		if offer != tt.offer || !strings.Contains(o.Err, tt.hint) {
			t.Errorf("%q is completed to %q (%s), want %q (%s)", tt.args, offer, o.Err, tt.offer, tt.hint)
		}
	}
}
