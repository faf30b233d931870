package ctl

import (
	"os"
	"path/filepath"
	"testing"

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
