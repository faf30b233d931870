package drill

import (
	"context"
	"os"
	"time"
)

// A Control runs a drill on a mutant: nodes that lack one safeguard. The drill must
// notice that. A drill that cannot fail proves nothing.
type Control struct {
	Drill string `json:"drill"`
	Break string `json:"safeguard"` // the mutant's name
	// Notices are letters of promises and names of checks. One of them must fail; a
	// drill that fails for another reason has not noticed.
	Notices []string `json:"notices"`
}

// Controls returns the controls, at least one for each drill, in the order of the
// drills. The simulation has controls of its own (package sim).
func Controls() []Control {
	c := func(drill, without string, notices ...string) Control {
		return Control{drill, without, notices}
	}
	return []Control{
		c("kill-primary", "journaled-reservations", "D", "S"),
		c("kill-primary", "tenant-keys", "A", "V"),
		c("kill-primary", "late-deposal", "outage"),
		c("handover", "handover-flush", "A", "L"),
		c("handover", "unclean-handover", "outage"),
		c("stopped-primary", "serving-deadline", "F"),
		c("primary-without-etcd", "fencing-compare", "D", "X", "A", "V", "F"),
		c("primary-without-etcd", "send-based-deadline", "F"),
		c("primary-without-etcd", "commit-before-ack", "D", "X", "V"),
		c("primary-without-clients", "request-ids", "D", "V"),
		c("primary-without-clients", "stall-allowance", "D"),
		c("etcd-leader", "commit-doubt", "D", "S", "V", "no failover"),
		c("etcd-leader", "single-attempt", "reads are back"),
		c("etcd-outage", "serving-deadline", "F"),
		c("etcd-outage", "stall-allowance", "D"),
		c("etcd-outage", "full-stop", "changes stop before etcd is full"),
		c("slow-etcd", "request-ids", "D", "V"),
		c("slow-etcd", "slow-pace", "reads are served again"),
		c("lost-answer", "commit-doubt", "D", "S", "V", "no failover"),
		c("stopped-standby", "head-continuity", "S"),
		c("cut-watch", "head-continuity", "S"),
		c("busy-bootstrap", "near-misses", "A", "L", "S"),
		c("twice-within-a-lease", "eviction-cutoffs", "A", "L", "S", "somebody takes over"),
		c("twice-within-a-lease", "quarantine", "A", "L"),
		c("twice-within-a-lease", "upsert-leases", "A", "L"),
		c("twice-within-a-lease", "moved-leases", "A", "L"),
		c("wall-clocks", "boot-clock", "D", "A", "F"),
		c("remove-many", "id-check", "D", "X"),
		c("dead-host", "gone-segments", "A"),
		c("dead-host", "one-unmount", "one event"),
		c("lone-stall", "stall-allowance", "no client expired"),
		c("backlog", "journaled-reservations", "D", "S", "somebody takes over"),
		c("five-in-a-minute", "no-empty-start", "no silent empty start"),
		c("five-in-a-minute", "state-files", "everything is there again"),
		c("garbage", "fencing-compare", "fenced"),
		c("wiped-etcd", "refound-asks", "D", "X", "S"),
		c("wiped-etcd", "lost-head", "notices the loss", "founded again", "a term far above", "D"),
		c("wiped-etcd", "founding-terms", "a term far above"),
		c("wiped-etcd", "history-compare", "keeps its state"),
		c("wiped-etcd", "foreign-journal", "keeps its state"),
		c("restored-etcd", "older-head", "founded again", "D", "S"),
		c("restored-etcd", "fork-owed", "A"),
		c("restored-etcd", "fork-follows", "a fork ends with one journal"),
		c("restored-etcd", "restart-asks", "leaves the election to who holds more", "D"),
		c("overwritten-keys", "newer-head", "nothing is founded over a newer format"),
		c("overwritten-keys", "elected-wait", "F"),
		c("silent-owner", "claims", "A", "L"),
		c("silent-owner", "writers-claims", "A", "L"),
		c("silent-owner", "displaced-clients", "a replaced process goes first"),
		c("silent-owner", "mass-silence", "few expire at once"),
		c("everything-killed", "state-files", "everything is there again"),
		c("state-away", "await-complete", "no empty start"),
		c("late-copies", "named-copies", "A"),
		c("late-copies", "copy-sources", "A"),
		c("late-copies", "spared-sources", "sources are spared"),
		c("lost-packets", "deposal", "somebody takes over"),
		c("stalling-etcd", "slow-pace", "the window is raised"),
		c("upgrade", "raised-rules", "all nodes follow"),
		c("hanging-primary", "takeover-grace", "no client expired", "D"),
		c("moves", "transfer-sources", "sources are spared"),
		c("groups", "group-leases", "groups are kept", "groups are whole"),
		c("hostile-peers", "memory-budget", "memory"),
		c("hostile-peers", "unread-answers", "memory"),
		c("hostile-peers", "scan-turns", "puts are answered", "no failover"),
		c("hostile-peers", "digest-places", "waits are bounded"),
		c("hostile-peers", "peer-shares", "others are served"),
		c("hostile-peers", "connection-budget", "others are served", "no failover"),
		c("hostile-peers", "segment-names", "names are shared"),
		c("hostile-peers", "frame-pace", "memory", "no failover", "puts are answered"),
		c("hostile-peers", "flood-slots", "no failover", "puts are answered"),
		c("any-machine", "journaled-reservations", "D", "S"),
		c("witness", "journaled-reservations", "D", "S"),
		c("kv-events", "seen-evictions", "the follower knows all keys"),
		c("lone-restart", "state-files", "D", "everything is there again"),
		c("rest", "idle-pace", "few writes"),
	}
}

// ControlLimit is how long a drill may take to notice.
const ControlLimit = time.Minute

// A Caught says whether a drill noticed that a safeguard is missing.
type Caught struct {
	Control
	// OK says that the drill noticed within ControlLimit.
	OK     bool   `json:"ok"`
	Result Result `json:"result"`
}

// RunControl runs a control: it builds the mutant, if that was not done before, and
// runs the drill on it for ControlLimit at most. If the drill noticed, it deletes the
// drill's folder.
//
// The options must have a builder.
func RunControl(ctx context.Context, c Control, o Options) Caught {
	caught := Caught{Control: c}
	d, err := Find(c.Drill)
	if err != nil {
		caught.Result.Error = err.Error()
		return caught
	}
	o.Break, o.Short, o.Duration, o.notices = c.Break, true, ControlLimit, c.Notices
	o = o.withDefaults()
	if err = o.Check(); err == nil {
		_, _, err = o.build(ctx, d, o.Mutants)
	}
	if err != nil {
		caught.Result.Error = err.Error()
		return caught
	}
	ctx, cancel := context.WithTimeout(ctx, ControlLimit)
	defer cancel()
	caught.Result = Run(ctx, d, o)
	if caught.OK = caught.Result.notices(c.Notices); caught.OK && caught.Result.Folder != "" {
		_ = os.RemoveAll(caught.Result.Folder) // the failure was intended
		caught.Result.Folder = ""
	}
	return caught
}
