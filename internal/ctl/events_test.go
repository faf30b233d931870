package ctl

import (
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// The events of a drain job are found by the id that masterctl drain prints.
func TestEventsMentionDrains(t *testing.T) {
	event := &pb.EventsResponse{Type: "SAVE_DRAIN", Text: "job 1-2 of 1 segments: RUNNING", Json: "{}"}
	for mention, want := range map[string]bool{"1-2": true, "1": false, "job": false} {
		if got := (&follower{mention: mention}).mentions(event); got != want {
			t.Errorf("--mention=%s: got %v, want %v", mention, got, want)
		}
	}
}
