package ctl

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/clitest"
)

// forged is a name with which a peer tries to write a line of its own, in red.
const forged = "ev\nil\x1b[31m"

// wantPrinted fails the test unless a text shows the name, and none of its line breaks and
// escapes as such.
func wantPrinted(t *testing.T, what, text string) {
	t.Helper()
	if !strings.Contains(text, `ev\nil\x1b[31m`) || strings.Contains(text, "\x1b") || strings.Contains("\n"+text, "\nil") {
		t.Errorf("%s: got %q, want the name in it as ev\\nil\\x1b[31m", what, text)
	}
}

// What peers chose, names of segments and endpoints, keys and groups, forges no lines of any
// table, nor does it reach the terminal.
func TestNamesOfPeers(t *testing.T) {
	x := lone(t, "x")
	at := "--address=" + x.RPC
	mounted := mount(t, forged, "--size=1MiB", at)
	wantPrinted(t, "mount", mounted.Out.String())
	for _, args := range [][]string{
		{"put", forged, "--size=1KiB", "--group=" + forged},
		{"get", forged}, {"exists", forged}, {"explain", forged}, {"keys"}, {"leases"}, {"ranges"}, {"segments"}, {"clients"},
		{"rm", forged, "--force"}, {"put-start", forged, "--size=1KiB"}, {"put-revoke", forged},
	} {
		wantPrinted(t, strings.Join(args[:1], " "), run(t, append(args, at)...).Want(t, cli.StatusOK).Out)
	}
	wantPrinted(t, "get of no object", run(t, "get", forged, at).Want(t, cli.StatusFailed).Err)
	wantPrinted(t, "put of a large object", run(t, "put", "large", "--size=2MiB", at).Want(t, cli.StatusFailed).Err)
	job := clitest.Decode[drainResult](t, run(t, "drain", forged, "-o=json", at)).Job
	wantPrinted(t, "drain list", run(t, "drain", "list", at).Want(t, cli.StatusOK).Out)
	wantPrinted(t, "drain status", run(t, "drain", "status", job, at).Want(t, cli.StatusOK).Out)
	if o := run(t, "__complete", at, "segments", "unmount", ""); strings.Contains(o.Out, "ev") {
		t.Errorf("got %q, want no name that does not print offered", o.Out)
	}
	if s := clitest.Decode[segmentsResult](t, run(t, "segments", "-o=json", at)).Segments; len(s) != 1 || s[0].Name != forged {
		t.Errorf("got %+v, want the name as it is in JSON", s)
	}
}

// Nor does what nodes say of themselves and of others.
func TestTextsOfNodes(t *testing.T) {
	status := &statusResult{
		Nodes:     []nodeResult{{NodeID: forged, Address: "a", NotPromotable: forged}, {NodeID: "b", Error: forged}},
		Obstacles: []obstacleResult{{NodeID: forged, Reason: "r", Help: "h"}},
	}
	with := func(change func(*statusResult)) *statusResult {
		s := *status
		change(&s)
		return &s
	}
	for what, print := range map[string]func(io.Writer){
		"status": func(w io.Writer) { statusTable(w, status) },
		"reason": func(w io.Writer) { statusTable(w, with(func(s *statusResult) { s.Obstacles[0].Reason = forged })) },
		"help":   func(w io.Writer) { statusTable(w, with(func(s *statusResult) { s.Obstacles[0].Help = forged })) },
		"warnings": func(w io.Writer) {
			statusTable(w, with(func(s *statusResult) { s.Warnings = []remarkResult{{"a", forged}} }))
		},
		"notes": func(w io.Writer) {
			statusTable(w, with(func(s *statusResult) { s.Notes = []remarkResult{{forged, "n"}} }))
		},
		"doctor":  func(w io.Writer) { (&diagnosis{Findings: []finding{{"nodes", warns, forged, "h"}}}).print(w) },
		"digest":  func(w io.Writer) { digestTable(w, &digestResult{Nodes: []nodeDigestResult{{NodeID: forged}}}) },
		"history": func(w io.Writer) { historyTable(w, []termResult{{NodeID: forged}}) },
		"events":  func(w io.Writer) { _ = (&eventResult{Type: "MOUNT_SEGMENT", Text: forged}).row(w) },
		"explain": func(w io.Writer) { (&explanation{HistoryNote: forged}).print(w) },
		"forget":  func(w io.Writer) { (&forgetResult{NodeIDs: []string{forged}}).print(w) },
		"quota":   func(w io.Writer) { quotaTable(w, []quotaResult{{Tenant: forged}}) },
		"top": func(w io.Writer) {
			(&topResult{NodeID: forged, Status: statusResult{Leader: &leaderResult{}}}).print(w)
		},
	} {
		var out bytes.Buffer
		print(&out)
		wantPrinted(t, what, out.String())
	}
}
