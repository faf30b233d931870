package rpcbench

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
)

// A Comparison is the cost of a call at two masters: one of another program (before), and
// one of this program (after).
type Comparison struct {
	HA          Mode     `json:"ha"`
	Connections int      `json:"connections"`
	Batch       int      `json:"batch"`
	Call        string   `json:"call"`
	Protocol    Protocol `json:"protocol"`
	ThinkMicros float64  `json:"think_us"` // between two calls of a connection
	Choice      Choice   `json:"key_choice"`
	Calls       int64    `json:"calls"` // of a round, the same for both

	Before []float64 `json:"before_cpu_us_per_key"` // processor time of the master, of each round
	After  []float64 `json:"after_cpu_us_per_key"`

	BeforeRate []float64 `json:"before_keys_per_s"` // of each round
	AfterRate  []float64 `json:"after_keys_per_s"`
	Others     float64   `json:"other_processors"` // kept busy by unrelated processes, in the worst round
}

// Ratio is the median after, divided by the median before.
func (c *Comparison) Ratio() float64 { return median(c.After) / median(c.Before) }

// Spread returns the lowest and the highest ratio of a round.
func (c *Comparison) Spread() (lowest, highest float64) {
	lowest, highest = math.Inf(1), 0
	for i := range c.Before {
		r := c.After[i] / c.Before[i]
		lowest, highest = min(lowest, r), max(highest, r)
	}
	return lowest, highest
}

// Medians returns the medians before and after.
func (c *Comparison) Medians() (before, after float64) { return median(c.Before), median(c.After) }

// Rates returns the medians of keys a second, before and after.
func (c *Comparison) Rates() (before, after float64) {
	return median(c.BeforeRate), median(c.AfterRate)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// compareMode compares the masters in one mode. Both run all the time, and are measured by
// turns, with the same calls.
func compareMode(ctx context.Context, dir string, ha Mode, o *Options, r *Report) error {
	o.progress(modeName(ha) + ": starting both")
	var both [2]*target // before, after
	var pools [2][]string
	for i, program := range []string{o.Before, ""} {
		t, err := startTarget(ctx, filepath.Join(dir, fmt.Sprint(i)), ha, o.Segments, program)
		if err != nil {
			return err
		}
		defer t.Stop()
		both[i] = t
		if pools[i], err = t.fill(ctx, o.Objects); err != nil {
			return fmt.Errorf("putting the objects to read: %w", err)
		}
	}
	both[0].beside, both[1].beside = both[1], both[0]
	space := uint16(1) // 0 is the pool's
	for _, s := range o.shapes() {
		for _, p := range o.Protocols {
			o.progress(fmt.Sprintf("%s: %v, %s", modeName(ha), s, p))
			var groups [2]group
			for i := range both {
				groups[i] = group{shape: s, target: both[i], pool: pools[i], options: o, space: space}
			}
			if err := compareGroups(ctx, &groups, p, o, r); err != nil {
				return fmt.Errorf("%s, %v, %s: %w", modeName(ha), s, p, err)
			}
			space++
		}
	}
	return nil
}

// compareGroups compares the calls over one protocol. Each round removes what it puts, so
// that every round starts from the same state.
func compareGroups(ctx context.Context, groups *[2]group, p Protocol, o *Options, r *Report) error {
	var loads [2]*load
	for i := range groups {
		l, err := groups[i].connect(ctx, p, groups[i].space)
		if err != nil {
			return err
		}
		defer l.disconnect()
		loads[i] = l
	}
	all := calls()
	for _, together := range [][]call{all[:1], all[1:2], all[2:]} {
		if !slices.ContainsFunc(together, func(c call) bool { return slices.Contains(o.Calls, c.name) }) {
			continue
		}
		list, err := compareCalls(ctx, &loads, together, o)
		if err != nil {
			return err
		}
		for _, c := range list {
			if slices.Contains(o.Calls, c.Call) {
				r.Comparisons = append(r.Comparisons, c)
			}
		}
	}
	return nil
}

// compareCalls compares calls that are made one after the other. The first round warms up
// both masters, and shows how many calls fit into its time. Every later round makes that
// many.
func compareCalls(ctx context.Context, loads *[2]*load, together []call, o *Options) ([]Comparison, error) {
	times := 0
	for i := range loads {
		first, err := loads[i].measure(ctx, together[0], o.Duration)
		if err != nil {
			return nil, err
		}
		times = max(1, int(first.Keys)/loads[i].batch/loads[i].connections) // of the last one
		if err := loads[i].clean(ctx); err != nil {
			return nil, err
		}
	}
	list := make([]Comparison, len(together))
	for round := range o.Rounds {
		for turn := range loads {
			i := (round + turn) % len(loads) // the two go first by turns
			for k, c := range together {
				cell, err := loads[i].repeat(ctx, c, times, o.Duration)
				if err != nil {
					return nil, err
				}
				list[k].add(&cell, i == 0)
			}
		}
	}
	return list, nil
}

func (c *Comparison) add(cell *Cell, before bool) {
	c.HA, c.Connections, c.Batch, c.Call, c.Protocol, c.Calls = cell.HA, cell.Connections, cell.Batch, cell.Call, cell.Protocol, cell.Calls
	c.ThinkMicros, c.Choice = cell.ThinkMicros, cell.Choice
	c.Others = max(c.Others, cell.OtherProcessors)
	if before {
		c.Before, c.BeforeRate = append(c.Before, cell.ServerMicrosPerKey), append(c.BeforeRate, cell.KeysPerSecond)
	} else {
		c.After, c.AfterRate = append(c.After, cell.ServerMicrosPerKey), append(c.AfterRate, cell.KeysPerSecond)
	}
}
