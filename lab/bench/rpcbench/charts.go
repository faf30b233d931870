package rpcbench

import (
	"fmt"
	"math"
	"slices"

	"github.com/understudy-store/understudy/lab/plot"
)

// Charts returns charts of the cells over the number of connections. For each mode and
// number of keys there is one chart of the master's CPU time for each key, and one of
// p99 latencies.
func (r *Report) Charts() (charts []plot.Chart) {
	var connections []int
	for i := range r.Cells {
		if n := r.Cells[i].Connections; !slices.Contains(connections, n) {
			connections = append(connections, n)
		}
	}
	slices.Sort(connections)
	var values []string
	for _, n := range connections {
		values = append(values, fmt.Sprint(n))
	}
	chart := func(title, y string, log bool) *plot.Chart {
		i := slices.IndexFunc(charts, func(c plot.Chart) bool { return c.Title == title })
		if i < 0 {
			i = len(charts)
			charts = append(charts, plot.Chart{Title: title, X: "connections", Y: y, Values: values, Log: log})
		}
		return &charts[i]
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		x := slices.Index(connections, c.Connections)
		mode := fmt.Sprintf("%s, %d keys a call", modeName(c.HA), c.Batch)
		set(chart("CPU of the master, "+mode, "µs/key", false), c.lineName(c.Call), x, c.ServerMicrosPerKey)
		for _, l := range c.Latency {
			set(chart("latency p99, "+mode, "µs", true), c.lineName(l.RPC), x, max(1, float64(l.P99)))
		}
	}
	return charts
}

func (c *Cell) lineName(call string) string {
	name := fmt.Sprintf("%s, %s", call, c.Protocol)
	if c.ThinkMicros > 0 {
		name += fmt.Sprintf(", think %g µs", c.ThinkMicros)
	}
	if c.Choice != Uniform {
		name += ", " + string(c.Choice)
	}
	return name
}

func set(c *plot.Chart, name string, x int, y float64) {
	i := slices.IndexFunc(c.Lines, func(l plot.Line) bool { return l.Name == name })
	if i < 0 {
		i = len(c.Lines)
		c.Lines = append(c.Lines, plot.Line{Name: name, Y: slices.Repeat([]float64{math.NaN()}, len(c.Values))})
	}
	c.Lines[i].Y[x] = y
}
