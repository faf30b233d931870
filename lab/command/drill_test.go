package command

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
	"github.com/understudy-store/understudy/lab/drill"
)

// What a report says last.
func TestConclusions(t *testing.T) {
	ok := drill.Result{OK: true}
	skipped := drill.Result{OK: true, Skipped: "why"}
	stopped := drill.Result{Stopped: true}
	failed := drill.Result{}
	for name, c := range map[string]struct {
		drills []drill.Result
		want   string
	}{
		"all ok":                {[]drill.Result{ok, ok}, "All promises were kept."},
		"one skipped":           {[]drill.Result{ok, skipped}, "of the 1 drills that could run here"},
		"all skipped":           {[]drill.Result{skipped}, "Nothing was checked."},
		"stopped at once":       {[]drill.Result{stopped}, "Stopped before the first verdict."},
		"stopped in the middle": {[]drill.Result{ok, stopped}, "Stopped before the end."},
		"one failed":            {[]drill.Result{ok, failed, skipped}, "A DRILL FAILED."},
		"failed, then stopped":  {[]drill.Result{failed, stopped}, "A DRILL FAILED."},
	} {
		t.Run(name, func(t *testing.T) {
			r := drill.Summarize(1, c.drills)
			var out strings.Builder
			drillReport(&out, &r)
			if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); !strings.Contains(lines[len(lines)-1], c.want) {
				t.Errorf("the report: got\n%s\nwant %q in its last line", out.String(), c.want)
			}
		})
	}
}

// Rounds that are held to no bound are shown.
func TestRaisedRoundsAreShown(t *testing.T) {
	r := drill.Summarize(1, []drill.Result{{Name: "kill-primary", OK: true, Counts: map[string]int64{"rounds_raised": 3}}})
	var out strings.Builder
	drillReport(&out, &r)
	if !strings.Contains(out.String(), "kill-primary: 3 rounds in which") {
		t.Errorf("want the 3 rounds in:\n%s", out.String())
	}
}

// Ctrl-C in the first seconds of a soak is no failure of a drill.
func TestSoakStoppedAtOnce(t *testing.T) {
	b := clitest.Start(t, Command(), "drill", "soak", "--dir", t.TempDir())
	clitest.Eventually(t, "it begins", func() bool { return strings.Contains(b.Err.String(), "drill 0, soak") })
	b.Interrupt().Want(t, cli.StatusFailed, "Stopped before the first verdict.", "interrupted")
	if strings.Contains(b.Out.String(), "FAILED") {
		t.Errorf("got a report of a failed drill, want none:\n%s", b.Out.String())
	}
}

// A drill that cannot run has checked nothing: away from the source the nodes of
// this one cannot be built.
func TestSkippedDrill(t *testing.T) {
	t.Chdir(t.TempDir())
	run(t, "drill", "run", "wall-clocks").Want(t, cli.StatusOK, "skipped", "Nothing was checked.")
}

func TestControlsOfUnknownSafeguard(t *testing.T) {
	run(t, "drill", "controls", "nonsense").Want(t, cli.StatusUsage, `"nonsense"`)
}

// A stopper ends a context when the second control begins.
type stopper struct {
	begun int
	stop  context.CancelFunc
}

func (s *stopper) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), "without ") {
		if s.begun++; s.begun == 2 {
			s.stop()
		}
	}
	return len(p), nil
}

// Controls that did not run are not said to have noticed nothing.
func TestControlsStopWithTheirContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	w := &stopper{stop: stop}
	cmd := &cobra.Command{}
	cmd.SetOut(io.Discard)
	cmd.SetErr(w)
	// Options that are refused, so that no control takes a while.
	list, ok := caught(ctx, cmd, drill.Controls(), drill.Options{SessionTTL: 1})
	if len(list) != 1 || ok || w.begun != 2 {
		t.Errorf("got %d controls that ended, %d that began, ok %t; want 1, 2, false", len(list), w.begun, ok)
	}
}
