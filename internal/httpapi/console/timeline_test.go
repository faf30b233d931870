package console

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/errs"
)

// threeTerms are a start, a takeover after a kill, and a handover.
func threeTerms() []*pb.TermRecord {
	at := func(d time.Duration) string { return noon.Add(d).Format(time.RFC3339Nano) }
	return []*pb.TermRecord{
		{Term: 1, NodeId: "a", Began: at(-50 * time.Minute), Why: "there was no journal"},
		{Term: 2, NodeId: "b", Began: at(-20 * time.Minute), Why: "a committed nothing for 1s", GapMs: 1250, Ended: at(-10 * time.Minute), End: "handover"},
		{Term: 3, NodeId: "a", Began: at(-10*time.Minute + 25*time.Millisecond), Why: "b handed over", GapMs: 25},
	}
}

func TestTimeline(t *testing.T) {
	r := newRig(t)
	r.terms = threeTerms()
	r.Recorder.record()
	_, text := r.page("/console/timeline")
	has(t, "the last hour", text, "1 gap in service",
		"2026-01-31 11:50:00 10m so far term term 3: a serves b handed over",
		"2026-01-31 11:50:00 25ms handover a planned change to a, term 3 b handed over",
		"2026-01-31 11:40:00 10m term term 2: b served a committed nothing for 1s",
		"2026-01-31 11:39:58 1.25s gap nobody answered before term 2 a committed nothing for 1s",
		"2026-01-31 11:10:00 29m59s term term 1: a served there was no journal",
		"role this process started, as primary")
	_, text = r.page("/console/timeline?w=5m")
	if strings.Contains(text, "term 2:") {
		t.Errorf("the last 5 minutes: got\n%s\nwant nothing of term 2, which ended before", text)
	}
	_, text = r.page("/console/timeline?w=5m&at=11:39")
	has(t, "at 11:39", text, "nobody answered before term 2", "11:36:30 to 2026-01-31 11:41:30")
	if strings.Contains(text, "term 3") {
		t.Errorf("5 minutes around 11:39: got\n%s\nwant nothing of term 3, which came later", text)
	}
	_, text = r.page("/console/timeline?at=soon")
	has(t, "no time", text, `This page is not whole. "soon" is no time`)
	data := r.get("/console/timeline.json").Body.String()
	has(t, "data", data, `"kind":"gap"`, `"kind":"handover"`, `"hit":[null]`)
}

// Who stops all nodes and starts them long after has a gap in service, not a planned change.
func TestLongStopsAreGaps(t *testing.T) {
	for gap, kind := range map[uint64]string{900: "handover", 90_000: "gap"} {
		list := termIncidents([]*pb.TermRecord{
			{Term: 1, NodeId: "a", Began: noon.Add(-time.Hour).Format(time.RFC3339Nano)},
			{Term: 2, NodeId: "a", Began: noon.Format(time.RFC3339Nano), Why: "a stopped", GapMs: gap},
		}, noon)
		if last := list[len(list)-1]; last.Kind != kind {
			t.Errorf("%d ms: got %+v, want a %s", gap, last, kind)
		}
	}
}

// Requests at about the same time share one read of etcd. While it is away, the terms
// of before are shown, and the page says so. Without HA there are none, and none are
// missed.
func TestTimelineWithoutEtcd(t *testing.T) {
	r := newRig(t)
	r.terms = threeTerms()
	h := Handler(r.Sources)
	ask := func() string {
		_, text := parse(t, body(h, "/console/timeline"))
		return text
	}
	ask()
	ask()
	if r.reads != 1 {
		t.Errorf("two requests at once: %d reads of etcd, want 1", r.reads)
	}
	r.now = r.now.Add(time.Second)
	r.termErr, r.terms = errors.New("etcd is away"), nil
	has(t, "etcd is away", ask(), "This page is not whole. etcd is away", "nobody answered before term 2")
	r = newRig(t)
	r.termErr = errs.New(errs.NotSupported, "History", "high availability is off")
	_, text := r.page("/console/timeline")
	if strings.Contains(text, "not whole") {
		t.Errorf("the timeline without HA: got %s, want no word that it is not whole: there are no terms to miss", text)
	}
}

// What this node saw of a gap stands beside what the next primary recorded.
func TestGapsAreJoined(t *testing.T) {
	r := newRig(t)
	r.terms = threeTerms()
	r.now = noon.Add(-20*time.Minute - 2*time.Second)
	r.Recorder.record()
	r.now = noon.Add(-20*time.Minute - time.Second)
	r.reading.Obstacle = "the leader key is gone"
	r.Recorder.record()
	r.now = noon.Add(-20 * time.Minute)
	r.reading.Obstacle = ""
	r.Recorder.record()
	for minute, cause := range slices.Backward([]string{3: "etcd is slow", 5: "etcd is away"}) {
		if cause == "" {
			continue
		}
		r.reading.Serving = minute == 5 // else the primary of the time knows of nothing
		r.now = noon.Add(-time.Duration(minute)*time.Minute - time.Second)
		r.Recorder.record()
		r.reading.Serving, r.reading.Obstacle = false, cause
		r.now = noon.Add(-time.Duration(minute) * time.Minute)
		r.Recorder.record()
		r.reading.Obstacle = ""
		r.now = noon.Add(time.Minute - time.Duration(minute)*time.Minute)
		r.Recorder.record()
	}
	r.now = noon
	_, text := r.page("/console/timeline")
	has(t, "joined", text, "2 gaps in service", "a committed nothing for 1s; this node saw: the leader key is gone",
		"1m gap nobody served, as this node saw it etcd is away", "1m role this node could not see whether anybody served; the primary recorded no interruption etcd is slow")
}

func TestMoment(t *testing.T) {
	for text, want := range map[string]string{
		"03:12": "2026-01-31T03:12:00Z", "12:00:01": "2026-01-30T12:00:01Z", "2026-01-02T03:04": "2026-01-02T03:04:00Z",
		"2026-01-02 03:04:05": "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+01:00": "2026-01-02T02:04:05Z",
	} {
		got, err := moment(text, noon)
		if err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: got %v %v, want %s", text, got, err, want)
		}
	}
	if _, err := moment("25:99", noon); err == nil {
		t.Error("the moment 25:99: got no error, want one")
	}
}
