package command

import (
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
	"github.com/understudy-store/understudy/lab/fleet"
)

func TestFleet(t *testing.T) {
	args := []string{"fleet", "--objects=10000", "--clusters=4"}
	r := clitest.Decode[fleet.Report](t, run(t, append(args, "-o", "json")...).Want(t, cli.StatusOK))
	if len(r.Cases) != 1 || r.Cases[0].Clusters != 4 || r.Cases[0].Moved == 0 {
		t.Errorf("got %+v, want four clusters", r)
	}
	run(t, args...).Want(t, cli.StatusOK, "HOT READS")
	run(t, "fleet", "--clusters=0").Want(t, cli.StatusUsage, "--clusters is [0]")
}
