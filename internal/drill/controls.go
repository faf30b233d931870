package drill

import (
	"context"
	"os"
	"time"

	"github.com/understudy-store/understudy/internal/safeguard"
)

// A Control is a safeguard with a drill that must notice when nodes leave it
// out. A drill that cannot fail proves nothing.
type Control struct {
	Break safeguard.Name `json:"safeguard"` // as the nodes' --break names it
	Drill string         `json:"drill"`
}

// Controls returns one for each safeguard.
func Controls() []Control {
	return []Control{
		{safeguard.FencingCompare, "primary-without-etcd"},
		{safeguard.SendBasedDeadline, "primary-without-etcd"},
		{safeguard.JournaledReservations, "kill-primary"},
		{safeguard.EvictionCutoffs, "twice-within-a-lease"},
		{safeguard.NearMisses, "busy-bootstrap"},
		{safeguard.Quarantine, "twice-within-a-lease"},
		{safeguard.CommitBeforeAck, "primary-without-etcd"},
		{safeguard.IDCheck, "remove-many"},
		{safeguard.HeadContinuity, "cut-watch"},
	}
}

// ControlLimit is how long a drill may take to notice.
const ControlLimit = time.Minute

// A Caught says whether a drill noticed that a safeguard is missing.
type Caught struct {
	Control
	// OK: a promise was seen broken within ControlLimit.
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
	o.Break, o.Short, o.Duration = string(c.Break), true, ControlLimit
	caught.Result = Run(ctx, d, o)
	if caught.OK = caught.Result.broken(); caught.OK && caught.Result.Folder != "" {
		_ = os.RemoveAll(caught.Result.Folder) // as it was meant to be
		caught.Result.Folder = ""
	}
	return caught
}
