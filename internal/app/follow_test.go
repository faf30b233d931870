package app

import (
	"strings"
	"testing"

	pb "github.com/understudy-store/understudy/api/understudy/v1"
	"github.com/understudy-store/understudy/etcdtest"
	"github.com/understudy-store/understudy/internal/config"
)

// A node that neither won nor lost says once who serves, since when and why.
func TestFollowersLogWhoServes(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t).Endpoints()
	a := run(t, settings(config.Primary, "a", etcd))
	a.serves()
	b := run(t, settings(config.Standby, "b", etcd))
	b.promotable()
	a.knows(1)
	c := run(t, settings(config.Standby, "c", etcd))
	says := func(fields string) {
		t.Helper()
		c.until("says who serves", func(*pb.StatusResponse) bool { return strings.Contains(c.log.String(), fields) })
	}
	says(`"primary":"a","address":"` + a.RPCAddress() + `","term":1,"why":"there was no journal"`)
	if _, err := a.admin.Handover(t.Context(), &pb.HandoverRequest{Term: 1, TargetNodeId: "b"}); err != nil {
		t.Fatal(err)
	}
	says(`"primary":"b","address":"` + b.RPCAddress() + `","term":2,"why":"a handed over"`)
	if n := strings.Count(c.log.String(), "another node serves"); n != 2 {
		t.Errorf("a follower saw two primaries: got %d lines about them, want 2, one each: %s", n, c.log)
	}
	if strings.Contains(b.log.String(), `"primary":"b"`) {
		t.Errorf("the log of b, the primary: got a line that it follows itself, want none: %s", b.log)
	}
}
