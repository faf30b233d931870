package app

import (
	"strings"
	"testing"

	"github.com/understudy-store/understudy/metadata"
)

// A drain job has one id everywhere: the one with which operators look after it.
func TestEventOfADrain(t *testing.T) {
	c := &metadata.SaveDrain{Drain: metadata.Drain{ID: [16]byte{7: 1, 15: 2}}}
	if _, text := typeAndText(c); !strings.HasPrefix(text, "job 1-2 of 0 segments") {
		t.Errorf("got %q, want the id as masterctl drain prints it", text)
	}
}
