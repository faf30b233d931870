package ctl

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/lab/bench"
)

func (g *globals) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure on this machine",
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.renewalsCommand(), g.rpcCommand())
	return cmd
}

func (g *globals) renewalsCommand() *cobra.Command {
	o := bench.Options{}
	cmd := &cobra.Command{
		Use:   "renewals",
		Short: "Measure how fast lease renewals reach a standby through etcd, packed and one by one",
		Long: `Starts an etcd of its own and a follower, and renews leases of objects: packed as a
primary does it, at a given rate and as fast as it goes; and, for comparison, with
a lease and a put for each renewal, and in transactions of 128 puts.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.Objects < 1:
				return usagef("--objects is %d: it must be above 0", o.Objects)
			case o.Rate < 1:
				return usagef("--rate is %d: it must be above 0", o.Rate)
			case o.Duration < 100*time.Millisecond:
				return usagef("--duration is %v: it must be at least 100ms", o.Duration)
			}
			return g.benchRenewals(cmd, o)
		},
	}
	cmd.Flags().IntVar(&o.Objects, "objects", 100_000, "objects whose leases are renewed, in turn")
	cmd.Flags().DurationVar(&o.Duration, "duration", 5*time.Second, "time of each of the four measurements")
	cmd.Flags().IntVar(&o.Rate, "rate", 15_000, "renewals a second of the steady measurement")
	return cmd
}

func (g *globals) benchRenewals(cmd *cobra.Command, o bench.Options) error {
	ctx, cancel, err := g.beginLong(cmd)
	if err != nil {
		return err
	}
	defer cancel()
	p := newProgress(cmd.ErrOrStderr())
	o.Progress = func(what string) { p.Stage(what, 0) }
	r, err := bench.RunRenewals(ctx, o)
	if err != nil {
		return err
	}
	return g.print(cmd, r, func(w io.Writer) { renewalsTable(w, &r) })
}

func renewalsTable(w io.Writer, r *bench.Renewals) {
	t := newTable(w, "WAY", "RENEWALS/s", "ETCD WRITES/s", "BYTES EACH", "APPLIED p50 ms", "APPLIED p99 ms")
	packed := func(way string, p *bench.Packed) {
		t.row(way, count(int64(p.RenewalsPerSecond)), fmt.Sprintf("%.1f", p.EtcdWritesPerSecond), fmt.Sprintf("%.1f", p.BytesPerRenewal),
			fmt.Sprintf("%.0f", p.AppliedP50), fmt.Sprintf("%.0f", p.AppliedP99))
	}
	packed("packed, as fast as it goes", &r.Packed)
	packed(fmt.Sprintf("packed, %s a second", count(r.SteadyRate)), &r.Steady)
	t.row("one lease and one put each", count(int64(r.Literal.RenewalsPerSecond)), "-", "-", "-", "-")
	t.row("transactions of 128 puts", count(int64(r.Txn128.RenewalsPerSecond)), "-", "-", "-", "-")
	t.end()
	fmt.Fprintf(w, "\nPacked is %.0f times as fast as one lease and one put each, over %s objects.\n", r.Ratio, count(r.Objects))
}
