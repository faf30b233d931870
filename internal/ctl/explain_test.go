package ctl

import (
	"os"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// testExplain looks at an object while it is put, and at what a removal against a lease leaves
// in quarantine beside it.
func testExplain(t *testing.T) {
	host := mount(t, "host-explained", "--size=1MiB", "--address", os.Getenv("UNDERSTUDY_ADDRESS"))
	there := "--preferred-segment=host-explained"
	run(t, "put-start", "open", "--size=4KiB", there).Want(t, cli.StatusOK)
	x := clitest.Decode[explanation](t, run(t, "explain", "open", "-o", "json"))
	if o := x.Object; o == nil || len(o.Replicas) != 1 || o.Replicas[0].State != "processing" || o.Replicas[0].Segment != "host-explained" || o.Replicas[0].Quarantined != 0 ||
		len(x.History) != 1 || x.History[0].Type != "PUT_START" {
		t.Errorf("between put-start and put-end: got %+v of %+v, want a replica that is written, and one event", x.Object, x)
	}
	run(t, "explain", "open").Want(t, cli.StatusOK, "processing on host-explained at 0x",
		"removal    blocked: it is being put, and its put has not ended", "eviction   blocked: a replica of it is being written")
	run(t, "put-end", "open").Want(t, cli.StatusOK)
	run(t, "explain", "open").Want(t, cli.StatusOK, "complete on host-explained at 0x", "0 B of it are freed", "removal    possible now", "eviction   possible now")

	clitest.Eventually(t, "what was read when it was removed is in quarantine", func() bool { // for a lease TTL, which a busy machine may miss
		run(t, "put", "read", "--size=8KiB", there).Want(t, cli.StatusOK)
		run(t, "get", "read").Want(t, cli.StatusOK)
		run(t, "rm", "read", "--force").Want(t, cli.StatusOK)
		x := clitest.Decode[explanation](t, run(t, "explain", "open", "-o", "json"))
		table := run(t, "explain", "open").Out
		return x.Object.Replicas[0].Quarantined >= 8<<10 && strings.Contains(table, "KiB of it are freed and not in use again yet (quarantine)")
	})
	run(t, "rm", "open").Want(t, cli.StatusOK)
	host.Interrupt().Want(t, cli.StatusOK)
}
