package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
)

// SIGHUP, which reloads the settings of other programs, changes nothing here, and one
// line says so.
func TestHangup(t *testing.T) {
	m := startNode(t, t.TempDir(), "lone", "master", "--enable_ha=false")
	for range 3 {
		if err := m.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		m.until("says that SIGHUP has no effect", func(*pb.StatusResponse) bool { return strings.Contains(printed(m.Process), "SIGHUP has no effect") })
	}
	sigterm(t, m.Process)
	if err := m.Wait(20 * time.Second); err != nil {
		t.Errorf("SIGTERM: got exit %v, want 0", err)
	}
	text := printed(m.Process)
	if n := strings.Count(text, "SIGHUP"); n != 1 || !strings.Contains(text, `"message":"stopped"`) {
		t.Errorf("%d lines about SIGHUP, want 1, and one that it stopped: %s", n, text)
	}
}
