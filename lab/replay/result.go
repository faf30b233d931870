package replay

import "time"

// A Result is what clients saw of a replay.
type Result struct {
	Violations Violations         `json:"violations"`
	Examples   []string           `json:"examples,omitempty"` // of violations
	Requests   int                `json:"requests"`
	Blocks     int                `json:"blocks"`
	Hits       int                `json:"hits"`
	HitRate    float64            `json:"hit_rate"` // percent of blocks
	Removals   int64              `json:"removals"`
	NoRoom     int64              `json:"puts_without_room"`
	Calls      int64              `json:"calls"`
	Failed     int64              `json:"calls_without_answer"`
	PerSecond  float64            `json:"calls_per_s"`
	Seconds    float64            `json:"seconds"`
	Latency    map[string]Latency `json:"latency"`
}

// Result returns what clients have seen so far.
func (p *Player) Result() Result {
	r := Result{Requests: p.Taken(), Removals: p.removes.Load(), NoRoom: p.noRoom.Load()}
	r.Violations, r.Examples = p.judge.verdict()
	r.Hits, r.Blocks = p.sum(0, len(p.counts))
	r.HitRate = percent(r.Hits, r.Blocks)
	r.Calls, r.Failed = p.meter.counts()
	r.Seconds = p.took.Seconds()
	if r.Seconds > 0 {
		r.PerSecond = float64(r.Calls) / r.Seconds
	}
	r.Latency = p.meter.latencies()
	return r
}

// HitRate returns the percentage of blocks that the requests from (inclusive) to (exclusive)
// found.
func (p *Player) HitRate(from, to int) float64 {
	return percent(p.sum(from, to))
}

// sum adds up the counts of requests. It must not be called while Run runs.
func (p *Player) sum(from, to int) (hits, blocks int) {
	for _, c := range p.counts[from:to] {
		hits += int(c.hits)
		blocks += int(c.blocks)
	}
	return hits, blocks
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// Now returns the replay's clock, for Outage.
func (p *Player) Now() time.Duration { return p.clock() }

// Taken returns how many requests have been taken.
func (p *Player) Taken() int { return int(min(p.next.Load(), int64(len(p.counts)))) }

// Outage returns the longest time without an answer to any client that ended after since, a
// time of the replay's clock.
func (p *Player) Outage(since time.Duration) time.Duration { return p.meter.outage(since) }
