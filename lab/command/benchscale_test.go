package command

import (
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/bench/scalebench"
	"github.com/understudy-store/understudy/lab/clitest"
)

func TestBenchScale(t *testing.T) {
	args := []string{"bench", "scale", "--ha=off", "--objects=10000", "--duration=100ms", "--tasks=idle,unmount"}
	r := clitest.Decode[scalebench.Report](t, run(t, append(args, "-o", "json")...).Want(t, cli.StatusOK, "putting 10000 objects", "unmount"))
	if len(r.Tasks) != 2 || r.Tasks[1].Name != "unmount" || r.Tasks[1].Items < 800 || r.BytesPerObject <= 0 {
		t.Errorf("got %+v, want a thousand objects unmounted", r)
	}
	run(t, args...).Want(t, cli.StatusOK, "BatchGet 128 ms p50", "bytes of live heap an object")
}

func TestBenchScaleUsage(t *testing.T) {
	for want, args := range map[string][]string{
		`--ha has "maybe"`:      {"--ha=maybe"},
		"--objects is 10":       {"--objects=10"},
		"--duration is 1ms":     {"--duration=1ms"},
		`--tasks has "nothing"`: {"--tasks=idle,nothing"},
	} {
		run(t, append([]string{"bench", "scale"}, args...)...).Want(t, cli.StatusUsage, want)
	}
}
