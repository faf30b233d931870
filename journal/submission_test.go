package journal

import (
	"strings"
	"testing"

	"github.com/understudy-store/understudy/metadata"
)

// What a batch takes in memory is about what the queue counts for it.
func TestEncodedIsNotMuchLargerThanCounted(t *testing.T) {
	put := func(n int) metadata.Change { return &metadata.PutStart{Tenant: "default", Key: strings.Repeat("k", n)} }
	changes := []metadata.Change{put(4000)}
	for range 63 {
		changes = append(changes, put(8))
	}
	s, err := new(Queue).newSubmission(t.Context(), changes)
	if err != nil {
		t.Fatal(err)
	}
	got := cap(s.encoded[metadata.ObjectEvents])
	if got > 4*s.size {
		t.Errorf("a batch whose first change is large: got %d bytes in memory, want at most %d, four times what the queue counts", got, 4*s.size)
	}
}
