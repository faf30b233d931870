package command

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/bench"
)

func (g *globals) benchCommand() *cobra.Command {
	return cli.Group(&cobra.Command{Use: "bench", Short: "Measure on this machine"}, g.renewalsCommand(), g.rpcCommand(), g.scaleCommand())
}

func (g *globals) renewalsCommand() *cobra.Command {
	o := bench.Options{}
	cmd := &cobra.Command{
		Use:   "renewals",
		Short: "Measure how fast lease renewals reach a standby through etcd, packed and one by one",
		Long: `Starts an etcd of its own and a follower, and renews leases of objects: packed as a
primary does it, at a given rate and as fast as it goes; and, for comparison, with
a lease and a put for each renewal, and in transactions of 128 puts.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.Objects < 1:
				return cli.Misusef("--objects is %d: it must be above 0", o.Objects)
			case o.Rate < 1:
				return cli.Misusef("--rate is %d: it must be above 0", o.Rate)
			case o.Duration < 100*time.Millisecond:
				return cli.Misusef("--duration is %v: it must be at least 100ms", o.Duration)
			}
			return measure(g, cmd, func(ctx context.Context, stage func(string)) (bench.Renewals, error) {
				o.Progress = stage
				return bench.RunRenewals(ctx, o)
			}, renewalsTable)
		},
	}
	cmd.Flags().IntVar(&o.Objects, "objects", 100_000, "objects whose leases are renewed, in turn")
	cmd.Flags().DurationVar(&o.Duration, "duration", 5*time.Second, "time of each of the four measurements")
	cmd.Flags().IntVar(&o.Rate, "rate", 15_000, "renewals a second of the steady measurement")
	return cmd
}

// measure runs a benchmark, which reports its stages, and prints what it has
// measured.
func measure[Report any](g *globals, cmd *cobra.Command, run func(ctx context.Context, stage func(string)) (Report, error), people func(io.Writer, *Report)) error {
	return g.RunLong(cmd, func(ctx context.Context) error {
		r, err := run(ctx, func(what string) { cmd.PrintErrln(what) })
		if err != nil {
			return err
		}
		return g.Print(cmd, r, func(w io.Writer) { people(w, &r) })
	})
}

func renewalsTable(w io.Writer, r *bench.Renewals) {
	t := cli.NewTable(w, "WAY", "RENEWALS/s", "ETCD WRITES/s", "BYTES EACH", "APPLIED p50 ms", "APPLIED p99 ms")
	packed := func(way string, p *bench.Packed) {
		t.Row(way, cli.Count(int64(p.RenewalsPerSecond)), fmt.Sprintf("%.1f", p.EtcdWritesPerSecond), fmt.Sprintf("%.1f", p.BytesPerRenewal),
			fmt.Sprintf("%.0f", p.AppliedP50), fmt.Sprintf("%.0f", p.AppliedP99))
	}
	packed("packed, as fast as it goes", &r.Packed)
	packed(fmt.Sprintf("packed, %s a second", cli.Count(r.SteadyRate)), &r.Steady)
	t.Row("one lease and one put each", cli.Count(int64(r.Literal.RenewalsPerSecond)), "-", "-", "-", "-")
	t.Row("transactions of 128 puts", cli.Count(int64(r.Txn128.RenewalsPerSecond)), "-", "-", "-", "-")
	t.End()
	fmt.Fprintf(w, "\nPacked is %.0f times as fast as one lease and one put each, over %s objects.\n", r.Ratio, cli.Count(r.Objects))
}
