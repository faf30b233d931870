package ctl

import (
	"strings"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// How long a node served is known although it was killed and recorded no end: the next term
// in which somebody served has the time before it.
func TestHowLongTermsLasted(t *testing.T) {
	list := termsOf(&pb.HistoryResponse{Terms: []*pb.TermRecord{
		{Term: 1, NodeId: "a", Began: "2026-11-28T10:00:00Z", Ended: "2026-11-28T10:00:07.5Z", End: "handed over to b"},
		{Term: 2, NodeId: "b", Began: "2026-11-28T10:00:08Z", GapMs: 20, End: "b committed nothing for 1s"},
		{Term: 3, Why: "b committed nothing for 1s"}, // nobody served
		{Term: 4, NodeId: "a", Began: "2026-11-28T10:01:00Z", GapMs: 1100},
		{Term: 5, NodeId: "b", Began: "2026-11-28T10:02:00Z", GapMs: 10_000, GapAtLeast: true},
		{Term: 6, NodeId: "a", Began: "2026-11-28T10:01:59Z", GapMs: 10}, // its clock is behind
	}})
	var out strings.Builder
	historyTable(&out, list)
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{" 7.5s ", " about 50.9s ", "", " at most 50s ", "", ""} {
		if line := strings.ReplaceAll(lines[i+1], "at least", ""); want != "" && !strings.Contains(line, want) || want == "" && list[i].Served != 0 {
			t.Errorf("term %d: got %q, %+v; want %q", i+1, lines[i+1], list[i], want)
		}
	}
}
