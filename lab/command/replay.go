package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/understudy-store/understudy/errs"
	"github.com/understudy-store/understudy/internal/cli"
	"github.com/understudy-store/understudy/lab/replay"
	"github.com/understudy-store/understudy/lab/trace"
)

const aboutReplay = `Plays the demo's load against a cluster that is already running: a file of LLM
requests (--trace), or a generated load. It lends the cluster memory of its own,
writes blocks there and reads them while it holds their leases, and counts what
it finds wrong. Kill, stop or hand over the primary meanwhile: it goes on. Ctrl-C
ends it early, with a verdict on what was played. At the end the memory is unmounted.

No other memory may be mounted, for this process could not write or read there.

It exits with 1 if any promise was broken.`

type replayFlags struct {
	replay.Config
	trace    string
	requests int
	block    uint64
}

func (g *globals) replayCommand() *cobra.Command {
	f := &replayFlags{block: 1024}
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Play the demo's load against a running cluster, and judge what clients saw",
		Long:  aboutReplay,
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return g.RunLong(cmd, func(ctx context.Context) error { return g.replay(ctx, cmd, f) })
		},
	}
	flags := cmd.Flags()
	loadFlags(flags, &f.trace, &f.requests, &f.Seed, &f.Workers, &f.Speed)
	flags.IntVar(&f.Hosts, "hosts", 4, "hosts that lend memory")
	flags.Float64Var(&f.Capacity, "capacity", 0.5, "memory lent, as a part of what the distinct blocks take")
	cli.SizeVar(flags, &f.block, "block", "`size` of a block in bytes (default 1KiB)")
	flags.StringVar(&f.Prefix, "prefix", "", "beginning of all keys (default a new one for each replay)")
	return cmd
}

func (f *replayFlags) check(cmd *cobra.Command) error {
	const longestPrefix, smallestBlock, largestBlock = 1024, 64, 64 << 20
	switch {
	case f.Hosts < 1 || f.Hosts > 256:
		return cli.Misusef("--hosts is %d: it must be from 1 to 256", f.Hosts)
	case !(f.Capacity > 0 && f.Capacity <= 10):
		return cli.Misusef("--capacity is %v: it must be above 0 and at most 10", f.Capacity)
	case len(f.Prefix) > longestPrefix:
		return cli.Misusef("--prefix has %d bytes: it may have %d", len(f.Prefix), longestPrefix)
	}
	if f.Prefix == "" {
		f.Prefix = "replay-" + uuid.NewString()[:8] + "/"
	}
	// A block begins with 16 bytes and its key.
	least := uint64(smallestBlock + len(f.Prefix))
	if f.block < least || f.block > largestBlock {
		return cli.Misusef("--block is %d: it must be from %d to %d bytes", f.block, least, largestBlock)
	}
	f.Block = int(f.block)
	return checkLoad(cmd, f.trace, f.requests, f.Workers, f.Speed)
}

func (g *globals) replay(ctx context.Context, cmd *cobra.Command, f *replayFlags) (err error) {
	if f.Trace, err = trace.Load(f.trace, trace.Options{Seed: f.Seed, Requests: f.requests}); err != nil {
		return err
	}
	if err := g.Widen(ctx); err != nil {
		return err
	}
	if g.Mooncake {
		cmd.PrintErrln("Over Mooncake's protocol nobody can see whether other memory is mounted: there must be none.")
	} else if err := g.noForeignMemory(ctx); err != nil {
		return err
	}
	progress := newProgress(cmd.ErrOrStderr())
	defer progress.end()
	if f.Client, err = g.Client(uuid.Nil); err != nil {
		return err
	}
	f.OnTaken = progress.Done
	player, err := replay.New(ctx, f.Config)
	if err != nil {
		return err
	}
	defer player.Close()
	progress.Stage(fmt.Sprintf("playing %s requests", cli.Count(len(f.Trace.Requests))), len(f.Trace.Requests))
	played := player.Run(ctx)
	progress.end()
	if err := player.Unmount(ctx); err != nil {
		cmd.PrintErrf("the memory of the replay stays mounted until the master's --client_ttl: %v\n", err)
	}
	if played != nil && ctx.Err() == nil {
		return played
	}
	result := player.Result()
	verdict := g.printVerdict(cmd, result, !result.Violations.Any(), func(w io.Writer) { replayReport(w, &result, player) })
	return cmp.Or(verdict, played)
}

// noForeignMemory checks that no other client has mounted memory, so that all objects will be
// in memory of the replay.
func (g *globals) noForeignMemory(ctx context.Context) error {
	names, err := g.SegmentNames(ctx)
	if err != nil || len(names) == 0 {
		return err
	}
	slices.Sort(names)
	return errs.New(errs.InvalidParams, "replay", "other memory is mounted (%s), where this process can neither write nor read: unmount it, "+
		"or wait for the master's --client_ttl (10 s) if it is that of a replay that has just ended", strings.Join(names, ", "))
}

func replayReport(w io.Writer, r *replay.Result, p *replay.Player) {
	v := &r.Violations
	fmt.Fprintf(w, "\nPlayed        %s requests for %s blocks in %.1f s\n", cli.Count(r.Requests), cli.Count(r.Blocks), r.Seconds)
	fmt.Fprintf(w, "Hit rate      %.1f %% of the blocks\n", r.HitRate)
	fmt.Fprintf(w, "Calls         %s a second; %s of %s had no answer and were given up; the longest time without an answer was %s ms\n",
		cli.Count(int64(r.PerSecond)), cli.Count(r.Failed), cli.Count(r.Calls), cli.Count(p.Outage(0).Milliseconds()))
	fmt.Fprintf(w, "Removals      %s\n", cli.Count(r.Removals))
	fmt.Fprintf(w, "No room       %s puts were given up\n\n", cli.Count(r.NoRoom))
	latencies(w, r.Latency)
	fmt.Fprintf(w, "\nViolations    lost puts %d, resurrected %d, wrong bytes %d, broken leases %d\n",
		v.LostPuts, v.Resurrected, v.WrongBytes, v.BrokenLeases)
	for _, example := range r.Examples {
		fmt.Fprintln(w, "  for example: "+example)
	}
	verdict := "No promise was broken."
	if v.Any() {
		verdict = "A PROMISE WAS BROKEN."
	}
	fmt.Fprintln(w, "\n"+verdict)
}
