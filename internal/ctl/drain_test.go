package ctl

import (
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

func TestDrain(t *testing.T) {
	at := "--address=" + lone(t, "x").RPC
	mount(t, "old", "--size=1MiB", at)
	run(t, "drain", "nowhere", at).Want(t, cli.StatusFailed, "SEGMENT_NOT_FOUND (-101)", "masterctl segments lists")
	run(t, "drain", "old", "--concurrency=0", at).Want(t, cli.StatusFailed, "INVALID_PARAMS (-600)", "above 0")
	run(t, "drain", "status", "1-2", at).Want(t, cli.StatusFailed, "JOB_NOT_FOUND (-1402)")
	run(t, "put", "k", "--size=1KiB", at).Want(t, cli.StatusOK)
	run(t, "drain", "list", at).Want(t, cli.StatusOK, "JOB", "SEGMENTS")
	job := clitest.Decode[drainResult](t, run(t, "drain", "start", "old", "-o", "json", at))
	if job.Job == "" || job.Status != "CREATED" {
		t.Fatalf("got %+v; want a job that was created", job)
	}
	run(t, "drain", "old", at).Want(t, cli.StatusFailed, "UNAVAILABLE_IN_CURRENT_STATUS (-1010): segment \"old\" takes no new objects")
	run(t, "segments", at).Want(t, cli.StatusOK, "DRAINING")
	run(t, "status", at).Want(t, cli.StatusOK, "none takes puts")
	run(t, "put", "l", "--size=1KiB", at).Want(t, cli.StatusFailed, "NO_AVAILABLE_HANDLE", "or a drain has ended (masterctl segments)")
	run(t, "drain", "status", job.Job, at).Want(t, cli.StatusOK, job.Job+": RUNNING", "old: Drain job running; 0 objects moved")
	if list := clitest.Decode[drainList](t, run(t, "drain", "list", "-o", "json", at)).Jobs; len(list) != 1 || list[0].Job != job.Job || list[0].Status != "RUNNING" || list[0].Segments[0] != "old" {
		t.Errorf("drain jobs: got %+v, want %s", list, job.Job)
	}
	clitest.Eventually(t, "k is blocked", func() bool { // it has nowhere to go
		return strings.Contains(run(t, "drain", "status", job.Job, at).Out, "1 blocked\nAn object is blocked while")
	})
	run(t, "drain", "cancel", job.Job, at).Want(t, cli.StatusOK, job.Job+": CANCELED")
	run(t, "drain", "status", job.Job, at).Want(t, cli.StatusOK, job.Job+": CANCELED")
	run(t, "put", "l", "--size=1KiB", at).Want(t, cli.StatusOK)
}
