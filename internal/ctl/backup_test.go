package ctl

import (
	"os"
	"path/filepath"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
	"github.com/understudy-store/understudy/promote/statefile"
)

// A backup is a whole state file of a complete node, a standby if there is one. It
// replaces a file only when that is asked for, and leaves nothing else behind.
func testBackup(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "state")
	b := clitest.Decode[backupResult](t, run(t, "backup", name, "-o", "json").Want(t, cli.StatusOK))
	if b.NodeID != "b" || b.Sequence == 0 || b.Term != 1 || b.History == "" {
		t.Errorf("got %+v; want the state of the standby b in term 1", b)
	}
	info, err := statefile.Inspect(name)
	if err != nil || uint64(info.Head.Seq) != b.Sequence || info.Bytes != b.Bytes || info.Node != "b" {
		t.Errorf("the file holds %+v, %v; want what was printed, %+v", info, err, b)
	}
	if stat, err := os.Stat(name); err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v; want 0600", stat.Mode(), err)
	}
	run(t, "backup", name).Want(t, cli.StatusUsage, "exists", "--force")
	run(t, "backup", name, "--force", "--node=a").Want(t, cli.StatusOK, "saved the state of a at sequence")
	run(t, "backup", filepath.Join(dir, "no", "where")).Want(t, cli.StatusFailed, "no such file")
	run(t, "backup", name, "--force", "--node=nobody").Want(t, cli.StatusFailed, `no node "nobody"`)
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("got files %v, %v; want the backup alone", list, err)
	}
}

// A primary that does not answer may have acknowledged more than the standbys have read: a
// backup waits for what is known of it, and says so.
func TestWhatABackupWaitsFor(t *testing.T) {
	answer := func(role pb.Role, applied, head uint64) *node {
		return &node{status: &pb.StatusResponse{
			Node: &pb.Node{Role: role}, LeaderNodeId: "a", State: &pb.StateStatus{Sequence: applied}, Journal: &pb.JournalStatus{CommittedSequence: head},
		}}
	}
	away := nodes{{id: "a"}, answer(pb.Role_ROLE_STANDBY, 5, 7), answer(pb.Role_ROLE_STANDBY, 6, 6)}
	if upTo, who := away.acknowledged(); upTo != 7 || who != "a" {
		t.Errorf("without the primary: got %d, %q; want 7, and that a is away", upTo, who)
	}
	if upTo, who := append(away, answer(pb.Role_ROLE_PRIMARY, 9, 9)).acknowledged(); upTo != 9 || who != "" {
		t.Errorf("with the primary: got %d, %q; want what it has, 9", upTo, who)
	}
}

// A backup founds the cluster anew: the refusal names what is lost, and the order that
// gives it up is obeyed.
func TestRefound(t *testing.T) {
	c := startCluster(t)
	master, standby := c.pair()
	t.Setenv("UNDERSTUDY_ADDRESS", master.RPC+","+standby.RPC)
	mount(t, "host-1", "--size=64MiB")
	run(t, "put", "before", "--size=1MiB").Want(t, cli.StatusOK)
	name := filepath.Join(t.TempDir(), "state")
	run(t, "backup", name).Want(t, cli.StatusOK, "saved the state of b")
	run(t, "put", "behind", "--size=1MiB").Want(t, cli.StatusOK)

	run(t, "refound").Want(t, cli.StatusUsage, "--from-file")
	run(t, "refound", "--from=a", "--node=b").Want(t, cli.StatusUsage, "--from-file")
	run(t, "refound", "--from=b").Want(t, cli.StatusFailed, "UNAVAILABLE_IN_CURRENT_STATUS (-1010)", "masterctl handover")
	run(t, "refound", "--from-file", os.Args[0], "--node=b").Want(t, cli.StatusFailed, "no whole state file")
	run(t, "refound", "--from-file", name).Want(t, cli.StatusUsage, "--node")
	run(t, "refound", "--from-file", name, "--node=b").Want(t, cli.StatusFailed, "what a acknowledged as the primary", "what b holds", "--yes=a,b")
	run(t, "refound", "--from-file", name, "--node=b", "--yes=a").Want(t, cli.StatusFailed, "what a acknowledged as the primary", "--yes=a,b")
	r := clitest.Decode[refoundResult](t, run(t, "refound", "--from-file", name, "--node=b", "--yes=a,b", "-o", "json").Want(t, cli.StatusOK))
	if r.NodeID != "b" || r.Term <= 1024 || r.Sequence == 0 {
		t.Errorf("got %+v; want b in a term above 1,024", r)
	}
	run(t, "get", "before").Want(t, cli.StatusOK)
	run(t, "get", "behind").Want(t, cli.StatusFailed, "OBJECT_NOT_FOUND")
	run(t, "status").Want(t, cli.StatusFailed, "founded the journal anew at sequence", "by an operator's order")
	clitest.Eventually(t, "a goes on with the new journal", func() bool {
		_, a := statusBy(t, "a")
		return a.Promotable && a.Term == r.Term
	})
	run(t, "digest").Want(t, cli.StatusOK, "equal at sequence")
}
