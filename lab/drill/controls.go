package drill

import (
	"context"
	"os"
	"time"

	"github.com/understudy-store/understudy/internal/safeguard"
)

// A Control is a drill with a safeguard that nodes leave out, and what the drill
// must notice then. A drill that cannot fail proves nothing.
type Control struct {
	Drill string         `json:"drill"`
	Break safeguard.Name `json:"safeguard"` // as the nodes' --break names it
	// Notices are letters of promises and names of checks. One of them must fail,
	// so that a drill is not taken to notice what has failed for another reason.
	Notices []string `json:"notices"`
}

// Controls returns at least one for each drill and for each safeguard, in the
// order of the drills.
func Controls() []Control {
	c := func(drill string, without safeguard.Name, notices ...string) Control {
		return Control{drill, without, notices}
	}
	return []Control{
		c("kill-primary", safeguard.JournaledReservations, "D", "S"),
		c("handover", safeguard.HandoverFlush, "A", "L"),
		c("stopped-primary", safeguard.ServingDeadline, "F"),
		c("primary-without-etcd", safeguard.FencingCompare, "D", "X", "A", "V"),
		c("primary-without-etcd", safeguard.SendBasedDeadline, "F"),
		c("primary-without-etcd", safeguard.CommitBeforeAck, "D", "X", "V"),
		c("primary-without-clients", safeguard.RequestIDs, "D", "V"),
		c("primary-without-clients", safeguard.StallAllowance, "D"),
		c("etcd-leader", safeguard.CommitDoubt, "D", "S", "V", "no failover"),
		c("etcd-outage", safeguard.ServingDeadline, "F"),
		c("etcd-outage", safeguard.StallAllowance, "D"),
		c("slow-etcd", safeguard.RequestIDs, "D", "V"),
		c("lost-answer", safeguard.CommitDoubt, "D", "S", "V", "no failover"),
		c("stopped-standby", safeguard.HeadContinuity, "S"),
		c("cut-watch", safeguard.HeadContinuity, "S"),
		c("busy-bootstrap", safeguard.NearMisses, "A", "L", "S"),
		c("twice-within-a-lease", safeguard.EvictionCutoffs, "A", "L", "S"),
		c("twice-within-a-lease", safeguard.Quarantine, "A", "L"),
		c("wall-clocks", safeguard.BootClock, "D", "A", "F"),
		c("remove-many", safeguard.IDCheck, "D", "X"),
		c("dead-host", safeguard.GoneSegments, "A"),
		c("lone-stall", safeguard.StallAllowance, "no client expired"),
		c("backlog", safeguard.JournaledReservations, "D", "S"),
		c("five-in-a-minute", safeguard.NoEmptyStart, "no silent empty start"),
		c("garbage", safeguard.FencingCompare, "fenced"),
	}
}

// ControlLimit is how long a drill may take to notice.
const ControlLimit = time.Minute

// A Caught says whether a drill noticed that a safeguard is missing.
type Caught struct {
	Control
	// OK: what the control is for was seen within ControlLimit.
	OK     bool   `json:"ok"`
	Result Result `json:"result"`
}

// RunControl runs a control. Of a drill that noticed nothing is kept.
func RunControl(ctx context.Context, c Control, o Options) Caught {
	caught := Caught{Control: c}
	d, err := Find(c.Drill)
	if err != nil {
		caught.Result.Error = err.Error()
		return caught
	}
	ctx, cancel := context.WithTimeout(ctx, ControlLimit)
	defer cancel()
	o.Break, o.Short, o.Duration, o.notices = string(c.Break), true, ControlLimit, c.Notices
	caught.Result = Run(ctx, d, o)
	if caught.OK = caught.Result.notices(c.Notices); caught.OK && caught.Result.Folder != "" {
		_ = os.RemoveAll(caught.Result.Folder) // as it was meant to be
		caught.Result.Folder = ""
	}
	return caught
}
