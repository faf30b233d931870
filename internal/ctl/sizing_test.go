package ctl

import (
	"math"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// What is calculated is what was measured (docs/sizing.md), within a sixth.
func TestSizingAsMeasured(t *testing.T) {
	for _, c := range []struct {
		args                []string
		journal, disk, puts float64 // measured: bytes a put, KB/s, puts/s
	}{
		{[]string{"--puts=308", "--key-bytes=40"}, 102, 1351, 308},
		{[]string{"--puts=297", "--key-bytes=200"}, 266, 1509, 297},
		{[]string{"--puts=265", "--key-bytes=1000"}, 1066, 1980, 265},
		{[]string{"--puts=10652", "--key-bytes=40", "--batch=128"}, 61, 2386, 10652},
		{[]string{"--puts=10612", "--key-bytes=200", "--batch=128"}, 222, 6102, 10612},
		{[]string{"--puts=10588", "--key-bytes=1000", "--batch=128"}, 1048, 25120, 10588},
	} {
		r := clitest.Decode[sizingResult](t, run(t, append(c.args, "sizing", "-o", "json")...).Want(t, cli.StatusOK))
		near := func(what string, got, want, within float64) {
			if math.Abs(got-want) > within*want {
				t.Errorf("sizing %v: got %.0f %s, want what was measured, %.0f", c.args, got, what, want)
			}
		}
		near("journal bytes of a put", r.JournalBytes/c.puts, c.journal, 1.0/16)
		if disk := r.DiskBytes / 1000; disk < c.disk*5/6 || disk > c.disk*8/6 { // commits are bounded from above
			t.Errorf("sizing %v: got %.0f KB/s for the disk, want about what was measured, %.0f", c.args, disk, c.disk)
		}
	}
}

func TestSizing(t *testing.T) {
	run(t, "sizing", "--puts=0").Want(t, cli.StatusOK, "11/s", "at most; a commit of 5ms bounds them to 200/s", "quota", "2.0 GiB")
	run(t, "sizing", "--puts=10000", "--key-bytes=200", "--batch=128", "--journal-max-bytes=2GiB").Want(t, cli.StatusOK, "2.1 MiB/s", "189 MiB", "5.0 GiB")
	run(t, "sizing", "--puts=100000", "--key-bytes=1000", "--journal-max-bytes=4GiB").Want(t, cli.StatusOK,
		"so a standby that is away", "etcd advises against more than 8.0 GiB", "200000 calls a second share at most 200 commits, so at least 1000 callers")
	for _, wrong := range [][]string{
		{}, {"--puts=-1"}, {"--puts=NaN"}, {"--puts=1", "--batch=0"}, {"--puts=1", "--key-bytes=0"}, {"--puts=1", "--nodes=65"},
		{"--puts=1", "--commit=2s"}, {"--puts=1", "--failover-after=1ms"}, {"--puts=1", "--journal-max-bytes=0"},
	} {
		run(t, append([]string{"sizing"}, wrong...)...).WantMisuse(t, "--")
	}
}
