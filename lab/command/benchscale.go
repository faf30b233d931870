package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/bench/rpcbench"
	"github.com/understudy-store/understudy/lab/bench/scalebench"
)

const aboutBenchScale = `Starts a master as a process of its own, with an etcd and a standby unless --ha=off, and
puts very many objects into it. Then it lets each housekeeping task run in turn, while
a few callers read single keys (500 calls a second), batches of 128 (100) and put objects (50),
over Mooncake's protocol. For each task it prints how long it took, the primary's highest
resident memory, the pauses of its garbage collector, and how long the callers waited. A call
that takes longer than the time to the next one counts for all that it holds up. Where a
primary goes, the longest wait is the time without one.

The tasks, in their order:

  idle          nothing
  busy          nothing, but another process keeps a processor busy
  renewals      100,000 leases a second are renewed, and journaled once a second
  state-file    the primary writes a state file, over the network to this command
  snapshot      a standby without a state loads one from the primary
  handover      the standby becomes the primary, in order
  kill          the primary is killed (SIGKILL)
  remove-regex  a tenth of the objects are removed by a pattern
  quarantine    their memory comes free, all of it at one moment
  unmount       a segment with a tenth of the objects is unmounted
  evict         what is left is 93 % full: about a twelfth is evicted

Everything runs on this machine. 10 M objects take about 6 GB of memory with HA.`

func (g *globals) scaleCommand() *cobra.Command {
	o, ha := scalebench.Defaults(), "on"
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure a master with millions of objects, and its callers during housekeeping",
		Long:  aboutBenchScale,
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			modes, err := haModes([]string{ha})
			if err != nil {
				return err
			}
			if o.HA = modes[0] == rpcbench.On; !o.HA && modes[0] != rpcbench.Off {
				return cli.Misusef("--ha has %q: known are off, on", ha)
			}
			if err := o.Check(); err != nil {
				return cli.Misuse(err)
			}
			return measure(g, cmd, func(ctx context.Context, stage func(string)) (scalebench.Report, error) {
				o.Progress = stage
				return scalebench.Run(ctx, o)
			}, scaleTable)
		},
	}
	f := cmd.Flags()
	f.StringVar(&ha, "ha", ha, "on is with etcd, journal and a standby, off a lone master")
	f.IntVar(&o.Objects, "objects", o.Objects, "objects to put, such as 1000000 or 10000000")
	f.StringSliceVar(&o.Tasks, "tasks", nil, "only these tasks: "+strings.Join(scalebench.TaskNames(), ", "))
	f.DurationVar(&o.Least, "duration", o.Least, "time for which each task is measured at least")
	return cmd
}

func scaleTable(w io.Writer, r *scalebench.Report) {
	header := []string{"TASK", "SECONDS", "ITEMS", "ITEMS/s", "PEAK MB", "GC", "PAUSE ms p99", "MAX"}
	if len(r.Tasks) > 0 {
		for _, c := range r.Tasks[0].Calls {
			header = append(header, c.Name+" ms p50", "p99", "MAX")
		}
	}
	t := cli.NewTable(w, header...)
	for i := range r.Tasks {
		m := &r.Tasks[i]
		row := []string{
			m.Name, fmt.Sprintf("%.2f", m.Seconds), cli.Count(m.Items), cli.Count(int64(m.PerSecond)), cli.Count(m.PeakRSS >> 20),
			fmt.Sprint(m.Collections), fmt.Sprintf("%.2f", m.PauseP99), fmt.Sprintf("%.2f", m.PauseMax),
		}
		for _, c := range m.Calls {
			row = append(row, millis(c.P50), millis(c.P99), millis(c.Max))
		}
		t.Row(row...)
	}
	t.End()
	for i := range r.Tasks {
		if p := r.Tasks[i].Phases; p != nil {
			fmt.Fprintf(w, "%s: elect %.1f ms, catch up %.1f, begin %.1f, clean up %.1f, announce %.1f\n", r.Tasks[i].Name, p["elect"], p["catch_up"], p["begin"], p["clean"], p["announce"])
		}
	}
	fmt.Fprintf(w, "\n%s objects were put in %.1f s (%s a second); %.0f bytes of live heap an object; resident %s MB empty, %s MB with all.\n"+
		"%d processors shared by all, load average %.2f before the run, %s.\n",
		cli.Count(r.Objects), r.FillSeconds, cli.Count(int64(r.FillPerSecond)), r.BytesPerObject, cli.Count(r.EmptyRSS>>20), cli.Count(r.IdleRSS>>20),
		r.Processors, r.LoadAverage, r.Go)
}

func millis(us int64) string { return fmt.Sprintf("%.2f", float64(us)/1000) }
