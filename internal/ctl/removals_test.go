package ctl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

func testRemovals(t *testing.T) {
	for i := range 6 {
		run(t, "put", fmt.Sprint("old/", i), "--size=4096").Want(t, cli.StatusOK, "put old/")
	}
	run(t, "get", "old/0").Want(t, cli.StatusOK)
	run(t, "rm", "old/0", "old/1", "nothing").Want(t, cli.StatusFailed, "2 of 3 failed", "old/0: BatchRemove: OBJECT_HAS_LEASE (-706)", "removed old/1")
	r := clitest.Decode[keysResult[removalResult]](t, run(t, "rm", "old/0", "--force", "-o", "json"))
	if len(r.Keys) != 1 || !r.Keys[0].Removed || r.Keys[0].Error != nil {
		t.Errorf("got %+v; want one key, removed", r)
	}
	testQuestion(t)
	run(t, "rm-regex", "old/[23]", "--yes").Want(t, cli.StatusOK, "removed 2 object(s)")
	run(t, "rm-regex", "(", "--yes").Want(t, cli.StatusFailed, "INVALID_PARAMS (-600)")
	if r := clitest.Decode[removedResult](t, run(t, "rm-regex", "nothing", "--yes", "-o", "json")); r.Removed != 0 || *r.Term == 0 {
		t.Errorf("got %+v; want none, in a term", r)
	}
	if r := clitest.Decode[removedResult](t, run(t, "rm-all", "--yes", "--force", "-o", "json")); r.Removed != 3 { // k, old/4, old/5
		t.Errorf("removed %d objects, want 3", r.Removed)
	}
}

// Before many objects go it is said how many they are, and nothing goes unasked.
func testQuestion(t *testing.T) {
	run(t, "rm-regex", "old/[23]").WantMisuse(t, "--dry-run", "--yes")
	run(t, "rm-regex", "old/[23]", "--dry-run").Want(t, cli.StatusOK, "2 object(s) match", "old/2", "old/3")
	if m := clitest.Decode[matches](t, run(t, "rm-regex", "old/", "--dry-run", "-o", "json")); m.Matches != 4 || len(m.Sample) != 4 {
		t.Errorf("got %+v; want the 4 objects that are left", m)
	}
	if m := clitest.Decode[matches](t, run(t, "rm-all", "--dry-run", "-o", "json")); m.Matches != 5 || len(m.Sample) != 5 {
		t.Errorf("got %+v; want all 5 objects", m)
	}
	all := Command()
	all.SetIn(strings.NewReader("no\n"))
	clitest.Run(t, all, "rm-all").Want(t, cli.StatusFailed, "5 object(s) match", "Remove them? [y/N]", "nothing was removed")
	answer := func(text string) clitest.Outcome {
		cmd := Command()
		cmd.SetIn(strings.NewReader(text))
		return clitest.Run(t, cmd, "rm-regex", "old/[23]")
	}
	for _, no := range []string{"", "\n", "n\n"} {
		answer(no).Want(t, cli.StatusFailed, "2 object(s) match", "Remove them? [y/N]", "nothing was removed")
	}
	run(t, "put", "gone/1", "--size=1").Want(t, cli.StatusOK)
	if list := clitest.Decode[keyList](t, run(t, "keys", "--prefix=old/", "-o", "json")); len(list.Keys) != 4 {
		t.Errorf("keys that begin with old/: %v, want 4", list.Keys)
	}
	run(t, "keys", "--regex=^gone").Want(t, cli.StatusOK, "gone/1\n")
	if list := clitest.Decode[keyList](t, run(t, "keys", "--limit=2", "-o", "json")); len(list.Keys) != 2 {
		t.Errorf("got %v; want 2 keys", list.Keys)
	}
	none := Command()
	none.SetIn(strings.NewReader(""))
	if o := clitest.Run(t, none, "rm-regex", "^nothing/").Want(t, cli.StatusOK, "0 object(s) match"); strings.Contains(o.Err, "Remove them?") {
		t.Errorf("a pattern without a match: got the question %s, want none: there is nothing to remove", o.Err)
	}
	cmd := Command()
	cmd.SetIn(strings.NewReader("y\n"))
	clitest.Run(t, cmd, "rm-regex", "^gone/1").Want(t, cli.StatusOK, "1 object(s) match", "removed 1 object(s)")
}
