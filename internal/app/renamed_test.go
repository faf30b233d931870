package app

import (
	"strings"
	"testing"
	"time"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/client"
	"github.com/understudy-store/understudy/internal/config"
)

// A master that starts with another --node-id in its data directory says where its former state
// files stand, and has everything again under the id of before.
func TestAnotherNodeIDInTheDataDirectory(t *testing.T) {
	c := settings(config.Primary, "a", []string{})
	c.Node.DataDir, c.HA.SessionTTL, c.HA.FailoverAfter, c.HA.WaitForState = t.TempDir(), 2*time.Second, time.Second, time.Millisecond
	a := run(t, c)
	a.serves()
	put(t, writer(t, client.Config{Addresses: []string{a.RPCAddress()}}), "k")
	a.end()
	renamed := c
	renamed.Node.ID = "b"
	b := run(t, renamed)
	b.until("names the state files of a", func(s *pb.StatusResponse) bool {
		if s.GetNode().GetRole() == pb.Role_ROLE_PRIMARY {
			t.Fatal("b serves, want it to keep the state files of a")
		}
		return strings.Contains(s.GetNotServingReason(), a.cfg.Node.StateDir) && strings.Contains(s.GetNotServingHelp(), "--node-id=a")
	})
	b.end()
	a = run(t, c)
	a.serves()
	if there, err := writer(t, client.Config{Addresses: []string{a.RPCAddress()}}).ExistKey(t.Context(), "k"); err != nil || !there {
		t.Errorf("the object of before: got %v, %v; want it", there, err)
	}
}
