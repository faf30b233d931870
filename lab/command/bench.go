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
	return cli.Group(&cobra.Command{Use: "bench", Short: "Measure on this machine"}, g.renewalsCommand(), g.commitsCommand(), g.rpcCommand(), g.scaleCommand())
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

func (g *globals) commitsCommand() *cobra.Command {
	o := bench.CommitOptions{}
	cmd := &cobra.Command{
		Use:   "commits",
		Short: "Measure what a durable change takes, beside a bare put to the same etcd",
		Long: `Starts an etcd of its own in this process, as a master does, and has callers reserve
and complete objects through a queue, a writer and the journal in etcd, over a
connection and with calls within the process; beside that, bare puts of the size of a
commit, and fdatasync of 4 KiB on the same disk. CPU is this process's, etcd's share
included, for each change or put.`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, n := range o.Callers {
				if n < 1 || n > 1000 {
					return cli.Misusef("--callers has %d: it must be from 1 to 1000", n)
				}
			}
			switch {
			case o.Bytes < 1 || o.Bytes > 1<<20:
				return cli.Misusef("--bytes is %d: it must be from 1 to 1048576", o.Bytes)
			case o.Duration < 100*time.Millisecond:
				return cli.Misusef("--duration is %v: it must be at least 100ms", o.Duration)
			}
			return measure(g, cmd, func(ctx context.Context, stage func(string)) (bench.Commits, error) {
				o.Progress = stage
				return bench.RunCommits(ctx, o)
			}, commitsTable)
		},
	}
	cmd.Flags().StringVar(&o.Dir, "dir", "", "a directory on the disk to measure; empty for that of temporary files")
	cmd.Flags().IntSliceVar(&o.Callers, "callers", []int{1, 16, 200}, "callers, each with one change under way")
	cmd.Flags().IntVar(&o.Bytes, "bytes", 700, "bytes of a bare put")
	cmd.Flags().DurationVar(&o.Duration, "duration", 2*time.Second, "time of each measurement")
	return cmd
}

func commitsTable(w io.Writer, r *bench.Commits) {
	t := cli.NewTable(w, "WHAT", "AT ONCE", "PER s", "p50 µs", "p99 µs", "CPU µs", "COMMITS/s", "BYTES EACH", "COMMIT p50 µs")
	for _, s := range r.Steps {
		row := []string{s.What, fmt.Sprint(s.Callers), cli.Count(int64(s.PerSecond)), cli.Count(s.P50), cli.Count(s.P99), fmt.Sprintf("%.0f", s.CPU), "-", "-", "-"}
		if s.CommitsPerSecond > 0 {
			row = append(row[:6], cli.Count(int64(s.CommitsPerSecond)), cli.Count(int64(s.CommitBytes)), cli.Count(s.CommitP50))
		}
		t.Row(row...)
	}
	t.End()
}

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
