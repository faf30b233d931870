package demo

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/understudy-store/understudy/lab/cluster"
	"github.com/understudy-store/understudy/lab/replay"
	"github.com/understudy-store/understudy/lab/trace"
)

// A Report says what clients saw.
type Report struct {
	// OK says that no promise was broken.
	OK bool `json:"ok"`
	// Violations as clients saw them, of all runs; all must be 0.
	Violations replay.Violations `json:"violations"`
	Examples   []string          `json:"examples,omitempty"`
	// OutageMillis is the time from the last answer to the next one, over all clients.
	OutageMillis int64   `json:"outage_ms"`
	HitRate      HitRate `json:"hit_rate"`
	Objects      Objects `json:"objects"`
	// DigestEqual says that primary and standby had the same state whenever they were
	// compared.
	DigestEqual    bool                      `json:"digest_equal"`
	CallsPerSecond float64                   `json:"calls_per_s"`
	Latency        map[string]replay.Latency `json:"latency"`
	HandoverMillis int64                     `json:"handover_ms,omitempty"` // as the old primary measured it
	Checks         []Check                   `json:"checks"`
	Settings       Settings                  `json:"settings"`
	Load           Load                      `json:"load"`
	Disturbed      replay.Result             `json:"disturbed_run"`
	Undisturbed    *replay.Result            `json:"undisturbed_run,omitempty"`

	access cluster.Access
}

// HitRate is in percent of blocks: before the disturbance, after it, and for
// the same requests as after in a run without one.
type HitRate struct {
	Before      float64  `json:"before"`
	After       float64  `json:"after"`
	Undisturbed *float64 `json:"undisturbed,omitempty"`
}

// Objects are the numbers of objects that the primaries held.
type Objects struct {
	Old uint64 `json:"old_primary"` // at its end
	New uint64 `json:"new_primary"` // after the promotion
	// Evicted is how many objects were evicted between the two counts, to make room, so they
	// are not lost. Below 0 if the old primary died before it could commit its last
	// evictions.
	Evicted int64 `json:"evicted"`
}

// kept returns, in percent, how many of the old primary's objects the new one holds or has
// evicted by rule: at most 100. Puts after the promotion count as well.
func (o Objects) kept() float64 {
	if o.Old == 0 {
		return 100
	}
	return min(100, 100*(float64(o.New)+float64(o.Evicted))/float64(o.Old))
}

// A Check compares a figure with what is expected of it.
type Check struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Promise bool   `json:"promise"` // if it fails, so does the report
	Text    string `json:"text"`
}

// Settings are the times in force and how the load was played.
type Settings struct {
	Disturbance    string  `json:"disturbance"`
	Protocol       string  `json:"protocol"`
	Forward        bool    `json:"forward,omitempty"`     // nodes pass calls on; clients know the standby alone
	AsOriginal     bool    `json:"as_original,omitempty"` // clients find the primary no sooner than Mooncake's own
	FailoverMillis int64   `json:"failover_after_ms"`
	LeaseTTLMillis int64   `json:"lease_ttl_ms"`
	Workers        int     `json:"workers"`
	Hosts          int     `json:"hosts"`
	Capacity       float64 `json:"capacity"` // part of the distinct blocks that fits
	Speed          float64 `json:"speed"`    // 0: as fast as it goes
	Seed           uint64  `json:"seed"`
}

// Load describes what was played.
type Load struct {
	Trace    string  `json:"trace"`
	Requests int     `json:"requests"`
	Blocks   int     `json:"blocks"`
	Distinct int     `json:"distinct_blocks"`
	Endless  float64 `json:"endless_cache_hit_rate"` // percent
}

func newReport(o Options) Report {
	what := "SIGKILL of the primary"
	if o.Handover {
		what = "handover"
	}
	return Report{access: o.Access, Load: Load{Trace: cmp.Or(o.Trace, "generated")}, Settings: Settings{
		Disturbance: what, Protocol: o.Access.Protocol(), Forward: o.Access.Forward, AsOriginal: o.Access.AsOriginal, FailoverMillis: o.Failover.Milliseconds(), LeaseTTLMillis: o.LeaseTTL.Milliseconds(),
		Workers: o.Workers, Hosts: hosts, Capacity: capacity, Speed: o.Speed, Seed: o.Seed,
	}}
}

func (r *Report) describe(t *trace.Trace) {
	st := t.Stats()
	r.Load.Requests, r.Load.Blocks, r.Load.Distinct, r.Load.Endless = st.Requests, st.References, st.Distinct, round(100*st.HitRate)
}

// disturbed adds the run in which the primary was taken away.
func (r *Report) disturbed(run *run) {
	result := run.player.Result()
	r.Disturbed = result
	r.Violations, r.Examples = result.Violations, result.Examples
	r.OutageMillis = run.player.Outage(run.began).Milliseconds()
	r.HandoverMillis = run.handover.Milliseconds()
	r.Objects = run.objects
	r.DigestEqual = run.digests
	r.CallsPerSecond = round(result.PerSecond)
	r.Latency = result.Latency
	r.HitRate.Before = round(run.player.HitRate(0, run.switched))
	r.HitRate.After = round(run.player.HitRate(run.switched, result.Requests))
}

// undisturbed adds the run without a disturbance. Its hit rate is over the requests that came
// after the disturbance in the first run.
func (r *Report) undisturbed(first, second *run) {
	result := second.player.Result()
	r.Undisturbed = &result
	rate := round(second.player.HitRate(first.switched, result.Requests))
	r.HitRate.Undisturbed = &rate
	r.DigestEqual = r.DigestEqual && second.digests
	v := result.Violations
	r.Violations.LostPuts += v.LostPuts
	r.Violations.Resurrected += v.Resurrected
	r.Violations.WrongBytes += v.WrongBytes
	r.Violations.BrokenLeases += v.BrokenLeases
	r.Examples = append(r.Examples, result.Examples...)
}

// judge compares the figures with what is expected of them.
func (r *Report) judge() {
	r.check("no promise broken", true, !r.Violations.Any(), "lost puts %d, resurrected %d, wrong bytes %d, broken leases %d",
		r.Violations.LostPuts, r.Violations.Resurrected, r.Violations.WrongBytes, r.Violations.BrokenLeases)
	r.check("same state", true, r.DigestEqual, "primary and standby have equal digests at equal sequences")
	kept := r.Objects.kept()
	r.check("warm", true, kept >= 99, "the new primary kept %.1f %% of the old one's %d objects, at least 99 %% are promised; %d were evicted meanwhile",
		kept, r.Objects.Old, r.Objects.Evicted)
	bound, points := time.Duration(r.Settings.FailoverMillis)*time.Millisecond+time.Second, 3.0
	if r.Settings.Disturbance == "handover" {
		bound, points = 300*time.Millisecond, 1
	}
	bound = r.access.Outage(bound, r.Settings.Disturbance != "handover")
	r.check("outage", false, r.OutageMillis <= bound.Milliseconds(), "%d ms, expected are at most %d", r.OutageMillis, bound.Milliseconds())
	if u := r.HitRate.Undisturbed; u != nil {
		lost := *u - r.HitRate.After
		r.check("hit rate", false, lost <= points, "%.1f %% after, %.1f %% undisturbed: %.1f points lost, expected are at most %.0f",
			r.HitRate.After, *u, math.Max(0, lost), points)
	}
	r.OK = true
	for _, c := range r.Checks {
		r.OK = r.OK && (c.OK || !c.Promise)
	}
}

func (r *Report) check(name string, promise, ok bool, format string, args ...any) {
	r.Checks = append(r.Checks, Check{Name: name, OK: ok, Promise: promise, Text: fmt.Sprintf(format, args...)})
}

func round(v float64) float64 { return math.Round(v*100) / 100 }
