package command

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/demo"
)

const aboutDemo = `Starts an etcd, a master and a standby as processes of their own on free ports of
this machine, plays an LLM request load against them, kills the master with
SIGKILL half-way, goes on against the promoted standby, and reports what the
clients saw. Nothing stays behind, also after Ctrl-C.

The load is a file of LLM requests (--trace), as the Mooncake project publishes
them, or generated. It is played twice: the second time undisturbed, for
comparison.

It exits with 1 if any promise was broken.`

func (g *globals) demoCommand() *cobra.Command {
	o, noCompare := demo.Options{}, false
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a takeover on this machine: play a load, kill the primary, judge what clients saw",
		Long:  aboutDemo,
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("compare") && noCompare {
				return cli.Misusef("--compare and --no-compare exclude each other")
			}
			o.Compare = o.Compare && !noCompare
			o.Access.Mooncake, o.Access.Generation = g.Mooncake, g.Generation
			if err := checkDemo(cmd, o); err != nil {
				return err
			}
			return g.RunLong(cmd, func(ctx context.Context) error { return g.demo(ctx, cmd, o) })
		},
	}
	f := cmd.Flags()
	loadFlags(f, &o.Trace, &o.Requests, &o.Seed, &o.Workers, &o.Speed)
	f.BoolVar(&o.Handover, "handover", false, "hand over to the standby instead of killing the primary")
	f.BoolVar(&o.Compare, "compare", true, "play the load a second time, undisturbed")
	f.BoolVar(&noCompare, "no-compare", false, "do not play it a second time")
	f.DurationVar(&o.Failover, "failover-after", time.Second, "time without a commit after which the standby takes over, from 200ms to 5s")
	f.DurationVar(&o.LeaseTTL, "lease-ttl", time.Second, "lease of a reader")
	accessFlags(f, &o.Access)
	f.StringVar(&o.Dir, "dir", "", "folder in which to keep data and logs, in a new one for each demo; none keeps nothing")
	return cmd
}

func checkDemo(cmd *cobra.Command, o demo.Options) error {
	switch {
	case o.Failover < 200*time.Millisecond || o.Failover > 5*time.Second:
		return cli.Misusef("--failover-after is %v: it must be from 200ms to 5s", o.Failover)
	case o.LeaseTTL < 100*time.Millisecond:
		return cli.Misusef("--lease-ttl is %v: it must be at least 100ms", o.LeaseTTL)
	}
	if fault := o.Access.Check(); fault != "" {
		return cli.Misusef("--forward and --as-original: %s", fault)
	}
	return checkLoad(cmd, o.Trace, o.Requests, o.Workers, o.Speed)
}

// loadFlags are those of the commands that play a load of LLM requests.
func loadFlags(f *pflag.FlagSet, trace *string, requests *int, seed *uint64, workers *int, speed *float64) {
	f.StringVar(trace, "trace", "", "file of requests to play, plain or .gz; none generates a load")
	f.IntVar(requests, "requests", 0, "requests of a generated load; 0 for its default")
	f.Uint64Var(seed, "seed", 1, "seed of the generated load and of what is removed")
	f.IntVar(workers, "workers", 8, "LLM servers at work at once")
	f.Float64Var(speed, "speed", 0, "play by the load's timestamps, so many times as fast; 0 plays as fast as it goes")
}

func checkLoad(cmd *cobra.Command, trace string, requests, workers int, speed float64) error {
	switch {
	case requests < 0:
		return cli.Misusef("--requests is %d: it must not be below 0", requests)
	case trace != "" && cmd.Flags().Changed("requests"):
		return cli.Misusef("--requests is for a generated load: leave out it or --trace")
	case workers < 1 || workers > 1024:
		return cli.Misusef("--workers is %d: it must be from 1 to 1024", workers)
	case speed < 0 || speed != speed:
		return cli.Misusef("--speed is %v: it must not be below 0", speed)
	}
	return nil
}

func (g *globals) demo(ctx context.Context, cmd *cobra.Command, o demo.Options) error {
	p := newProgress(cmd.ErrOrStderr())
	report, err := demo.Run(ctx, o, p)
	p.end()
	if err != nil {
		return err
	}
	return g.printVerdict(cmd, report, report.OK, func(w io.Writer) { demoReport(w, &report) })
}

var errBroken = errors.New("a promise was broken; the report says which one")

// printVerdict prints a report, and fails unless all promises were kept.
func (g *globals) printVerdict(cmd *cobra.Command, report any, kept bool, people func(io.Writer)) error {
	if err := g.Print(cmd, report, people); err != nil || kept {
		return err
	}
	return errBroken
}
