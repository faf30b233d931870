package ctl

import (
	"slices"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// A standby that would change what calls are about says so.
func TestSettingsDiffer(t *testing.T) {
	c := startCluster(t)
	a := c.node("a", "__master")
	c.serves("a", a)
	c.flags = append(c.flags, "--enable_multi_tenants")
	c.node("b", "__standby")
	clitest.Eventually(t, "b could take over", func() bool {
		_, b := statusBy(t, "b", "--address", a.RPC)
		return b.Promotable
	})
	clitest.Eventually(t, "nothing else is wrong", func() bool {
		s, _ := statusBy(t, "b", "--address", a.RPC)
		return len(s.Warnings) == 1 && s.Warnings[0].NodeID == "b"
	})
	run(t, "status", "--address", a.RPC).Want(t, cli.StatusFailed,
		"warning of b: if this node takes over from a, settings change: enable_multi_tenants is true here, false (the default) there; give all nodes the same")
	const change = "enable_multi_tenants would change from false (the default) to true"
	run(t, "status", "--address", a.RPC).Want(t, cli.StatusFailed, "yes; "+change)
	if _, b := statusBy(t, "b", "--address", a.RPC); !slices.Equal(b.Changes, []string{change}) {
		t.Errorf("JSON says of b %q, want %q", b.Changes, change)
	}
	testHandoverIsAsked(t, a.RPC, "if b takes over: "+change+"\n")
}

// testHandoverIsAsked hands over from the node at an address. That changes settings, so that
// somebody must confirm it.
func testHandoverIsAsked(t *testing.T, at, says string) {
	t.Helper()
	const question = "Hand over? [y/N] "
	answer := func(text string, args ...string) clitest.Outcome {
		cmd := Command()
		cmd.SetIn(strings.NewReader(text))
		return clitest.Run(t, cmd, append([]string{"handover", "--address", at}, args...)...)
	}
	run(t, "handover", "--address", at).WantMisuse(t, says, "this handover changes settings", "--yes")
	for _, no := range []string{"", "\n", "n\n"} {
		if o := answer(no).Want(t, cli.StatusFailed, "nothing was handed over"); !strings.HasPrefix(o.Err, says+question) {
			t.Errorf("before the handover: got %q, want %q and a question", o.Err, says)
		}
	}
	if s, _ := statusBy(t, "a", "--address", at); s.Leader == nil || s.Leader.NodeID != "a" {
		t.Errorf("nothing was confirmed, and %+v leads; want a", s.Leader)
	}
	var o clitest.Outcome
	clitest.Eventually(t, "a has handed over", func() bool {
		o = answer("y\n")
		return o.Status == cli.StatusOK
	})
	if want := says + question; o.Err != want {
		t.Errorf("before the handover: got %q, want %q", o.Err, want)
	}
	clitest.Eventually(t, "b has handed over", func() bool {
		o = run(t, "handover", "--yes", "--address", at)
		return o.Status == cli.StatusOK
	})
	if want := "if a takes over: enable_multi_tenants would change from true to false (the default)\n"; o.Err != want {
		t.Errorf("before the handover back: got %q, want %q", o.Err, want)
	}
}
