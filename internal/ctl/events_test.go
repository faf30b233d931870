package ctl

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/internal/cli"
)

// The events of a drain job are found by the id that masterctl drain prints.
func TestEventsMentionDrains(t *testing.T) {
	event := &pb.EventsResponse{Type: "SAVE_DRAIN", Json: `{"job_id":"1-2"}`}
	for mention, want := range map[string]bool{"1-2": true, "1": false, "job": false} {
		if got := (&subject{name: mention}).in(event); got != want {
			t.Errorf("--mention=%s: got %v, want %v", mention, got, want)
		}
	}
}

// Names are found where an event has them. A number that looks like a key is none.
func TestEventsMention(t *testing.T) {
	for content, want := range map[string]bool{
		`{"key":"8"}`: true, `{"source_segment":"8"}`: true, `{"target_segments":["7","8"]}`: true, `{"named_segments":[{"segment_name":"8"}]}`: true,
		`{"removals":[{"object_id":"8","request_id":null}]}`: true, `{"task_ids":["8"]}`: true, `{"request_id":"8"}`: true,
		`{"size":"8","segment_numbers":[8],"lease_until_cluster_time_ms":"8","tenant":"8","message":"8","key":"9"}`: false,
	} {
		if got := (&subject{name: "8"}).in(&pb.EventsResponse{Json: content}); got != want {
			t.Errorf("--mention=8, %s: got %v, want %v", content, got, want)
		}
	}
}

// Without --limit the newest 100 events come, of more.
func testNewestEvents(t *testing.T) {
	lines := func(args ...string) []string {
		return timeless(run(t, append([]string{"events", "-o", "json"}, args...)...).Want(t, cli.StatusOK).Out)
	}
	for i := 0; len(lines("--limit=0")) <= 101; i++ {
		run(t, "put", "newest"+strconv.Itoa(i), "--size=1").Want(t, cli.StatusOK)
	}
	last := lines("--type=PUT_END", "--limit=1")
	if got := lines(); len(got) != 100 || !slices.Contains(got, last[0]) {
		t.Errorf("got %d events, want the newest 100, with %s", len(got), last)
	}
}

// A key of one tenant is not that of another.
func TestEventsOfATenant(t *testing.T) {
	put := func(tenant, id string) *pb.EventsResponse {
		return &pb.EventsResponse{Type: "PUT_START", Json: `{"tenant":"` + tenant + `","key":"k","object_id":"` + id + `"}`}
	}
	remove := &pb.EventsResponse{Type: "REMOVE", Json: `{"removals":[{"object_id":"17"}]}`}
	for tenant, want := range map[string]bool{"red": false, "blue": true, "": true} {
		s := &subject{name: "k", tenant: tenant}
		if got := s.in(put("blue", "17")); got != want {
			t.Errorf("a put of tenant blue, for tenant %q: got %v, want %v", tenant, got, want)
		}
		if got := s.in(remove); got != want {
			t.Errorf("its removal, for tenant %q: got %v, want %v", tenant, got, want)
		}
	}
}

// --since counts from the newest event there is, of whatever kind.
func TestSince(t *testing.T) {
	f := &follower{since: 30 * time.Second, until: 100_000}
	got := f.recent([]*pb.EventsResponse{{ClusterTimeMs: 69_999}, {ClusterTimeMs: 70_000}})
	if len(got) != 1 || got[0].GetClusterTimeMs() != 70_000 {
		t.Errorf("got %v, want the event of 70 s alone", got)
	}
}

// Programs read events by these names: they stay. What stands in "event" is in
// internal/app/testdata/events.golden.
func TestEventLine(t *testing.T) {
	result := resultOf(&pb.EventsResponse{
		Term: 1, Sequence: 2, ClusterTimeMs: 3, Stream: pb.EventStream_EVENT_STREAM_OBJECT_EVENTS, Type: "DISCARD", Text: "object 5", Json: `{"object_id":"5"}`,
	})
	result.Wall, result.Rough = "2026-01-02T12:00:00.000Z", true
	const want = `{"term":1,"sequence":2,"cluster_time_ms":3,"wall_time":"2026-01-02T12:00:00.000Z","wall_time_approximate":true,` +
		`"stream":"object_events","type":"DISCARD","text":"object 5","event":{"object_id":"5"}}`
	if got, err := json.Marshal(result); err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

// Wall times are counted back from what the primary said, and marked before a change of primary.
func TestWallTimes(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	w := &wallTimes{asked: noon, cluster: 100_000, term: 7, gaps: map[uint64]uint64{6: 9_000, 7: 2_000}}
	for _, c := range []struct {
		term    uint64
		cluster int64
		want    string
		rough   bool
	}{
		{7, 100_000, "2026-01-02T12:00:00.000Z", false},
		{7, 100_150, "2026-01-02T12:00:00.150Z", false}, // it was committed since
		{7, 99_000, "2026-01-02T11:59:59.000Z", false},
		{6, 90_000, "2026-01-02T11:59:48.000Z", true}, // 2 s without a primary between
		{5, 80_000, "2026-01-02T11:59:29.000Z", true}, // and another 9 s
	} {
		if r := w.result(&pb.EventsResponse{Term: c.term, ClusterTimeMs: c.cluster}); r.Wall != c.want || r.Rough != c.rough {
			t.Errorf("term %d, %d ms: got %s, rough %v; want %s, %v", c.term, c.cluster, r.Wall, r.Rough, c.want, c.rough)
		}
	}
	before := time.Now()
	if at, rough := w.of(8, 150_000); at.Before(before) || at.After(time.Now()) || !rough {
		t.Errorf("an event of the next primary, which comes now: got %v, rough %v; want now, and that it is rough", at, rough)
	}
	if at, _ := (&wallTimes{}).of(1, 5); !at.IsZero() {
		t.Errorf("without a primary: got %v, want no wall time", at)
	}
}
