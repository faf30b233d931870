package client

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/understudy-store/understudy/errs"
)

// A claim ends when the time that the master gave has passed, and not before.
func TestClaimsEnd(t *testing.T) {
	var now time.Duration
	named := func(id string) *Client {
		return &Client{config: Config{ClusterID: id}, clock: func() time.Duration { return now }}
	}
	east, west := named("east"), named("west")
	for name, test := range map[string]struct {
		heldMs *uint64
		want   time.Duration
	}{
		"nobody at work":             {new(uint64(0)), 0},
		"a master that says":         {new(uint64(5010)), 5010 * time.Millisecond},
		"a master that does not say": {nil, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := new(claims), Segment{ID: uuid.New(), Base: 1, Size: 1, Endpoint: "e"}
			enter := func(by *Client, want errs.Kind) {
				t.Helper()
				if _, err := c.enter(by, s); errs.KindOf(err) != want {
					t.Errorf("after %v, a mount at cluster %s: got %v, want %v", now, by.config.ClusterID, err, want)
				}
			}
			now = time.Hour
			enter(east, errs.OK)
			c.unmounted(east, test.heldMs, func(o Segment) bool { return o == s })
			if test.want > 0 {
				now += test.want - 1
				enter(west, errs.Unavailable)
				enter(east, errs.OK)
				c.refuse(east, s) // this mount, not what was there before it
				enter(west, errs.Unavailable)
				now++
			}
			enter(west, errs.OK)
			enter(east, errs.InvalidParams)
		})
	}
}
