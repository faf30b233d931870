package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/bench/rpcbench"
	"github.com/understudy-store/understudy/lab/plot"
)

const aboutBenchRPC = `Starts a master as a process of its own, alone and in HA mode with an etcd and a
standby, and calls it over gRPC and over Mooncake's protocol: so many connections,
each with one call at a time, for one key or a batch. For each cell it prints what
the master answered in a second, how long the client waited, and how much
processor time the master took, which is the steadier figure where client and
master share a few processors.

A put is a PutStart and a PutEnd; its processor time by the key is that of both.
Objects that are read are chosen at random, uniformly or as Zipf has it (exponent
0.99, a batch is one of the runs of objects); removals remove what the puts of the
same cell have put. Nothing is evicted. Keys have 40 bytes.

With --think a connection waits between an answer and its next call, as real clients
do, and the master goes to sleep meanwhile. The wait is a timer of the kernel: it
takes no processor time from the master, as spinning would. It comes out some
microseconds longer than asked for; thought_us in the JSON says how long it was.

  lab bench rpc --think=0,20us --connections=1,4,16,64,200 --keys=uniform,zipf --plot=rpc.svg

All cells together take about six minutes.

With --before it compares two masters: that of another program, such as a lab of
an older commit, and this one's. Both run at the same time and are called in turns,
with the same calls: as many as fit into --duration at first, then so many again in
each of --rounds. Objects that are put are removed in the same round. The table has
the medians of the master's processor time by the key, their ratio, and the lowest
and highest ratio of a round. A quiet machine, one number of connections and cells
of 5 s show differences of a few percent:

  lab bench rpc --before=OLD/lab --connections=16 --objects=20000 --duration=5s`

func (g *globals) rpcCommand() *cobra.Command {
	o := rpcbench.Defaults()
	modes, protocols := []string{"off", "on"}, []string{string(rpcbench.GRPC), string(rpcbench.Mooncake)}
	choices, thinks, drawing := []string{string(rpcbench.Uniform)}, []string{"0"}, ""
	cmd := &cobra.Command{
		Use:   "rpc",
		Short: "Measure what calls over gRPC and Mooncake's protocol cost a master",
		Long:  aboutBenchRPC,
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.HA, err = haModes(modes); err != nil {
				return err
			}
			if o.Thinks, err = durations("think", thinks); err != nil {
				return err
			}
			if drawing != "" && o.Before != "" {
				return cli.Misusef("--plot draws cells, and --before has none: leave one out")
			}
			o.Choices, o.Protocols = named[rpcbench.Choice](choices), named[rpcbench.Protocol](protocols)
			if err := o.Check(); err != nil {
				return cli.Misuse(err)
			}
			return measure(g, cmd, func(ctx context.Context, stage func(string)) (rpcbench.Report, error) {
				o.Progress = stage
				r, err := rpcbench.Run(ctx, o)
				if err == nil && drawing != "" {
					err = draw(drawing, r.Charts())
				}
				return r, err
			}, func(w io.Writer, r *rpcbench.Report) {
				if o.Before != "" {
					comparisonTable(w, r)
				} else {
					rpcTable(w, r)
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&modes, "ha", modes, "off is a lone master; on one with etcd, journal and a standby; own the same with etcd in the master; alone without the standby")
	f.IntSliceVar(&o.Connections, "connections", o.Connections, "connections, each with one call at a time")
	f.IntSliceVar(&o.Batches, "batch", o.Batches, "keys of a call; 1 is the calls for one key")
	f.StringSliceVar(&o.Calls, "calls", o.Calls, "what is called: "+strings.Join(rpcbench.CallNames(), ", "))
	f.StringSliceVar(&protocols, "protocols", protocols, "how it is called: grpc, mooncake")
	f.StringSliceVar(&thinks, "think", thinks, "time between an answer and the next call of a connection")
	f.StringSliceVar(&choices, "keys", choices, "how the objects that are read are chosen: uniform, zipf")
	f.StringVar(&drawing, "plot", "", "file to draw the cells in, as SVG")
	f.DurationVar(&o.Duration, "duration", o.Duration, "time of each cell")
	f.StringVar(&o.Before, "before", "", "another lab, whose master this one's is compared with")
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "with --before: how often each cell is measured")
	f.IntVar(&o.Segments, "segments", o.Segments, "segments that are mounted")
	f.IntVar(&o.Objects, "objects", o.Objects, "objects that are read, at random")
	return cmd
}

func named[Name ~string](texts []string) (list []Name) {
	for _, text := range texts {
		list = append(list, Name(text))
	}
	return list
}

func durations(flag string, texts []string) (list []time.Duration, err error) {
	for _, text := range texts {
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, cli.Misusef("--%s has %q: it must be a duration, such as 20us", flag, text)
		}
		list = append(list, d)
	}
	return list, nil
}

func draw(path string, charts []plot.Chart) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = plot.Write(f, charts)
	return errors.Join(err, f.Close())
}

// haModes reads the values of --ha.
func haModes(names []string) (modes []rpcbench.Mode, err error) {
	for _, name := range names {
		if !slices.Contains(rpcbench.Modes(), rpcbench.Mode(name)) {
			return nil, cli.Misusef("--ha has %q: known are %v", name, rpcbench.Modes())
		}
		modes = append(modes, rpcbench.Mode(name))
	}
	return modes, nil
}

func rpcTable(w io.Writer, r *rpcbench.Report) {
	t := cli.NewTable(w, "HA", "CONNECTIONS", "BATCH", "THINK µs", "KEYS", "CALL", "PROTOCOL", "CALLS/s", "KEYS/s", "CPU µs/CALL", "CPU µs/KEY", "p50 µs", "p99 µs", "MAX µs", "OTHERS")
	for i := range r.Cells {
		c := &r.Cells[i]
		t.Row(string(c.HA), fmt.Sprint(c.Connections), fmt.Sprint(c.Batch), fmt.Sprint(c.ThinkMicros), string(c.Choice), c.Call, string(c.Protocol),
			cli.Count(int64(c.CallsPerSecond)), cli.Count(int64(c.KeysPerSecond)),
			fmt.Sprintf("%.1f", c.ServerMicrosPerCall), fmt.Sprintf("%.2f", c.ServerMicrosPerKey),
			rpcLatencies(c, func(l rpcbench.Latency) int64 { return l.P50 }),
			rpcLatencies(c, func(l rpcbench.Latency) int64 { return l.P99 }),
			rpcLatencies(c, func(l rpcbench.Latency) int64 { return l.Max }),
			fmt.Sprintf("%.2f", c.OtherProcessors))
	}
	t.End()
	fmt.Fprintf(w, "\nCPU is the master's. %d processors shared by client and master, load average %.2f before the run, %s,\n%s segments, %s objects to read. A put is two calls: PutStart + PutEnd.\n"+
		"OTHERS are the processors that processes besides the run's kept busy: the fewer, the better the figures.\n",
		r.Processors, r.LoadAverage, r.Go, cli.Count(r.Segments), cli.Count(r.Objects))
}

// tolerated is the ratio above which a call counts as slower than before.
const tolerated = 1.05

func comparisonTable(w io.Writer, r *rpcbench.Report) {
	t := cli.NewTable(w, "HA", "CONNECTIONS", "BATCH", "THINK µs", "KEYS", "CALL", "PROTOCOL", "CALLS", "BEFORE µs/KEY", "AFTER µs/KEY", "RATIO", "LOWEST", "HIGHEST", "BEFORE KEYS/s", "AFTER KEYS/s", "OTHERS")
	product, slower := 1.0, 0
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		before, after := c.Medians()
		lowest, highest := c.Spread()
		slow, fast := c.Rates()
		t.Row(string(c.HA), fmt.Sprint(c.Connections), fmt.Sprint(c.Batch), fmt.Sprint(c.ThinkMicros), string(c.Choice), c.Call, string(c.Protocol), cli.Count(c.Calls),
			fmt.Sprintf("%.2f", before), fmt.Sprintf("%.2f", after), fmt.Sprintf("%.3f", c.Ratio()),
			fmt.Sprintf("%.3f", lowest), fmt.Sprintf("%.3f", highest), cli.Count(int64(slow)), cli.Count(int64(fast)), fmt.Sprintf("%.2f", c.Others))
		if product *= c.Ratio(); c.Ratio() > tolerated {
			slower++
		}
	}
	t.End()
	fmt.Fprintf(w, "\nMedians of the master's processor time by the key. %d of %d ratios are above %.2f; their geometric mean is %.3f.\n"+
		"%d processors, load average %.2f before the run, %s. OTHERS are the processors that processes besides the run's kept busy, in the worst round.\n",
		slower, len(r.Comparisons), tolerated, math.Pow(product, 1/float64(len(r.Comparisons))), r.Processors, r.LoadAverage, r.Go)
}

// rpcLatencies formats one figure for each RPC of a cell.
func rpcLatencies(c *rpcbench.Cell, figure func(rpcbench.Latency) int64) string {
	var parts []string
	for _, l := range c.Latency {
		parts = append(parts, cli.Count(figure(l)))
	}
	return strings.Join(parts, " + ")
}
